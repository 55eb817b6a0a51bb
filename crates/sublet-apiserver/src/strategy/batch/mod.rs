//! Jobs and cron jobs.

pub(super) mod cron_job;
pub(super) mod job;
mod policies;
mod rules;
mod schedule;
mod status;
