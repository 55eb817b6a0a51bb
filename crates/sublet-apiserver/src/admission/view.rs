//! What webhooks and policies see of a request: an object in the version that their rule names, of the kind that
//! the path speaks, and who asks.

use super::{Attributes, Operation};
use crate::registry::Resource;
use crate::rest::subresource::{scale_of, scale_paths};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use sublet_machinery::{ApiError, Gvk, ObjectExt};

/// Extensions have no say about themselves: they could lock out whoever wants to remove them.
const POLICIES: [&str; 4] =
    ["mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicies", "validatingadmissionpolicybindings"];
const WEBHOOKS: [&str; 2] = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
/// Groups whose objects are questions about rights.
const REVIEWS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// Who writes what the host says: the status of what runs there, and what only the host knows.
const SYSTEM: &str = "system:apiserver";

impl Attributes<'_> {
    /// The kind that the path speaks: that of the resource, or of the subresource.
    pub(crate) fn kind(&self) -> Gvk {
        self.resource.subresource(self.subresource).map_or_else(|| self.resource.gvk(), |sub| sub.kind.clone())
    }

    /// `CREATE`
    pub(crate) fn operation_name(&self) -> &'static str {
        match self.operation {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }

    /// Requests about a namespace are in it.
    pub(crate) fn namespace_seen(&self) -> &str {
        match self.object.as_ref().map(ObjectExt::name) {
            _ if !self.is("namespaces") => self.namespace,
            Some(name) if self.name.is_empty() => name,
            _ => self.name,
        }
    }

    /// Whether webhooks have no say.
    pub(crate) fn is_exempt(&self) -> bool {
        self.is_exempt_from_policies() || (self.is_registration() && WEBHOOKS.contains(&self.resource.plural.as_str()))
    }

    /// Whether policies have no say. They may judge configurations of webhooks.
    pub(crate) fn is_exempt_from_policies(&self) -> bool {
        let (group, plural) = (self.resource.group.as_str(), self.resource.plural.as_str());
        self.is_inner
            || REVIEWS.contains(&group)
            || (self.is_registration() && POLICIES.contains(&plural))
            || self.is_written_for_the_host()
    }

    fn is_registration(&self) -> bool {
        self.resource.group == "admissionregistration.k8s.io"
    }

    fn is_written_for_the_host(&self) -> bool {
        if self.user.name != SYSTEM {
            return false;
        }
        let (group, plural) = (self.resource.group.as_str(), self.resource.plural.as_str());
        match (group, plural, self.subresource) {
            (_, _, "status") | ("", "pods", "binding") => true,
            ("", "nodes" | "events" | "persistentvolumes", _) | ("events.k8s.io", _, _) | ("coordination.k8s.io", "leases", _) => true,
            // Where traffic goes, and the last word about a namespace.
            ("", "endpoints", _) | ("discovery.k8s.io", "endpointslices", _) | ("", "namespaces", "finalize") => true,
            // What is shown of the host.
            ("", "persistentvolumeclaims", "") => self.operation == Operation::Update,
            ("storage.k8s.io", "storageclasses", _) | ("scheduling.k8s.io", _, _) | ("node.k8s.io", _, _) => true,
            ("networking.k8s.io", "ingressclasses", _) | ("apiextensions.k8s.io", _, _) => true,
            ("snapshot.storage.k8s.io" | "gateway.networking.k8s.io", _, _) => true,
            // The end of a pod that stopped running, as a kubelet tells it.
            ("", "pods", "") => self.operation == Operation::Delete && self.old.as_ref().is_some_and(|old| old.is_deleting()),
            _ => false,
        }
    }

    /// Whether the request goes on when a webhook that has a say cannot be asked: controllers clear away
    /// what a tenant deleted, and a namespace comes to its end.
    pub(crate) fn goes_on_without(&self) -> bool {
        self.user.name == SYSTEM && self.operation == Operation::Delete
    }

    /// The options of the request as an object; null for those that have none.
    pub(crate) fn options(&self) -> Value {
        let kind = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => return Value::Null,
        };
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        for name in ["fieldManager", "fieldValidation"] {
            if let Some(text) = self.query.map(|q| q.get(name)).filter(|text| !text.is_empty()) {
                options[name] = json!(text);
            }
        }
        if let Some(delete) = self.delete_options {
            if let Some(seconds) = delete.grace_period_seconds {
                options["gracePeriodSeconds"] = json!(seconds);
            }
            if let Some(policy) = &delete.propagation_policy {
                options["propagationPolicy"] = json!(policy);
            }
            for (name, value) in [("uid", &delete.uid), ("resourceVersion", &delete.resource_version)] {
                if let Some(value) = value {
                    options["preconditions"][name] = json!(value);
                }
            }
        }
        options
    }

    /// The object in the form of the path: a Scale for `/scale`, the parameters for a connection.
    pub(crate) fn object_seen(&self) -> Option<Cow<'_, Value>> {
        match self.operation {
            Operation::Connect => Some(Cow::Owned(self.connect_options())),
            _ => self.object.as_ref().map(|object| self.seen(object)),
        }
    }

    pub(crate) fn old_seen(&self) -> Option<Cow<'_, Value>> {
        match self.operation {
            Operation::Connect => None,
            _ => self.old.as_deref().map(|old| self.seen(old)),
        }
    }

    fn seen<'o>(&self, object: &'o Value) -> Cow<'o, Value> {
        match self.resource.subresource(self.subresource) {
            Some(sub) if sub.name == "scale" => Cow::Owned(scale_of(object, &scale_paths(sub))),
            _ => Cow::Borrowed(object),
        }
    }

    /// Takes over what was made of the object seen.
    pub(crate) fn take_seen(&mut self, seen: Value) {
        match self.resource.subresource(self.subresource).filter(|sub| sub.name == "scale") {
            None => self.object = Some(seen),
            Some(sub) => {
                let (path, replicas) = (scale_paths(sub).spec_replicas, seen["spec"]["replicas"].as_i64().unwrap_or_default());
                if let Some(object) = &mut self.object {
                    object.set_at(&path, json!(replicas));
                }
            }
        }
    }

    /// The parameters of a connection as the object that they are: `PodExecOptions` and its like.
    fn connect_options(&self) -> Value {
        let kind = self.kind();
        let mut options = json!({"kind": kind.kind, "apiVersion": kind.api_version()});
        let Some(query) = self.query else { return options };
        let flags: &[&str] = match self.subresource {
            "exec" | "attach" => &["stdin", "stdout", "stderr", "tty"],
            _ => &[],
        };
        for name in flags.iter().filter(|name| query.bool(name)) {
            options[*name] = json!(true);
        }
        if !flags.is_empty() && !query.get("container").is_empty() {
            options["container"] = json!(query.get("container"));
        }
        match self.subresource {
            // A list without `omitempty`: it is there, and null when it is empty.
            "exec" => {
                let command: Vec<&str> = query.all("command").collect();
                options["command"] = if command.is_empty() { Value::Null } else { json!(command) };
            }
            "portforward" => {
                let ports: Vec<i32> = query.all("ports").filter_map(|p| p.parse().ok()).collect();
                if !ports.is_empty() {
                    options["ports"] = json!(ports);
                }
            }
            _ => {
                if let Some(path) = self.connect_path.as_ref().filter(|path| !path.is_empty()) {
                    options["path"] = json!(path);
                }
            }
        }
        options
    }

    /// The request without its objects, as reviews and expressions have it. `resource` and `kind` are those of the
    /// rule that matched.
    pub(crate) fn request_seen(&self, resource: &Resource, kind: &Gvk) -> Value {
        let gvk = |kind: &Gvk| json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let gvr = |r: &Resource| json!({"group": r.group, "version": r.version, "resource": r.plural});
        let mut request = Map::new();
        request.insert("kind".into(), gvk(kind));
        request.insert("resource".into(), gvr(resource));
        request.insert("requestKind".into(), gvk(&self.kind()));
        request.insert("requestResource".into(), gvr(self.resource));
        let texts = [
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
            ("name", self.name),
            ("namespace", self.namespace_seen()),
            ("operation", self.operation_name()),
        ];
        for (name, text) in texts {
            if !text.is_empty() {
                request.insert(name.into(), json!(text));
            }
        }
        request.insert("userInfo".into(), user_seen(self));
        request.insert("dryRun".into(), json!(self.dry_run));
        request.insert("options".into(), self.options());
        Value::Object(request)
    }
}

fn user_seen(attributes: &Attributes<'_>) -> Value {
    let user = attributes.user;
    let mut seen = Map::new();
    for (name, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            seen.insert(name.into(), json!(text));
        }
    }
    if !user.groups.is_empty() {
        seen.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        seen.insert("extra".into(), json!(user.extra));
    }
    Value::Object(seen)
}

/// The objects of a request in the version that a rule names.
pub(super) struct Versioned {
    pub(super) resource: Arc<Resource>,
    pub(super) kind: Gvk,
    /// Null when there is none.
    pub(super) object: Value,
    pub(super) old: Value,
}

impl Versioned {
    /// The objects of the request, converted when the rule matched another version of the resource.
    pub(super) async fn of(
        attributes: &Attributes<'_>,
        resource: &Arc<Resource>,
        server: &crate::server::Server,
    ) -> Result<Self, ApiError> {
        let own = attributes.resource;
        let mut object = attributes.object_seen().map(Cow::into_owned).unwrap_or_default();
        let mut old = attributes.old_seen().map(Cow::into_owned).unwrap_or_default();
        let kind = resource.subresource(attributes.subresource).map_or_else(|| resource.gvk(), |sub| sub.kind.clone());
        let is_other = own.version != resource.version || own.group != resource.group;
        if is_other && kind.kind == resource.kind.as_str() {
            for value in [&mut object, &mut old] {
                if !value.is_null() {
                    *value = server.convert_object(std::mem::take(value), own, resource).await?;
                }
            }
        }
        Ok(Self { resource: resource.clone(), kind, object, old })
    }
}
