//! Deleting everything in a namespace.

use crate::kit::discovery::{self, ApiResource};
use crate::kit::metadata;
use std::collections::BTreeMap;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::resources::PODS;
use sublet_runtime::{ClientError, Ctx, DeleteOptions, ListOptions};

/// What is still there after a pass, and what went wrong in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Remains {
    pub(super) discovery_failures: Vec<String>,
    pub(super) delete_failures: Vec<String>,
    /// Instances by resource.
    pub(super) resources: BTreeMap<Gvr, usize>,
    /// Instances by finalizer.
    pub(super) finalizers: BTreeMap<String, usize>,
}

impl Remains {
    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty() && self.discovery_failures.is_empty() && self.delete_failures.is_empty()
    }

    pub(super) fn waits_for_pods(&self) -> bool {
        self.resources.contains_key(&PODS)
    }
}

/// One pass: asks for the deletion of pods and, when none are left, of everything else.
pub(super) async fn delete_all(ctx: &Ctx, namespace: &str) -> Remains {
    let mut remains = Remains::default();
    let resources = match discovery::discover(&ctx.client).await {
        Ok(found) => {
            remains.discovery_failures = found.failures;
            found.resources
        }
        Err(error) => {
            remains.discovery_failures.push(error.to_string());
            return remains;
        }
    };
    let deletable = |r: &&ApiResource| r.namespaced && r.has_verb("delete") && r.has_verb("list");
    let (pods, others): (Vec<_>, Vec<_>) = resources.iter().filter(deletable).partition(|r| r.gvr == PODS);
    for stage in [pods, others] {
        for resource in stage {
            if let Err(error) = delete_resource(ctx, resource, namespace, &mut remains).await {
                remains.delete_failures.push(error.to_string());
            }
        }
        if remains.waits_for_pods() {
            break;
        }
    }
    remains
}

/// Deletes the objects of one resource and counts those that stay.
async fn delete_resource(ctx: &Ctx, resource: &ApiResource, namespace: &str, remains: &mut Remains) -> Result<(), ClientError> {
    let gvr = &resource.gvr;
    let before = match metadata::list(&ctx.client, gvr, namespace).await {
        Ok(items) => items,
        // Discovery may be older than the resource's end, and may name resources without verbs.
        Err(error) if is_unsupported(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    if before.is_empty() {
        return Ok(());
    }
    let options = DeleteOptions::background();
    let collection = if resource.has_verb("deletecollection") {
        ctx.client.delete_collection(gvr, namespace, &ListOptions::default(), &options).await.map(|_| ())
    } else {
        delete_each(ctx, gvr, namespace, &before).await
    };
    match collection {
        Err(error) if !is_unsupported(&error) => return Err(error),
        _ => {}
    }
    for item in metadata::list(&ctx.client, gvr, namespace).await? {
        *remains.resources.entry(gvr.clone()).or_default() += 1;
        for finalizer in item.finalizers() {
            *remains.finalizers.entry(finalizer.to_string()).or_default() += 1;
        }
    }
    Ok(())
}

async fn delete_each(ctx: &Ctx, gvr: &Gvr, namespace: &str, items: &[serde_json::Value]) -> Result<(), ClientError> {
    for item in items {
        ctx.client.delete_if_exists(gvr, namespace, item.name(), &DeleteOptions::background()).await?;
    }
    Ok(())
}

fn is_unsupported(error: &ClientError) -> bool {
    error.api().is_some_and(|e| matches!(e.code, 404 | 405))
}
