//! Priority and fairness: requests find a seat at their level, wait for their turn, or are told to come back.
//!
//! Entry type: [`FlowControl`]. Flow schemas and priority levels are read when the first request asks, and again when
//! they change; there is no task. Levels have seats by their shares and lend idle ones; within a level, flows take
//! turns. Every request has one seat, whatever it costs.

mod seats;
mod table;

pub(crate) use seats::Seat;

use crate::admission::UserInfo;
use crate::http::RequestInfo;
use crate::reader::{Derived, Reader};
use seats::{Entry, Rejection, Shared, WAIT_SECONDS, lock};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use table::{Class, FlowTable};

/// How long a request waits for a seat: a quarter of the time that it may take, as upstream has it.
const WAIT_MAX: Duration = Duration::from_secs(15);

pub(crate) const SCHEMA_UID: &str = "x-kubernetes-pf-flowschema-uid";
pub(crate) const LEVEL_UID: &str = "x-kubernetes-pf-prioritylevel-uid";

pub(crate) struct FlowControl {
    table: Derived<FlowTable, 2>,
    seats: Shared,
}

/// How a request was classified, by the UIDs that clients are told.
#[derive(Clone)]
pub(crate) struct Classified {
    pub schema_uid: Arc<str>,
    pub level_uid: Arc<str>,
}

impl Default for FlowControl {
    fn default() -> Self {
        let resources = ["flowschemas.flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io"];
        Self { table: Derived::new(resources, FlowTable::of), seats: Shared::default() }
    }
}

impl FlowControl {
    /// A seat for the request, or none.
    pub(crate) async fn enter(&self, reader: &dyn Reader, user: &UserInfo, info: &RequestInfo) -> (Classified, Option<Seat>) {
        let table = self.table.read(reader);
        let class = table.classify(user, info);
        let classified = Classified { schema_uid: class.schema_uid.clone(), level_uid: class.level.uid.clone() };
        let seat = match seats::enter(&self.seats, &table, &class) {
            Entry::Seated(seat) => {
                if class.level.queuing.is_some() {
                    lock(&self.seats).waited(&class.level.name, &class.schema, Duration::ZERO);
                }
                Some(seat)
            }
            Entry::Rejected => None,
            Entry::Waits(mut waiting) => {
                let started = tokio::time::Instant::now();
                let seat = tokio::time::timeout(WAIT_MAX, &mut waiting.seat).await;
                self.note(&class, seat.is_err(), started.elapsed());
                seat.ok().and_then(Result::ok)
            }
        };
        (classified, seat)
    }

    fn note(&self, class: &Class, timed_out: bool, waited: Duration) {
        let mut seats = lock(&self.seats);
        seats.waited(&class.level.name, &class.schema, waited);
        if timed_out {
            seats.count(&class.level.name, &class.schema).rejected[Rejection::TimeOut as usize] += 1;
        }
    }

    /// Upstream's metrics; nothing before the first request.
    pub(crate) fn render(&self, out: &mut String) {
        let seats = lock(&self.seats);
        let mut put = |line: std::fmt::Arguments<'_>| writeln!(out, "apiserver_flowcontrol_{line}").expect("writing to a String");
        for (level, in_use) in seats.usage() {
            put(format_args!("nominal_limit_seats{{priority_level=\"{}\"}} {}", level.name, level.nominal));
            let limit = if level.exempt { level.nominal } else { level.nominal.max(in_use) };
            put(format_args!("current_limit_seats{{priority_level=\"{}\"}} {limit}", level.name));
        }
        for ((level, schema), counts) in &seats.counts {
            let labels = format!("flow_schema=\"{schema}\",priority_level=\"{level}\"");
            put(format_args!("dispatched_requests_total{{{labels}}} {}", counts.dispatched));
            put(format_args!("current_executing_requests{{{labels}}} {}", counts.executing));
            put(format_args!("current_executing_seats{{{labels}}} {}", counts.executing));
            put(format_args!("current_inqueue_requests{{{labels}}} {}", counts.waiting));
            put(format_args!("current_inqueue_seats{{{labels}}} {}", counts.waiting));
            for (count, (_, reason)) in counts.rejected.iter().zip(Rejection::ALL).filter(|(count, _)| **count > 0) {
                put(format_args!("rejected_requests_total{{{labels},reason=\"{reason}\"}} {count}"));
            }
            let all = counts.wait_buckets.last().copied().unwrap_or_default();
            let labels = format!("execute=\"true\",{labels}");
            for (count, bound) in counts.wait_buckets.iter().zip(WAIT_SECONDS) {
                put(format_args!("request_wait_duration_seconds_bucket{{{labels},le=\"{bound}\"}} {count}"));
            }
            put(format_args!("request_wait_duration_seconds_bucket{{{labels},le=\"+Inf\"}} {all}"));
            put(format_args!("request_wait_duration_seconds_sum{{{labels}}} {}", counts.wait_sum));
            put(format_args!("request_wait_duration_seconds_count{{{labels}}} {all}"));
        }
    }
}
