//! A `default` service account in every namespace, and those of the controllers in theirs: bindings of the
//! default roles name them, and programs that stand in for a controller act as one.

use crate::kit::exec;
use async_trait::async_trait;
use serde_json::json;
use sublet_machinery::ObjectExt;
use sublet_runtime::manager::map;
use sublet_runtime::resources::{NAMESPACES, SERVICE_ACCOUNTS};
use sublet_runtime::{ClientError, Controller, Ctx, Key, Outcome, Reconciler};

const NAME: &str = "default";
const CONTROLLERS_NAMESPACE: &str = "kube-system";
/// Those that a controller manager of 1.37 has.
const CONTROLLERS: &[&str] = &[
    "attachdetach-controller",
    "certificate-controller",
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemon-set-controller",
    "deployment-controller",
    "device-taint-eviction-controller",
    "disruption-controller",
    "endpoint-controller",
    "endpointslice-controller",
    "endpointslicemirroring-controller",
    "ephemeral-volume-controller",
    "expand-controller",
    "generic-garbage-collector",
    "horizontal-pod-autoscaler",
    "job-controller",
    "kube-apiserver-serving-clustertrustbundle-publisher",
    "legacy-service-account-token-cleaner",
    "namespace-controller",
    "node-controller",
    "persistent-volume-binder",
    "pod-garbage-collector",
    "podcertificaterequestcleaner",
    "pv-protection-controller",
    "pvc-protection-controller",
    "replicaset-controller",
    "replication-controller",
    "resource-claim-controller",
    "resourcequota-controller",
    "root-ca-cert-publisher",
    "service-account-controller",
    "service-cidrs-controller",
    "statefulset-controller",
    "storage-version-migrator-controller",
    "ttl-after-finished-controller",
    "ttl-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
];

/// The accounts that a namespace has without anybody making them.
fn wanted(namespace: &str) -> impl Iterator<Item = &'static str> {
    let controllers = if namespace == CONTROLLERS_NAMESPACE { CONTROLLERS } else { &[] };
    std::iter::once(NAME).chain(controllers.iter().copied())
}

pub(crate) fn controller() -> Controller {
    Controller::new("service-account-controller", ServiceAccounts).watches(NAMESPACES, map::itself).watches(
        SERVICE_ACCOUNTS,
        |change, mapping| {
            if change.is_delete() && wanted(change.object().namespace()).any(|name| name == change.object().name()) {
                map::namespace(change, mapping)
            } else {
                Vec::new()
            }
        },
    )
}

struct ServiceAccounts;

#[async_trait]
impl Reconciler for ServiceAccounts {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        if ctx.informer(&NAMESPACES).get_key(key).is_none_or(|n| n.is_deleting()) {
            return Outcome::Done;
        }
        let accounts = ctx.informer(&SERVICE_ACCOUNTS);
        let missing = wanted(&key.name).filter(|name| accounts.get(&key.name, name).is_none());
        // Together, so that they share commits.
        let made = futures::future::join_all(missing.map(|name| create(ctx, &key.name, name))).await;
        made.into_iter().find_map(Result::err).map_or(Outcome::Done, Outcome::from)
    }
}

async fn create(ctx: &Ctx, namespace: &str, name: &str) -> Result<(), ClientError> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}});
    match exec::create(ctx, &SERVICE_ACCOUNTS, &account).await {
        Err(error) if !(error.is_already_exists() || exec::is_namespace_terminating(&error) || error.is_not_found()) => Err(error),
        _ => Ok(()),
    }
}
