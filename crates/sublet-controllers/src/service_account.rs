//! A `default` service account in every namespace.

use crate::kit::exec;
use async_trait::async_trait;
use serde_json::json;
use sublet_machinery::ObjectExt;
use sublet_runtime::manager::map;
use sublet_runtime::resources::{NAMESPACES, SERVICE_ACCOUNTS};
use sublet_runtime::{Controller, Ctx, Key, Outcome, Reconciler};

const NAME: &str = "default";

pub(crate) fn controller() -> Controller {
    Controller::new("service-account-controller", ServiceAccounts).watches(NAMESPACES, map::itself).watches(
        SERVICE_ACCOUNTS,
        |change, mapping| {
            if change.is_delete() && change.object().name() == NAME { map::namespace(change, mapping) } else { Vec::new() }
        },
    )
}

struct ServiceAccounts;

#[async_trait]
impl Reconciler for ServiceAccounts {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let namespace = ctx.informer(&NAMESPACES).get_key(key).filter(|n| !n.is_deleting());
        if namespace.is_none() || ctx.informer(&SERVICE_ACCOUNTS).get(&key.name, NAME).is_some() {
            return Outcome::Done;
        }
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": key.name}});
        match exec::create(ctx, &SERVICE_ACCOUNTS, &account).await {
            Ok(_) => Outcome::Done,
            Err(error) if error.is_already_exists() || exec::is_namespace_terminating(&error) || error.is_not_found() => Outcome::Done,
            Err(error) => error.into(),
        }
    }
}
