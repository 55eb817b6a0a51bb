//! The operator's own Secrets, watched in the namespaces of virtual clusters and nowhere else: a watch of
//! all Secrets would need the right to read all of them.

use crate::StepError;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sublet_api::marks;
use sublet_machinery::ObjectExt;
use sublet_runtime::resources::SECRETS;
use sublet_runtime::{Change, Ctx, Informer, Key, Scope};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long a step waits for the first look; the rights for it may be a moment old.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// One watch for each namespace that holds a virtual cluster.
#[derive(Default)]
pub struct OwnSecrets {
    /// Guards the watches by namespace; held for map moves only.
    watches: Mutex<HashMap<String, Watch>>,
}

struct Watch {
    informer: Arc<Informer>,
    /// The watch ends when this entry goes.
    _cancel: DropGuard,
}

impl OwnSecrets {
    /// The Secrets of the namespace, complete. Changes of them queue their cluster.
    pub async fn of(&self, ctx: &Ctx, namespace: &str) -> Result<Arc<Informer>, StepError> {
        let informer = {
            let mut watches = self.watches.lock().expect("no holder of this lock panics");
            let watch = watches.entry(namespace.to_string()).or_insert_with(|| start(ctx, namespace));
            watch.informer.clone()
        };
        match tokio::time::timeout(FIRST_LOOK, informer.wait_synced()).await {
            Ok(()) => Ok(informer),
            Err(_) => {
                let message = format!("Secrets in namespace `{namespace}` cannot be read yet");
                Err(StepError::Waiting { reason: "ReadingSecrets", message })
            }
        }
    }

    pub fn forget(&self, namespace: &str) {
        self.watches.lock().expect("no holder of this lock panics").remove(namespace);
    }
}

fn start(ctx: &Ctx, namespace: &str) -> Watch {
    let label_selector = format!("app.kubernetes.io/managed-by={},{}", marks::MANAGER, marks::VIRTUAL_CLUSTER);
    let scope = Scope { namespace: namespace.to_string(), label_selector, field_selector: String::new() };
    let informer = Informer::new(SECRETS, scope);
    let queue = ctx.queue().clone();
    informer.on_change(move |change| {
        if let Some(key) = owning_cluster(change) {
            queue.add(key);
        }
    });
    let cancel = CancellationToken::new();
    tokio::spawn(informer.clone().run(ctx.client.clone(), cancel.clone()));
    Watch { informer, _cancel: cancel.drop_guard() }
}

fn owning_cluster(change: &Change) -> Option<Key> {
    let object = change.object();
    let owner = object.controller_owner().filter(|o| o["kind"] == "VirtualCluster")?;
    Some(Key::new(object.namespace(), owner["name"].as_str().unwrap_or_default()))
}
