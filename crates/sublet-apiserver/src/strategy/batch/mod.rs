//! Jobs and cron jobs.

pub(super) mod cron_job;
pub(super) mod job;
