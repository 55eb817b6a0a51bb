//! Every pod runs as a service account, whose token it finds in a projected volume.

use super::util::list_mut;
use super::{Attributes, Operation, Plugin};
use crate::reader::Writer;
use crate::strategy::edit::{ensure, is_zero, items};
use async_trait::async_trait;
use rand::Rng;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use sublet_machinery::{ApiError, ObjectExt};

pub(super) struct ServiceAccount;

const MIRROR: &str = "kubernetes.io/config.mirror";
const MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";

/// Longer than an hour, so that clients that never reload their token can be told apart by its age.
const TOKEN_SECONDS: i64 = 3607;

/// A namespace may be younger than its default account.
const DEFAULT_ATTEMPTS_MAX: usize = 10;
const ATTEMPT_WAIT: Duration = Duration::from_millis(100);

#[async_trait]
impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.is("pods")
            && matches!(
                (attributes.operation, attributes.subresource),
                (Operation::Create, "") | (Operation::Update, "ephemeralcontainers")
            )
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        if attributes.operation != Operation::Create {
            return Ok(());
        }
        let Some(pod) = attributes.object.as_mut() else { return Ok(()) };
        if pod.annotation(MIRROR).is_some() {
            return Ok(());
        }
        let spec = ensure(pod, "spec");
        let name = ["serviceAccountName", "serviceAccount"].iter().find_map(|key| spec[*key].as_str().filter(|n| !n.is_empty()));
        let name = name.unwrap_or("default").to_string();
        spec["serviceAccountName"] = json!(name);
        spec["serviceAccount"] = json!(name);
        let account = find(attributes, store, &name).await?;
        let Some(pod) = attributes.object.as_mut() else { return Ok(()) };
        let spec = ensure(pod, "spec");
        let automount = spec["automountServiceAccountToken"].as_bool().or(account["automountServiceAccountToken"].as_bool());
        if automount.unwrap_or(true) {
            mount_token(spec);
        }
        if is_zero(&spec["imagePullSecrets"]) && !is_zero(&account["imagePullSecrets"]) {
            let names: Vec<Value> = account.array_at("/imagePullSecrets").iter().map(|s| json!({"name": s["name"]})).collect();
            spec["imagePullSecrets"] = json!(names);
        }
        Ok(())
    }

    async fn validate(&self, attributes: &mut Attributes<'_>, store: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let Some(pod) = &attributes.object else { return Ok(()) };
        if attributes.operation == Operation::Create && pod.annotation(MIRROR).is_some() {
            return mirror_error(pod).map_or(Ok(()), |why| Err(attributes.forbidden(why)));
        }
        let name = pod.str_at("/spec/serviceAccountName").unwrap_or_default().to_string();
        if name.is_empty() {
            let why = format!("no service account specified for pod {}/{}", attributes.namespace, pod.name());
            return Err(attributes.forbidden(why));
        }
        let account = find(attributes, store, &name).await?;
        let enforced = account.annotation(MOUNTABLE_SECRETS).is_some_and(|v| matches!(v, "1" | "t" | "T" | "true" | "TRUE" | "True"));
        match &attributes.object {
            Some(pod) if enforced => {
                let create = attributes.operation == Operation::Create;
                secret_error(pod, &account, create).map_or(Ok(()), |why| Err(attributes.forbidden(why)))
            }
            _ => Ok(()),
        }
    }
}

async fn find(attributes: &Attributes<'_>, store: &Arc<dyn Writer>, name: &str) -> Result<Arc<Value>, ApiError> {
    let attempts = if name == "default" { DEFAULT_ATTEMPTS_MAX } else { 1 };
    for attempt in 0..attempts {
        if attempt > 0 {
            tokio::time::sleep(ATTEMPT_WAIT).await;
        }
        if let Some(account) = store.get("serviceaccounts", attributes.namespace, name) {
            return Ok(account);
        }
    }
    let why = format!("error looking up service account {}/{name}: serviceaccount \"{name}\" not found", attributes.namespace);
    Err(attributes.forbidden(why))
}

fn mount_token(spec: &mut Value) {
    let volumes = spec["volumes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let existing = volumes.iter().find_map(|v| v["name"].as_str().filter(|n| n.starts_with(VOLUME_PREFIX))).map(str::to_string);
    let name = existing.clone().unwrap_or_else(|| format!("{VOLUME_PREFIX}{}", random_suffix()));
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in items(spec, list) {
            let mounts = list_mut(container, "volumeMounts");
            if !mounts.iter().any(|m| m["mountPath"] == MOUNT_PATH) {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
                mounted = true;
            }
        }
    }
    if mounted && existing.is_none() {
        list_mut(spec, "volumes").push(json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ]}}));
    }
}

/// Five letters without vowels, so that no words come out.
fn random_suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut random = rand::rng();
    (0..5).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])).collect()
}

fn mirror_error(pod: &Value) -> Option<&'static str> {
    let spec = &pod["spec"];
    if !is_zero(&spec["serviceAccountName"]) {
        return Some("a mirror pod may not reference service accounts");
    }
    let volumes = || spec.array_at("/volumes").iter();
    let secret_volume = volumes().any(|v| v["secret"].is_object());
    let references = containers(spec, &["initContainers", "containers", "ephemeralContainers"]).any(|c| secret_names(c).next().is_some());
    if secret_volume || references || !is_zero(&spec["imagePullSecrets"]) {
        return Some("a mirror pod may not reference secrets");
    }
    let tokens = volumes().flat_map(|v| v.array_at("/projected/sources")).any(|s| s["serviceAccountToken"].is_object());
    tokens.then_some("a mirror pod may not use ServiceAccountToken volume projections")
}

/// Why an account that limits its secrets does not allow the pod.
fn secret_error(pod: &Value, account: &Value, create: bool) -> Option<String> {
    let spec = &pod["spec"];
    let allowed = |list: &str, name: &str| account.array_at(list).iter().any(|s| s["name"] == name);
    let tail = format!("is not allowed because service account {} does not reference that", account.name());
    let kinds: &[(&str, &str)] = if create {
        &[("initContainers", "init container"), ("containers", "container")]
    } else {
        &[("ephemeralContainers", "ephemeral container")]
    };
    if create {
        for volume in spec.array_at("/volumes") {
            if let Some(name) = volume["secret"]["secretName"].as_str().filter(|n| !allowed("/secrets", n)) {
                return Some(format!("volume with secret.secretName=\"{name}\" {tail} secret"));
            }
        }
    }
    for (list, word) in kinds {
        for container in containers(spec, &[list]) {
            let who = format!("{word} {}", container["name"].as_str().unwrap_or_default());
            if let Some((place, name)) = secret_names(container).find(|(_, name)| !allowed("/secrets", name)) {
                return Some(format!("{who} with {place} referencing secret.secretName=\"{name}\" {tail} secret"));
            }
        }
    }
    if create {
        for (index, secret) in spec.array_at("/imagePullSecrets").iter().enumerate() {
            let name = secret["name"].as_str().unwrap_or_default();
            if !allowed("/imagePullSecrets", name) {
                return Some(format!("imagePullSecrets[{index}].name=\"{name}\" {tail} imagePullSecret"));
            }
        }
    }
    None
}

fn containers<'a>(spec: &'a Value, lists: &'a [&str]) -> impl Iterator<Item = &'a Value> {
    lists.iter().flat_map(|list| spec[*list].as_array().into_iter().flatten())
}

/// Where a container names secrets in its environment, and which.
fn secret_names(container: &Value) -> impl Iterator<Item = (String, &str)> {
    let variables = container.array_at("/env").iter().filter_map(|variable| {
        let name = variable["valueFrom"]["secretKeyRef"]["name"].as_str()?;
        Some((format!("envVar {}", variable["name"].as_str().unwrap_or_default()), name))
    });
    let whole = container.array_at("/envFrom").iter().filter_map(|from| Some(("envFrom".to_string(), from["secretRef"]["name"].as_str()?)));
    variables.chain(whole)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Request, store};
    use super::*;

    #[tokio::test]
    async fn a_pod_runs_as_the_default_account_and_mounts_its_token() {
        let account = json!({"metadata": {"name": "default", "namespace": "n"}, "imagePullSecrets": [{"name": "pull"}]});
        let store = store(&[("serviceaccounts", account)]);
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}, {"name": "d", "volumeMounts": [{"name": "x", "mountPath": MOUNT_PATH}]}]}});
        let (pod, _) = Request::create("pods", "n", pod).mutate(&ServiceAccount, &store).await.expect("accepted");
        let spec = &pod["spec"];
        assert_eq!((&spec["serviceAccountName"], &spec["serviceAccount"]), (&json!("default"), &json!("default")));
        assert_eq!(spec["imagePullSecrets"], json!([{"name": "pull"}]));
        let volume = spec["volumes"][0]["name"].as_str().expect("a volume");
        assert!(volume.starts_with(VOLUME_PREFIX) && volume.len() == VOLUME_PREFIX.len() + 5);
        assert_eq!(spec["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);
        assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], volume);
        assert_eq!(spec["containers"][1]["volumeMounts"].as_array().map(Vec::len), Some(1));
    }

    #[tokio::test]
    async fn a_missing_account_refuses_the_pod() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "x"}});
        let error = Request::create("pods", "n", pod).mutate(&ServiceAccount, &store(&[])).await.expect_err("no account");
        assert_eq!(error.message, "pods \"p\" is forbidden: error looking up service account n/x: serviceaccount \"x\" not found");
    }

    #[tokio::test]
    async fn an_account_may_limit_its_secrets() {
        let account =
            json!({"metadata": {"name": "x", "namespace": "n", "annotations": {MOUNTABLE_SECRETS: "true"}}, "secrets": [{"name": "good"}]});
        let store = store(&[("serviceaccounts", account)]);
        let pod = |secret: &str| {
            let spec = json!({"serviceAccountName": "x", "volumes": [{"name": "v", "secret": {"secretName": secret}}]});
            Request::create("pods", "n", json!({"metadata": {"name": "p"}, "spec": spec}))
        };
        assert!(pod("good").validate(&ServiceAccount, &store).await.is_ok());
        let error = pod("bad").validate(&ServiceAccount, &store).await.expect_err("not its secret");
        assert!(
            error
                .message
                .ends_with("volume with secret.secretName=\"bad\" is not allowed because service account x does not reference that secret")
        );
    }
}
