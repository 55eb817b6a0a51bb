//! Whether the quotas of a namespace take a request, and what they hold afterwards.

use super::super::{Attributes, Operation};
use super::usage;
use crate::strategy::quantities::{ResourceList, add_list, read_list};
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::{ApiError, ObjectExt, Quantity};

/// The quotas whose usage changes, with the new usage in their status; or the refusal.
pub(super) fn book(quotas: Vec<Arc<Value>>, attributes: &Attributes<'_>) -> Result<Vec<Value>, ApiError> {
    let Some(object) = &attributes.object else { return Ok(Vec::new()) };
    let resource = attributes.resource.group_resource();
    let mut interested = Vec::new();
    for quota in quotas {
        let hard = read_list(&quota["status"]["hard"]);
        let restricted = usage::matching(&resource, hard.keys());
        if restricted.is_empty() || !usage::in_scopes(&resource, &quota, object) {
            continue;
        }
        if let Some(why) = usage::constraint_error(&resource, &restricted, object) {
            return Err(attributes.forbidden(format_args!("failed quota: {}: {why}", quota.name())));
        }
        let used = read_list(&quota["status"]["used"]);
        if restricted.iter().any(|name| !used.contains_key(name)) {
            let names = restricted.join(",");
            return Err(attributes.forbidden(format_args!("status unknown for quota: {}, resources: {names}", quota.name())));
        }
        interested.push((quota, hard, used));
    }
    if interested.is_empty() {
        return Ok(Vec::new());
    }
    let wanted = usage::of(&resource, object);
    let negative: Vec<&str> = wanted.iter().filter(|(_, q)| q.sign() < 0).map(|(name, _)| name.as_str()).collect();
    if !negative.is_empty() {
        return Err(attributes.forbidden(format_args!("quota usage is negative for resource(s): {}", negative.join(","))));
    }
    let mut booked = Vec::new();
    for (quota, hard, used) in interested {
        let mut added = wanted.clone();
        if attributes.operation == Operation::Update
            && let Some(old) = &attributes.old
            && usage::in_scopes(&resource, &quota, old)
        {
            added = more(added, &usage::of(&resource, old));
        }
        added.retain(|name, quantity| !quantity.is_zero() && hard.contains_key(name));
        if added.is_empty() {
            continue;
        }
        let mut total = used.clone();
        add_list(&mut total, &added);
        let exceeded: Vec<&String> = added.keys().filter(|name| total[*name] > hard[*name]).collect();
        if !exceeded.is_empty() && attributes.subresource != "status" {
            let shown = |list: &ResourceList| {
                let parts: Vec<String> = exceeded.iter().map(|n| format!("{n}={}", list.get(*n).unwrap_or(&Quantity::default()))).collect();
                parts.join(",")
            };
            return Err(attributes.forbidden(format_args!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                quota.name(),
                shown(&added),
                shown(&used),
                shown(&hard)
            )));
        }
        let mut quota = Value::clone(&quota);
        for (name, quantity) in total {
            quota["status"]["used"][name.as_str()] = json!(quantity.to_string());
        }
        booked.push(quota);
    }
    Ok(booked)
}

/// What is wanted beyond what there was; nothing is given back here, the quota controller does that.
fn more(wanted: ResourceList, before: &ResourceList) -> ResourceList {
    wanted
        .into_iter()
        .map(|(name, mut quantity)| {
            if let Some(old) = before.get(&name) {
                quantity.sub(old);
            }
            let grown = if quantity.sign() > 0 { quantity } else { Quantity::default() };
            (name, grown)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{Request, store};
    use super::super::ResourceQuota;
    use super::*;
    use crate::reader::Writer;

    fn quota(hard: Value, used: Value, scopes: Value) -> Arc<dyn Writer> {
        store(&[(
            "resourcequotas",
            json!({"metadata": {"name": "q", "namespace": "n"}, "spec": {"scopes": scopes}, "status": {"hard": hard, "used": used}}),
        )])
    }

    fn pod(cpu: &str) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
    }

    fn used(store: &Arc<dyn Writer>) -> Value {
        store.get("resourcequotas", "n", "q").expect("there")["status"]["used"].clone()
    }

    #[tokio::test]
    async fn a_request_is_booked() {
        let store = quota(json!({"pods": "2", "requests.cpu": "2"}), json!({"pods": "1", "requests.cpu": "500m"}), json!([]));
        Request::create("pods", "n", pod("1")).validate(&ResourceQuota::default(), &store).await.expect("fits");
        assert_eq!(used(&store), json!({"pods": "2", "requests.cpu": "1500m"}));
        let mut dry = Request::create("configmaps", "n", json!({"metadata": {"name": "c"}}));
        dry.dry_run = true;
        dry.validate(&ResourceQuota::default(), &store).await.expect("not counted");
    }

    #[tokio::test]
    async fn too_much_is_refused_with_the_numbers() {
        let store = quota(json!({"requests.cpu": "2", "pods": "5"}), json!({"requests.cpu": "1500m", "pods": "1"}), json!([]));
        let error = Request::create("pods", "n", pod("1")).validate(&ResourceQuota::default(), &store).await.expect_err("too much");
        assert_eq!(
            error.message,
            "pods \"p\" is forbidden: exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=1500m, limited: requests.cpu=2"
        );
        assert_eq!(used(&store)["pods"], "1");
    }

    #[tokio::test]
    async fn what_is_limited_must_be_stated() {
        let store =
            quota(json!({"limits.cpu": "2", "requests.memory": "1Gi"}), json!({"limits.cpu": "0", "requests.memory": "0"}), json!([]));
        let error = Request::create("pods", "n", pod("1")).validate(&ResourceQuota::default(), &store).await.expect_err("unstated");
        assert_eq!(error.message, "pods \"p\" is forbidden: failed quota: q: must specify limits.cpu for: c; requests.memory for: c");
        let store = quota(json!({"pods": "2"}), json!({}), json!([]));
        let error = Request::create("pods", "n", pod("1")).validate(&ResourceQuota::default(), &store).await.expect_err("no usage yet");
        assert!(error.message.ends_with("status unknown for quota: q, resources: pods"));
    }

    #[tokio::test]
    async fn scopes_choose_the_pods() {
        let store = quota(json!({"pods": "0"}), json!({"pods": "0"}), json!(["Terminating"]));
        assert!(Request::create("pods", "n", pod("1")).validate(&ResourceQuota::default(), &store).await.is_ok());
        let mut ending = pod("1");
        ending["spec"]["activeDeadlineSeconds"] = json!(5);
        assert!(Request::create("pods", "n", ending).validate(&ResourceQuota::default(), &store).await.is_err());
    }

    #[tokio::test]
    async fn updates_count_only_what_they_add() {
        let claim = |size: &str| json!({"metadata": {"name": "c"}, "spec": {"storageClassName": "s", "resources": {"requests": {"storage": size}}}});
        let name = "s.storageclass.storage.k8s.io/requests.storage";
        let store = quota(json!({name: "3Gi"}), json!({name: "1Gi"}), json!([]));
        let update = Request::update("persistentvolumeclaims", "n", claim("3Gi"), claim("1Gi"));
        update.validate(&ResourceQuota::default(), &store).await.expect("fits");
        assert_eq!(used(&store)[name], "3Gi");
        let service = |kind: &str| json!({"metadata": {"name": "s"}, "spec": {"type": kind, "ports": [{}, {}]}});
        let quota = quota(json!({"services.nodeports": "1"}), json!({"services.nodeports": "0"}), json!([]));
        let error =
            Request::update("services", "n", service("NodePort"), service("ClusterIP")).validate(&ResourceQuota::default(), &quota).await;
        assert!(
            error
                .expect_err("too many")
                .message
                .contains("requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1")
        );
    }
}
