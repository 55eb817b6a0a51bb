//! Migrations of stored objects: each object of a resource is written once more, as it is, so that the store holds it in the
//! version that its definition stores now.
//!
//! Of the migrations of one resource one is active at a time, the oldest first. Its definition, when it has one, says so, and
//! names in the end the only version that is still stored.

mod definition;
mod objects;

use crate::kit::{conditions, discovery, exec, time};
use async_trait::async_trait;
use discovery::ApiResource;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::manager::Mapping;
use sublet_runtime::{Change, ClientError, Controller, Ctx, Key, Outcome, Reconciler};

const MIGRATIONS: Gvr = Gvr::new("storagemigration.k8s.io", "v1", "storageversionmigrations");

const RUNNING: &str = "Running";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";
/// What a resource must be able to do.
const VERBS: [&str; 3] = ["update", "patch", "list"];
/// A resource may be younger than what we know of: a migration waits this long for it.
const PATIENCE: Duration = Duration::from_secs(60);
const ASK_AGAIN: Duration = Duration::from_secs(10);

pub(crate) fn controller() -> Controller {
    Controller::new("storage-version-migrator-controller", Migrations).watches(MIGRATIONS, of_same_resource)
}

/// The end of one migration is the beginning of another.
fn of_same_resource(change: &Change, mapping: &Mapping) -> Vec<Key> {
    let about = resource_of(change.object());
    let others = mapping.informer(&MIGRATIONS).list(None);
    let waiting = others.iter().filter(|other| resource_of(other) == about && !is_over(other));
    std::iter::once(change.key()).chain(waiting.map(|other| Key::of(other)).filter(|key| *key != change.key())).collect()
}

fn resource_of(migration: &Value) -> (&str, &str) {
    (migration.str_at("/spec/resource/group").unwrap_or_default(), migration.str_at("/spec/resource/resource").unwrap_or_default())
}

fn is_over(migration: &Value) -> bool {
    [SUCCEEDED, FAILED].iter().any(|kind| conditions::is_true(&migration["status"], kind))
}

fn is_running(migration: &Value) -> bool {
    conditions::is_true(&migration["status"], RUNNING)
}

/// The migration of a resource that is to be active: the one that is, or the oldest that waits.
fn turn<'a>(of_resource: impl Iterator<Item = &'a Arc<Value>>) -> Option<&'a Arc<Value>> {
    let age = |migration: &Value| (!is_running(migration), migration.str_at("/metadata/creationTimestamp").map(str::to_string));
    of_resource.filter(|migration| !is_over(migration)).min_by_key(|migration| (age(migration), migration.name().to_string()))
}

struct Migrations;

#[async_trait]
impl Reconciler for Migrations {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let Some(migration) = ctx.informer(&MIGRATIONS).get_key(key) else { return Outcome::Done };
        match advance(ctx, &migration).await {
            Ok(outcome) => outcome,
            // Whoever was faster has queued it again.
            Err(error) if error.is_conflict() || error.is_not_found() => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}

/// One step; what it writes leads to the next one.
async fn advance(ctx: &Ctx, migration: &Value) -> Result<Outcome, ClientError> {
    if is_over(migration) {
        return if is_running(migration) { settle(ctx, migration).await } else { Ok(Outcome::Done) };
    }
    if !is_running(migration) {
        let all = ctx.informer(&MIGRATIONS).list(None);
        let is_next = turn(all.iter().filter(|m| resource_of(m) == resource_of(migration))).is_some_and(|m| m.uid() == migration.uid());
        return if is_next { begin(ctx, migration).await } else { Ok(Outcome::Done) };
    }
    let (group, resource) = resource_of(migration);
    let found =
        discovery::discover(&ctx.client).await?.resources.into_iter().find(|r| *r.gvr.group == *group && *r.gvr.resource == *resource);
    let Some(found) = found else {
        let is_young = time::created(migration).is_some_and(|at| time::seconds_between(at, ctx.clock.now()) < PATIENCE.as_secs_f64());
        return if is_young { Ok(Outcome::After(ASK_AGAIN)) } else { fail(ctx, migration, "resource does not exist in discovery").await };
    };
    if migration.str_at("/status/resourceVersion").is_none_or(str::is_empty) {
        remember_version(ctx, migration, &found).await
    } else {
        objects::migrate(ctx, migration, &found).await
    }
}

async fn begin(ctx: &Ctx, migration: &Value) -> Result<Outcome, ClientError> {
    definition::begins(ctx, resource_of(migration), migration.name()).await?;
    let mut status = migration["status"].clone();
    set(ctx, &mut status, RUNNING, true, "MigrationRunning", "The migration is running");
    exec::put_status(ctx, &MIGRATIONS, migration, status).await.map(|()| Outcome::Done)
}

async fn settle(ctx: &Ctx, migration: &Value) -> Result<Outcome, ClientError> {
    definition::ends(ctx, resource_of(migration), conditions::is_true(&migration["status"], SUCCEEDED)).await?;
    let mut status = migration["status"].clone();
    set(ctx, &mut status, RUNNING, false, "MigrationCompleted", "Migration completed");
    exec::put_status(ctx, &MIGRATIONS, migration, status).await.map(|()| Outcome::Done)
}

/// What was written after this version needs no migration.
async fn remember_version(ctx: &Ctx, migration: &Value, resource: &ApiResource) -> Result<Outcome, ClientError> {
    if !VERBS.iter().all(|verb| resource.has_verb(verb)) {
        let why = format!("resource {:?} does not support discovery operations: {VERBS:?}", resource.gvr.to_string());
        return fail(ctx, migration, &why).await;
    }
    let mut status = migration["status"].clone();
    status["resourceVersion"] = objects::latest_version(ctx, resource).await?.into();
    exec::put_status(ctx, &MIGRATIONS, migration, status).await.map(|()| Outcome::Done)
}

async fn fail(ctx: &Ctx, migration: &Value, why: &str) -> Result<Outcome, ClientError> {
    let mut status = migration["status"].clone();
    set(ctx, &mut status, FAILED, true, "StorageVersionMigrationFailed", why);
    exec::put_status(ctx, &MIGRATIONS, migration, status).await.map(|()| Outcome::Done)
}

fn set(ctx: &Ctx, status: &mut Value, kind: &str, is_true: bool, reason: &str, message: &str) {
    conditions::put(status, conditions::new(kind, is_true, reason, message, &ctx.clock.rfc3339()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn migration(name: &str, created: &str, conditions: &[&str]) -> Arc<Value> {
        let conditions: Vec<Value> = conditions.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        Arc::new(json!({"metadata": {"name": name, "creationTimestamp": created}, "status": {"conditions": conditions}}))
    }

    #[test]
    fn one_migration_at_a_time_and_the_oldest_first() {
        let next = |all: &[Arc<Value>]| turn(all.iter()).map(|m| m.name().to_string());
        let (old, older, same) =
            (migration("old", "2026-01-02", &[]), migration("older", "2026-01-01", &[]), migration("new", "2026-01-02", &[]));
        let (over, lost) = (migration("over", "2025-01-01", &[RUNNING, SUCCEEDED]), migration("lost", "2025-01-01", &[FAILED]));
        assert_eq!(next(&[old.clone(), older.clone(), over.clone(), lost.clone()]).as_deref(), Some("older"));
        assert_eq!(next(&[old.clone(), same]).as_deref(), Some("new"));
        let running = migration("running", "2026-01-09", &[RUNNING]);
        assert_eq!(next(&[old, running, older]).as_deref(), Some("running"));
        assert_eq!(next(&[over, lost]), None);
    }
}
