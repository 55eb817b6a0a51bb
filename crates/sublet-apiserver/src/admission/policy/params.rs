//! Parameters: the objects that a binding gives to its policy.

use super::{Binding, Policy};
use crate::reader::Reader;
use crate::registry::{Resource, Snapshot};
use crate::rest::convert::storage_resource;
use crate::server::Server;
use serde_json::Value;
use std::sync::Arc;
use sublet_machinery::selector::Selector;

/// The parameters to run a policy with, null where it runs without; the error is one of configuration.
pub(super) async fn collect<P>(
    policy: &Policy<P>,
    binding: &Binding,
    namespace: &str,
    server: &Server,
    registry: &Snapshot,
) -> Result<Vec<Value>, String> {
    let (Some((api_version, kind)), Some(stated)) = (&policy.param_kind, &binding.param_ref) else { return Ok(vec![Value::Null]) };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let row = registry
        .find_kind(group, version, kind)
        .ok_or_else(|| format!("paramKind kind `&ParamKind{{APIVersion:{api_version},Kind:{kind},}}` not known"))?;
    let given = stated["namespace"].as_str().unwrap_or_default();
    let namespace = match (row.namespaced, given) {
        (false, "") => "",
        (false, _) => return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into()),
        (true, "") if namespace.is_empty() => {
            return Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into());
        }
        (true, "") => namespace,
        (true, given) => given,
    };
    let found = find(stated, row, namespace, server)?;
    if found.is_empty() && stated["parameterNotFoundAction"] == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
    }
    let mut params = Vec::with_capacity(found.len());
    for object in found {
        params.push(server.object_at(Value::clone(&object), row).await.map_err(|e| e.message)?);
    }
    Ok(params)
}

fn find(stated: &Value, row: &Arc<Resource>, namespace: &str, server: &Server) -> Result<Vec<Arc<Value>>, String> {
    let bucket = storage_resource(row);
    let name = stated["name"].as_str().unwrap_or_default();
    if !name.is_empty() {
        return Ok(server.get(&bucket, namespace, name).into_iter().collect());
    }
    let selector = Selector::from_object(&stated["selector"]).map_err(|e| e.to_string())?;
    let all = server.list(&bucket, row.namespaced.then_some(namespace));
    Ok(all.into_iter().filter(|object| selector.matches_object(object)).collect())
}

/// What a policy cannot be run without, checked before its bindings.
pub(super) fn configuration_error<P>(policy: &Policy<P>, registry: &Snapshot) -> Option<String> {
    let (api_version, kind) = policy.param_kind.as_ref()?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let known = registry.find_kind(group, version, kind).is_some();
    (!known).then(|| format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"))
}
