//! The objects of a resource, written once more.

use super::{FAILED, MIGRATIONS, RUNNING, SUCCEEDED, set};
use crate::kit::discovery::ApiResource;
use crate::kit::{exec, metadata};
use serde_json::{Value, json};
use sublet_machinery::{ObjectExt, Reason};
use sublet_runtime::{ClientError, Ctx, Outcome, Patch, PatchOptions};

pub(super) async fn latest_version(ctx: &Ctx, resource: &ApiResource) -> Result<String, ClientError> {
    let page = metadata::list_page(&ctx.client, &resource.gvr, "", "").await?;
    Ok(page.resource_version)
}

/// How many objects there are, and how many of them are still to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    total: usize,
    left: usize,
}

impl Counts {
    fn message(self) -> String {
        match self {
            Self { total: 0, .. } => "The migration is running".into(),
            Self { total, left: 0 } => format!("The migration is running, {total} objects verified migrated"),
            Self { total, left } => format!("The migration is running, {left}/{total} objects not yet migrated"),
        }
    }
}

pub(super) async fn migrate(ctx: &Ctx, migration: &Value, resource: &ApiResource) -> Result<Outcome, ClientError> {
    let until = migration.str_at("/status/resourceVersion").unwrap_or_default();
    let mut counts = Counts::default();
    // Once to count and once to write: of a page nothing is kept.
    let mut token = String::new();
    loop {
        let page = metadata::list_page(&ctx.client, &resource.gvr, "", &token).await?;
        counts.total += page.items.len();
        counts.left += page.items.iter().filter(|object| !is_newer(object.resource_version(), until)).count();
        token = page.continue_token;
        if token.is_empty() {
            break;
        }
    }
    let result = write_all(ctx, resource, until, &mut counts).await;
    let mut status = migration["status"].clone();
    match result {
        Ok(()) => {
            counts.left = 0;
            set(ctx, &mut status, RUNNING, true, "MigrationRunning", &counts.message());
            set(ctx, &mut status, SUCCEEDED, true, "StorageVersionMigrationSucceeded", "Migration completed");
        }
        Err(error) if is_passing(&error) => {
            let message = format!("{}; transient error: {error}", counts.message());
            set(ctx, &mut status, RUNNING, true, "MigrationRunning", &message);
            exec::put_status(ctx, &MIGRATIONS, migration, status).await?;
            return Err(error);
        }
        Err(error) => {
            set(ctx, &mut status, RUNNING, true, "MigrationRunning", &counts.message());
            let Counts { total, left } = counts;
            let why = format!("{left}/{total} not yet migrated. migration encountered unhandled error: {error}");
            set(ctx, &mut status, FAILED, true, "StorageVersionMigrationFailed", &why);
        }
    }
    exec::put_status(ctx, &MIGRATIONS, migration, status).await.map(|()| Outcome::Done)
}

async fn write_all(ctx: &Ctx, resource: &ApiResource, until: &str, counts: &mut Counts) -> Result<(), ClientError> {
    let mut token = String::new();
    loop {
        let page = metadata::list_page(&ctx.client, &resource.gvr, "", &token).await?;
        for object in page.items.iter().filter(|object| !is_newer(object.resource_version(), until)) {
            match write(ctx, resource, object).await {
                // Somebody wrote or deleted it in between: either way the old form is gone.
                Err(error) if !error.is_conflict() && !error.is_not_found() => return Err(error),
                _ => counts.left = counts.left.saturating_sub(1),
            }
        }
        token = page.continue_token;
        if token.is_empty() {
            return Ok(());
        }
    }
}

/// A patch that changes nothing is written when the store has the object in another version.
async fn write(ctx: &Ctx, resource: &ApiResource, object: &Value) -> Result<(), ClientError> {
    let patch = json!({
        "apiVersion": resource.gvr.api_version(), "kind": resource.kind, "metadata": {"resourceVersion": object.resource_version()},
    });
    let (gvr, options) = (&resource.gvr, PatchOptions::default());
    ctx.client.patch(gvr, object.namespace(), object.name(), "", &Patch::Merge(patch), &options).await.map(drop)
}

/// Versions rise; one that is no number is compared by nobody, and its object is written.
fn is_newer(version: &str, than: &str) -> bool {
    version.parse::<u64>().ok().zip(than.parse::<u64>().ok()).is_some_and(|(version, than)| version > than)
}

/// The same request may well succeed later.
fn is_passing(error: &ClientError) -> bool {
    match error.api() {
        None => true,
        Some(api) => {
            let reasons =
                [Reason::ServerTimeout, Reason::TooManyRequests, Reason::ServiceUnavailable, Reason::InternalError, Reason::Timeout];
            reasons.contains(&api.reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_older_is_written() {
        assert!(is_newer("10", "9"));
        assert!(!is_newer("9", "9") && !is_newer("8", "10") && !is_newer("x", "1"));
    }

    #[test]
    fn the_state_is_told_in_upstreams_words() {
        let told = |total, left| Counts { total, left }.message();
        assert_eq!(told(0, 0), "The migration is running");
        assert_eq!(told(3, 2), "The migration is running, 2/3 objects not yet migrated");
        assert_eq!(told(3, 0), "The migration is running, 3 objects verified migrated");
    }
}
