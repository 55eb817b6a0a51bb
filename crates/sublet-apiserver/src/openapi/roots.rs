//! The paths that no row stands for: discovery, version, and the keys of service account tokens.

use super::names;
use super::operations::{BUILTIN, Operation, PathItem, Type};

/// `/api/`
pub(super) fn api() -> PathItem {
    discovery("/api/", "core", "getCoreAPIVersions", "get available API versions", "APIVersions")
}

/// `/apis/`
pub(super) fn apis() -> PathItem {
    discovery("/apis/", "apis", "getAPIVersions", "get available API versions", "APIGroupList")
}

/// `/apis/GROUP/`
pub(super) fn group(group: &str) -> PathItem {
    let id = format!("get{}APIGroup", names::group_title(group));
    discovery(&format!("/apis/{group}/"), &names::group_tag(group), &id, "get information of a group", "APIGroup")
}

/// `/apis/GROUP/VERSION/`
pub(super) fn resources(group: &str, version: &str) -> PathItem {
    let names = names::Names::of(group, version);
    let id = format!("get{}APIResources", names.title);
    discovery(&format!("{}/", names::base_path(group, version)), &names.tag, &id, "get available resources", "APIResourceList")
}

pub(super) fn version() -> PathItem {
    let answer = Type::Named("io.k8s.apimachinery.pkg.version.Info".into());
    let get = get("getCodeVersion", "version", "get the version information for this server", answer, JSON, JSON);
    PathItem { path: "/version/".into(), operations: vec![get] }
}

pub(super) fn openid_configuration() -> PathItem {
    let text = "get the OpenID configuration of the issuer of service account tokens";
    let get = get("getServiceAccountIssuerOpenIDConfiguration", "WellKnown", text, Type::Text, JSON, &[]);
    PathItem { path: "/.well-known/openid-configuration/".into(), operations: vec![get] }
}

pub(super) fn openid_keys() -> PathItem {
    let text = "get the public keys that verify service account tokens";
    let get = get("getServiceAccountIssuerOpenIDKeyset", "openid", text, Type::Text, &["application/jwk-set+json"], &[]);
    PathItem { path: "/openid/v1/jwks/".into(), operations: vec![get] }
}

fn discovery(path: &str, tag: &str, id: &str, description: &str, of: &str) -> PathItem {
    let answer = Type::Named(format!("io.k8s.apimachinery.pkg.apis.meta.v1.{of}"));
    PathItem { path: path.into(), operations: vec![get(id, tag, description, answer, BUILTIN, BUILTIN)] }
}

fn get(
    id: &str,
    tag: &str,
    description: &str,
    answer: Type,
    produces: &'static [&'static str],
    consumes: &'static [&'static str],
) -> Operation {
    Operation {
        method: "get",
        id: id.into(),
        tag: tag.into(),
        description: description.into(),
        action: None,
        kind: None,
        parameters: Vec::new(),
        body: None,
        codes: &[200],
        answer,
        produces,
        consumes,
    }
}

const JSON: &[&str] = &["application/json"];
