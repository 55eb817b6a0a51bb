//! Takes a deleted tenant's copies off the host. Needs no syncer, no tenant and no local copies.

use crate::resources::TO_HOST;
use crate::translate::TenantIdentity;
use std::collections::BTreeMap;
use sublet_api::marks;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::{Client, ClientError, DeleteOptions, ListOptions};

const PAGE_ITEMS: u32 = 500;

/// What is still there, and what holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// Objects by plural resource name.
    pub counts: BTreeMap<String, usize>,
    /// Finalizers that are waited for, each with one of its objects.
    pub finalizers: BTreeMap<String, String>,
}

impl Leftover {
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// For a condition: `2 pods, 1 persistentvolumeclaims (finalizer kubernetes.io/pvc-protection on ...)`.
    pub fn message(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let held: Vec<String> = self.finalizers.iter().map(|(finalizer, name)| format!("finalizer {finalizer} on {name}")).collect();
        if held.is_empty() { counts.join(", ") } else { format!("{} ({})", counts.join(", "), held.join(", ")) }
    }
}

/// Asks for the deletion of every copy of the tenant in its host namespace, and says what is left.
/// Safe to repeat until nothing is; claims stay where `keep_volumes`.
pub async fn remove_copies(
    host: &Client,
    host_namespace: &str,
    tenant: &TenantIdentity,
    keep_volumes: bool,
) -> Result<Leftover, ClientError> {
    let mut left = Leftover::default();
    // Pods first: what they use is held for them.
    for kind in TO_HOST.iter().rev() {
        if keep_volumes && kind.resource == "persistentvolumeclaims" {
            continue;
        }
        remove_kind(host, &kind.gvr(), host_namespace, &tenant.uid, &mut left).await?;
    }
    Ok(left)
}

async fn remove_kind(host: &Client, gvr: &Gvr, namespace: &str, uid: &str, left: &mut Leftover) -> Result<(), ClientError> {
    let selector = format!("{}={},{}={uid}", marks::MANAGED_BY, marks::MANAGER, marks::VIRTUAL_CLUSTER_UID);
    let mut options = ListOptions { label_selector: selector, limit: Some(PAGE_ITEMS), ..ListOptions::default() };
    loop {
        let page = match host.list(gvr, namespace, &options).await {
            Err(error) if error.is_not_found() => return Ok(()),
            other => other?,
        };
        for object in &page.items {
            if !object.is_deleting() {
                let delete = DeleteOptions::background().uid(object.uid());
                match host.delete_if_exists(gvr, object.namespace(), object.name(), &delete).await {
                    Err(error) if error.is_conflict() => {}
                    other => other?,
                }
            }
            *left.counts.entry(gvr.resource.to_string()).or_default() += 1;
            if let Some(finalizer) = object.finalizers().first() {
                left.finalizers.entry((*finalizer).to_string()).or_insert_with(|| object.name().to_string());
            }
        }
        if page.continue_token.is_empty() {
            return Ok(());
        }
        options.continue_token = page.continue_token;
    }
}
