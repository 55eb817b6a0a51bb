//! Claims of devices: made for pods from templates, and free again when no pod uses them any longer.

use crate::kit::{exec, pods};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use sublet_machinery::{Gvr, ObjectExt};
use sublet_runtime::manager::Mapping;
use sublet_runtime::resources::{PODS, RESOURCE_CLAIMS};
use sublet_runtime::{
    Change, ClientError, Controller, Ctx, DeleteOptions, EventKind, Informer, Key, Outcome, Patch, PatchOptions, Reconciler,
};

const TEMPLATES: Gvr = Gvr::new("resource.k8s.io", "v1", "resourceclaimtemplates");
/// Which of the pod's claims this one is for.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// Holds a claim while something is allocated to it.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Pods by the claims and templates that they name, as `claim NAMESPACE/NAME`.
const BY_NAMED: &str = "resource claim";
/// More cannot share a claim.
const RESERVED_MAX: usize = 256;
/// The longest beginning of a generated name.
const PREFIX_MAX: usize = 57;
/// Beside the key of a claim, which is its own, a pod has its namespace after this.
const OF_POD: &str = "pod ";

pub(crate) fn controller() -> Controller {
    Controller::new("resource-claim-controller", Claims)
        .watches(PODS, of_pod)
        .watches(RESOURCE_CLAIMS, |change, mapping| {
            let mut keys: Vec<Key> = change.new.iter().map(|claim| Key::of(claim)).collect();
            keys.extend(pods_naming("claim", change.object(), mapping));
            keys
        })
        .watches(TEMPLATES, |change, mapping| pods_naming("template", change.object(), mapping))
}

/// To be called before the informer runs.
pub(crate) fn index_by_named(informer: &Informer) {
    informer.add_index(BY_NAMED, |pod| {
        let named = pod.array_at("/spec/resourceClaims").iter().flat_map(|entry| {
            let template = entry["resourceClaimTemplateName"].as_str().map(|name| format!("template {}/{name}", pod.namespace()));
            let claim = claim_name(pod, entry).map(|name| format!("claim {}/{name}", pod.namespace()));
            [template, claim].into_iter().flatten()
        });
        named.collect()
    });
}

fn pod_key(pod: &Value) -> Key {
    Key::new(format!("{OF_POD}{}", pod.namespace()), pod.name())
}

fn pods_naming(kind: &str, object: &Value, mapping: &Mapping) -> Vec<Key> {
    let named = mapping.informer(&PODS).by_index(BY_NAMED, &format!("{kind} {}/{}", object.namespace(), object.name()));
    named.iter().map(|pod| pod_key(pod)).collect()
}

fn of_pod(change: &Change, _: &Mapping) -> Vec<Key> {
    let pod = change.object();
    if pod.array_at("/spec/resourceClaims").is_empty() && pod.pointer("/status/extendedResourceClaimStatus").is_none() {
        return Vec::new();
    }
    let mut keys = vec![pod_key(pod)];
    if change.is_delete() || is_done(pod) {
        let extended = pod.str_at("/status/extendedResourceClaimStatus/resourceClaimName");
        let names = pod.array_at("/spec/resourceClaims").iter().filter_map(|entry| claim_name(pod, entry)).chain(extended);
        keys.extend(names.map(|name| Key::new(pod.namespace(), name)));
    }
    keys
}

/// It will not run any more, or never.
fn is_done(pod: &Value) -> bool {
    pods::is_terminal(pod) || (pod.is_deleting() && pods::node(pod).is_empty())
}

/// The claim of an entry: named there, or written down when it was made. `None` also where none is needed.
fn claim_name<'a>(pod: &'a Value, entry: &'a Value) -> Option<&'a str> {
    if let Some(name) = entry["resourceClaimName"].as_str() {
        return Some(name);
    }
    written(pod, entry)?["resourceClaimName"].as_str()
}

fn written<'a>(pod: &'a Value, entry: &Value) -> Option<&'a Value> {
    pod.array_at("/status/resourceClaimStatuses").iter().find(|status| status["name"] == entry["name"])
}

fn is_made_for(claim: &Value, pod: &Value) -> bool {
    claim.namespace() == pod.namespace() && claim.controller_owner().is_some_and(|owner| owner["uid"] == pod.uid())
}

struct Claims;

#[async_trait]
impl Reconciler for Claims {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let result = match key.namespace.strip_prefix(OF_POD) {
            Some(namespace) => match ctx.informer(&PODS).get(namespace, &key.name) {
                Some(pod) if !pod.is_deleting() && !is_done(&pod) => supply(ctx, &pod).await,
                _ => Ok(Outcome::Done),
            },
            None => match ctx.informer(&RESOURCE_CLAIMS).get_key(key) {
                Some(claim) => release(ctx, claim).await.map(|()| Outcome::Done),
                None => Ok(Outcome::Done),
            },
        };
        result.unwrap_or_else(Outcome::from)
    }
}

/// Makes what the pod lacks, writes down what was made, and reserves for a pod that was bound without a scheduler.
async fn supply(ctx: &Ctx, pod: &Value) -> Result<Outcome, ClientError> {
    let mut made = BTreeMap::new();
    for entry in pod.array_at("/spec/resourceClaims") {
        match make(ctx, pod, entry).await {
            Ok(Some(name)) => _ = made.insert(entry["name"].as_str().unwrap_or_default().to_string(), name),
            Ok(None) => {}
            Err(error) if exec::is_namespace_terminating(&error) => return Ok(Outcome::Done),
            Err(error) => {
                let message = format!("PodResourceClaim {}: {error}", entry["name"].as_str().unwrap_or_default());
                ctx.events.record(pod, EventKind::Warning, "FailedResourceClaimCreation", &message).await;
                // A template that is missing is waited for.
                return if error.is_not_found() { Ok(Outcome::Stuck(message)) } else { Err(error) };
            }
        }
    }
    if !made.is_empty() {
        let before = pod.array_at("/status/resourceClaimStatuses").iter();
        let mut all: BTreeMap<String, String> =
            before.filter_map(|s| Some((s["name"].as_str()?.to_string(), s["resourceClaimName"].as_str()?.to_string()))).collect();
        all.extend(made);
        let statuses: Vec<Value> = all.iter().map(|(name, claim)| json!({"name": name, "resourceClaimName": claim})).collect();
        let patch = Patch::Apply(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name(), "namespace": pod.namespace(), "uid": pod.uid()},
            "status": {"resourceClaimStatuses": statuses},
        }));
        let options = PatchOptions { field_manager: "ResourceClaimController".into(), force: true, ..PatchOptions::default() };
        ctx.client.patch(&PODS, pod.namespace(), pod.name(), "status", &patch, &options).await?;
        // The pod comes again with what was written.
        return Ok(Outcome::Done);
    }
    if !pods::node(pod).is_empty() {
        reserve(ctx, pod).await?;
    }
    Ok(Outcome::Done)
}

/// The name of the claim of an entry, when it is to be written down.
async fn make(ctx: &Ctx, pod: &Value, entry: &Value) -> Result<Option<String>, ClientError> {
    let Some(template_name) = entry["resourceClaimTemplateName"].as_str() else { return Ok(None) };
    let claims = ctx.informer(&RESOURCE_CLAIMS);
    if let Some(status) = written(pod, entry) {
        let Some(name) = status["resourceClaimName"].as_str() else { return Ok(None) };
        if claims.get(pod.namespace(), name).is_some_and(|claim| is_made_for(&claim, pod)) {
            return Ok(None);
        }
    }
    let mut own = claims.owned_by(pod.uid()).into_iter();
    if let Some(claim) = own.find(|claim| is_made_for(claim, pod) && claim.annotation(POD_CLAIM) == entry["name"].as_str()) {
        return Ok(Some(claim.name().to_string()));
    }
    let template = match ctx.informer(&TEMPLATES).get(pod.namespace(), template_name) {
        Some(template) => template,
        None => Arc::new(ctx.client.get(&TEMPLATES, pod.namespace(), template_name).await?),
    };
    let made = exec::create(ctx, &RESOURCE_CLAIMS, &from_template(pod, entry, &template)).await?;
    Ok(Some(made.name().to_string()))
}

fn from_template(pod: &Value, entry: &Value, template: &Value) -> Value {
    let name = entry["name"].as_str().unwrap_or_default();
    let mut claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": template["spec"]["spec"],
        "metadata": {
            "generateName": prefix(pod.name(), name), "namespace": pod.namespace(),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod.name(), "uid": pod.uid(), "controller": true}],
        },
    });
    for key in ["labels", "annotations"] {
        if let Some(value) = template["spec"]["metadata"].get(key) {
            claim["metadata"][key] = value.clone();
        }
    }
    claim.set_annotation(POD_CLAIM, name);
    claim
}

/// The beginning of a generated name, in which both names are cut by the same part.
fn prefix(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= PREFIX_MAX {
        return whole;
    }
    // Names are ASCII.
    let cut = |name: &str| name[..name.len() * PREFIX_MAX / whole.len()].to_string();
    format!("{}-{}", cut(pod), cut(claim))
}

async fn reserve(ctx: &Ctx, pod: &Value) -> Result<(), ClientError> {
    for entry in pod.array_at("/spec/resourceClaims") {
        let claim = claim_name(pod, entry).and_then(|name| ctx.informer(&RESOURCE_CLAIMS).get(pod.namespace(), name));
        let Some(claim) = claim else { continue };
        let reserved = claim.array_at("/status/reservedFor");
        let is_allocated = claim.pointer("/status/allocation").is_some_and(Value::is_object);
        let is_foreign = entry["resourceClaimName"].is_null() && !is_made_for(&claim, pod);
        if !is_allocated || is_foreign || reserved.len() >= RESERVED_MAX || reserved.iter().any(|r| r["uid"] == pod.uid()) {
            continue;
        }
        let mut changed = (*claim).clone();
        let mut reserved = reserved.to_vec();
        reserved.push(json!({"resource": "pods", "name": pod.name(), "uid": pod.uid()}));
        changed["status"]["reservedFor"] = json!(reserved);
        exec::update_status(ctx, &RESOURCE_CLAIMS, &changed).await?;
    }
    Ok(())
}

/// Takes out the pods that use the claim no longer. The last one frees what was allocated, and a claim that was made
/// for a pod goes with its work.
async fn release(ctx: &Ctx, claim: Arc<Value>) -> Result<(), ClientError> {
    let before = claim.array_at("/status/reservedFor");
    let mut remaining = Vec::new();
    for consumer in before {
        if uses(ctx, &claim, consumer).await? {
            remaining.push(consumer.clone());
        }
    }
    let mut claim = claim.clone();
    let is_protected = claim.has_finalizer(FINALIZER);
    let is_allocated = claim.pointer("/status/allocation").is_some_and(Value::is_object);
    let lets_go = remaining.len() < before.len();
    let frees = remaining.is_empty() && is_protected && (lets_go || claim.is_deleting());
    if lets_go || (frees && is_allocated) {
        let mut changed = (*claim).clone();
        changed["status"]["reservedFor"] = json!(remaining);
        if remaining.is_empty() {
            changed.remove_at("/status/reservedFor");
        }
        if frees {
            changed.remove_at("/status/allocation");
        }
        claim = Arc::new(exec::update_status(ctx, &RESOURCE_CLAIMS, &changed).await?);
    }
    if frees {
        exec::remove_finalizer(ctx, &RESOURCE_CLAIMS, &claim, FINALIZER).await?;
    }
    let owner = claim.controller_owner().filter(|owner| owner["kind"] == "Pod" && owner["apiVersion"] == "v1");
    let Some(owner) = owner.filter(|_| remaining.is_empty() && !claim.is_deleting()) else { return Ok(()) };
    // One that is not known, or not yet, is the garbage collector's.
    match ctx.informer(&PODS).get(claim.namespace(), owner["name"].as_str().unwrap_or_default()) {
        Some(pod) if pod.uid() != owner["uid"] || is_done(&pod) => {
            exec::delete(ctx, &RESOURCE_CLAIMS, &claim, DeleteOptions::default()).await
        }
        _ => Ok(()),
    }
}

/// Whoever is no pod is taken to use it.
async fn uses(ctx: &Ctx, claim: &Value, consumer: &Value) -> Result<bool, ClientError> {
    if consumer["resource"] != "pods" || consumer.str_at("/apiGroup").is_some_and(|group| !group.is_empty()) {
        return Ok(true);
    }
    let name = consumer["name"].as_str().unwrap_or_default();
    if let Some(pod) = ctx.informer(&PODS).get(claim.namespace(), name) {
        return Ok(pod.uid() == consumer["uid"] && !is_done(&pod));
    }
    // A scheduler may have seen the pod before we did.
    let live = ctx.client.get_opt(&PODS, claim.namespace(), name).await?;
    Ok(live.is_some_and(|pod| pod.uid() == consumer["uid"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_claims_tell_pod_and_entry() {
        assert_eq!(prefix("web", "gpu"), "web-gpu-");
        let long = prefix(&"p".repeat(60), &"c".repeat(60));
        assert_eq!(long, format!("{}-{}", "p".repeat(28), "c".repeat(28)));
    }

    #[test]
    fn a_claim_is_made_in_the_image_of_its_template() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "n", "uid": "u"}});
        let template = json!({"spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": []}}}});
        let claim = from_template(&pod, &json!({"name": "gpu"}), &template);
        assert_eq!((claim.label("a"), claim.annotation(POD_CLAIM)), (Some("b"), Some("gpu")));
        assert_eq!(claim["spec"], json!({"devices": {"requests": []}}));
        assert!(is_made_for(&claim, &pod) && !is_made_for(&claim, &json!({"metadata": {"namespace": "n", "uid": "other"}})));
    }

    #[test]
    fn claims_are_found_by_name_or_by_what_was_written() {
        let pod = json!({"status": {"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "web-b-x"}, {"name": "c"}]}});
        let name = |entry: Value| claim_name(&pod, &entry).map(str::to_string);
        assert_eq!(name(json!({"name": "a", "resourceClaimName": "mine"})).as_deref(), Some("mine"));
        assert_eq!(name(json!({"name": "b", "resourceClaimTemplateName": "t"})).as_deref(), Some("web-b-x"));
        assert_eq!(name(json!({"name": "c", "resourceClaimTemplateName": "t"})), None);
    }

    #[test]
    fn pods_are_done_when_they_will_not_run() {
        let pod = |phase: &str, node: &str, deleting: bool| {
            let mut pod = json!({"spec": {"nodeName": node}, "status": {"phase": phase}});
            if deleting {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            is_done(&pod)
        };
        assert!(pod("Succeeded", "n", false) && pod("Failed", "n", true) && pod("Pending", "", true));
        assert!(!pod("Running", "n", true) && !pod("Pending", "", false));
    }
}
