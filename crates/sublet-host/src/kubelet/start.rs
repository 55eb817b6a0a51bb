//! Starting containers: images, configuration, and the back-off between starts.

use super::behaviour;
use super::container::{Exit, State};
use super::step::{CONFIG_RETRY_SECONDS, KILLED, Step};
use crate::events::Notice;
use sublet_machinery::ObjectExt;

/// After a failed pull, this long until the status says that the next one waits.
const PULL_BACKOFF_SHOWN_SECONDS: i64 = 2;

impl Step<'_, '_> {
    pub(super) fn restart_changed(&mut self, index: usize) {
        let now = self.observed.now;
        let container = &mut self.containers[index];
        let message = format!("Container {} definition changed, will be restarted", container.name());
        self.plan.events.push(Notice::normal("Killing", message).at(container.field_path()));
        container.stop(KILLED, now);
        self.start(index);
    }

    /// Starts the container, or leaves it waiting with the reason. True when it runs.
    pub(super) fn start(&mut self, index: usize) -> bool {
        let observed = self.observed;
        let container = &mut self.containers[index];
        if let Some(error) = behaviour::pull_error(observed.pod, container.spec) {
            self.fail_pull(index, &error);
            return false;
        }
        if let Some(trouble) = (observed.config_trouble)(container.spec) {
            let reason = "CreateContainerConfigError";
            if !matches!(&container.state, State::Waiting { reason: r, message } if r == reason && *message == trouble) {
                self.plan.events.push(Notice::warning("Failed", format!("Error: {trouble}")).at(container.field_path()));
            }
            container.wait(reason, trouble);
            self.wake_at(observed.now + CONFIG_RETRY_SECONDS);
            return false;
        }
        container.start(observed.pod.uid(), observed.now);
        let (path, image) = (container.field_path(), container.spec_image());
        if container.spec["imagePullPolicy"] == "Always" {
            self.plan.events.push(Notice::normal("Pulling", format!("Pulling image \"{image}\"")).at(path.clone()));
            let message = format!("Successfully pulled image \"{image}\" in 5ms (5ms including waiting). Image size: 1048576 bytes.");
            self.plan.events.push(Notice::normal("Pulled", message).at(path.clone()));
        } else {
            let message = format!("Container image \"{image}\" already present on machine and can be accessed by the pod");
            self.plan.events.push(Notice::normal("Pulled", message).at(path.clone()));
        }
        self.plan.events.push(Notice::normal("Created", "Container created".into()).at(path.clone()));
        self.plan.events.push(Notice::normal("Started", "Container started".into()).at(path));
        true
    }

    pub(super) fn fail_pull(&mut self, index: usize, error: &str) {
        let now = self.observed.now;
        let container = &mut self.containers[index];
        let (path, image, name) = (container.field_path(), container.spec_image(), container.name().to_string());
        let waits_for = match &container.state {
            State::Waiting { reason, .. } => reason.clone(),
            _ => String::new(),
        };
        match waits_for.as_str() {
            "ImagePullBackOff" => {}
            "ErrImagePull" => {
                let shown_at = self.memory.pull_failed.get(&name).map_or(now, |at| at + PULL_BACKOFF_SHOWN_SECONDS);
                if now < shown_at {
                    return self.wake_at(shown_at);
                }
                let message = format!("Back-off pulling image \"{image}\"");
                self.plan.events.push(Notice::normal("BackOff", message.clone()).at(path.clone()));
                self.plan.events.push(Notice::warning("Failed", "Error: ImagePullBackOff".into()).at(path));
                container.wait("ImagePullBackOff", format!("{message}: ErrImagePull: {error}"));
            }
            _ => {
                self.plan.events.push(Notice::normal("Pulling", format!("Pulling image \"{image}\"")).at(path.clone()));
                self.plan.events.push(Notice::warning("Failed", format!("Failed to pull image \"{image}\": {error}")).at(path.clone()));
                self.plan.events.push(Notice::warning("Failed", "Error: ErrImagePull".into()).at(path));
                container.wait("ErrImagePull", error.to_string());
                self.memory.pull_failed.insert(name, now);
                self.wake_at(now + PULL_BACKOFF_SHOWN_SECONDS);
            }
        }
    }

    /// When a container that ended may start again: at once the first time, then ever later.
    pub(super) fn restart_due(&self, index: usize, exit: &Exit) -> i64 {
        exit.finished.unwrap_or(0) + self.restart_delay(index, exit)
    }

    pub(super) fn restart_delay(&self, index: usize, exit: &Exit) -> i64 {
        let timings = self.observed.timings;
        let ran = exit.finished.unwrap_or(0) - exit.started.unwrap_or(0);
        match self.containers[index].restarts {
            0 => 0,
            // Long good runs clear the back-off.
            _ if ran > 2 * timings.crash_backoff_max => 0,
            n => timings.crash_backoff_first.saturating_mul(1 << (n - 1).min(30)).min(timings.crash_backoff_max),
        }
    }

    pub(super) fn back_off(&mut self, index: usize, due: i64, exit: &Exit) {
        let pod = self.observed.pod;
        let delay = due - exit.finished.unwrap_or(0);
        let name = self.containers[index].name();
        let pod_name = format!("{}_{}({})", pod.name(), pod.namespace(), pod.uid());
        let message = format!("back-off {} restarting failed container={name} pod={pod_name}", go_duration(delay));
        let event = format!("Back-off restarting failed container {name} in pod {pod_name}");
        self.plan.events.push(Notice::warning("BackOff", event).at(self.containers[index].field_path()));
        self.containers[index].wait("CrashLoopBackOff", message);
    }
}

/// Seconds as Go prints a duration: `10s`, `2m40s`.
fn go_duration(seconds: i64) -> String {
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}
