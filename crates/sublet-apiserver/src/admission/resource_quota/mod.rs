//! Resource quotas: what a request adds is booked on the quotas of its namespace before it is committed.

mod decide;
mod usage;

use super::{Attributes, Operation, Plugin};
use crate::reader::Writer;
use async_trait::async_trait;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use sublet_machinery::{ApiError, ObjectExt, Reason};

/// Requests of one namespace book one after the other, so that they do not conflict with each other.
#[derive(Default)]
pub(super) struct ResourceQuota {
    /// Guards the map alone; the locks inside are held across awaits.
    namespaces: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// Conflicts with other writers (the quota controller, other replicas) before the request fails.
const RETRIES_MAX: usize = 10;

/// Locks kept; above this the idle ones are dropped.
const LOCKS_MAX: usize = 1024;

const QUOTAS: &str = "resourcequotas";

#[async_trait]
impl Plugin for ResourceQuota {
    fn name(&self) -> &'static str {
        "ResourceQuota"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        // Events come in numbers and are never counted, reviews are never stored.
        let ignored = attributes.resource.plural == "events"
            || attributes.resource.plural == "bindings"
            || attributes.resource.group.starts_with("auth");
        !attributes.namespace.is_empty()
            && !ignored
            && !attributes.is("namespaces")
            && matches!(attributes.operation, Operation::Create | Operation::Update)
            && usage::handles(attributes)
    }

    async fn validate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let namespace = attributes.namespace.to_string();
        if store.list(QUOTAS, Some(&namespace)).is_empty() {
            return Ok(());
        }
        let lock = self.lock(&namespace);
        let _turn = lock.lock().await;
        let mut only: Option<Vec<String>> = None;
        for attempt in 0.. {
            let quotas: Vec<Arc<Value>> = store.list(QUOTAS, Some(&namespace));
            let quotas = quotas.into_iter().filter(|q| only.as_ref().is_none_or(|names| names.iter().any(|n| n == q.name()))).collect();
            let booked = decide::book(quotas, attributes)?;
            if attributes.dry_run {
                return Ok(());
            }
            let (mut failed, mut last_error) = (Vec::new(), None);
            for quota in booked {
                let name = quota.name().to_string();
                match store.update(QUOTAS, quota).await {
                    Ok(_) => {}
                    Err(error) if error.is(Reason::NotFound) => {}
                    Err(error) => {
                        failed.push(name);
                        last_error = Some(error);
                    }
                }
            }
            match last_error {
                None => break,
                Some(error) if attempt >= RETRIES_MAX => return Err(error),
                Some(_) => only = Some(failed),
            }
        }
        Ok(())
    }
}

impl ResourceQuota {
    fn lock(&self, namespace: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.namespaces.lock().expect("no holder of this lock panics");
        if locks.len() >= LOCKS_MAX {
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        }
        locks.entry(namespace.to_string()).or_default().clone()
    }
}
