//! The end of a pod: its sidecars, its deadline, its deletion.

use super::behaviour;
use super::container::{Container, Exit, Role, State, seconds};
use super::step::{KILLED, Step};
use crate::events::Notice;
use sublet_machinery::ObjectExt;

impl Step<'_, '_> {
    /// Sidecars end when every app container has ended for good.
    pub(super) fn stop_sidecars(&mut self) {
        let pod = self.observed.pod;
        let over = |c: &Container<'_>| matches!(&c.state, State::Exited(e) if !c.restarts_after(pod, e.code));
        if self.containers.iter().filter(|c| c.role == Role::App).all(over) {
            self.kill(&[Role::Sidecar]);
        }
    }

    pub(super) fn kill(&mut self, roles: &[Role]) {
        let now = self.observed.now;
        for container in self.containers.iter_mut().rev().filter(|c| roles.contains(&c.role) && c.is_running()) {
            if !self.memory.kill_told {
                let message = format!("Stopping container {}", container.name());
                self.plan.events.push(Notice::normal("Killing", message).at(container.field_path()));
            }
            container.stop(KILLED, now);
        }
    }

    pub(super) fn expire(&mut self) {
        let message = "Pod was active on the node longer than the specified deadline";
        self.plan.events.push(Notice::normal("DeadlineExceeded", message.into()));
        self.kill(&[Role::Init, Role::Sidecar, Role::App, Role::Ephemeral]);
        self.failure = Some(("DeadlineExceeded", message.into()));
    }

    /// The deletion of the pod: containers get their time to stop, then the object may go.
    pub(super) fn terminate(&mut self) {
        let (pod, now) = (self.observed.pod, self.observed.now);
        let grace = pod.i64_at("/metadata/deletionGracePeriodSeconds").unwrap_or(0);
        let asked = pod.pointer("/metadata/deletionTimestamp").and_then(seconds).unwrap_or(now) - grace;
        let stop = |c: &Container<'_>| {
            let own = behaviour::seconds(pod, c.name(), "stop-seconds");
            own.or_else(|| c.spec.i64_at("/lifecycle/preStop/sleep/seconds")).unwrap_or(0)
        };
        let needed = self.containers.iter().filter(|c| c.is_running()).map(stop).max().unwrap_or(0);
        let stopped_at = asked + needed.min(grace);
        if now < stopped_at {
            if !self.memory.kill_told {
                self.memory.kill_told = true;
                for container in self.containers.iter().filter(|c| c.is_running()) {
                    let message = format!("Stopping container {}", container.name());
                    self.plan.events.push(Notice::normal("Killing", message).at(container.field_path()));
                }
            }
            self.sandbox = true;
            return self.wake_at(stopped_at);
        }
        self.kill(&[Role::Init, Role::Sidecar, Role::App, Role::Ephemeral]);
        self.memory.kill_told = true;
        self.plan.gone = true;
        if pod.array_at("/spec/initContainers").is_empty() || self.containers.iter().any(|c| c.role == Role::App && !c.id.is_empty()) {
            self.mark_lost();
        }
    }

    /// Containers that never ran count as failed once the pod has been asked to go.
    pub(super) fn mark_lost(&mut self) {
        for container in self.containers.iter_mut().filter(|c| c.role == Role::App) {
            if matches!(container.state, State::Waiting { .. }) {
                container.wait("", String::new());
                container.state = State::Exited(Exit {
                    code: 137,
                    reason: "ContainerStatusUnknown".into(),
                    message: "The container could not be located when the pod was terminated".into(),
                    started: None,
                    finished: None,
                    id: String::new(),
                });
            }
        }
    }
}
