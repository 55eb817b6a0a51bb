//! Delete and deletecollection: preconditions, finalizers, grace, propagation.

use super::ResourceRequest;
use super::convert::storage_resource;
use super::decode;
use super::options::{self, ListOptions};
use super::selection::Selection;
use super::write::{Written, is_finished};
use crate::admission::{Attributes, Operation};
use crate::http::{HttpResponse, respond};
use crate::registry::Resource;
use crate::server::Server;
use crate::store::entry::Entry;
use crate::store::storage_error;
use crate::strategy::Grace;
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::{ApiError, FieldError, FieldPath, ObjectExt};
use sublet_storage::{Expect, StorageError};

const DELETE_TRIES_MAX: usize = 64;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Kinds whose delete answers with the object rather than a Status (`ReturnDeletedObject` upstream).
const RETURNS_OBJECT: [&str; 18] = [
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "deviceclasses.resource.k8s.io",
    "devicetaintrules.resource.k8s.io",
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
    "resourcequotas",
    "resourceslices.resource.k8s.io",
    "serviceaccounts",
    "services",
    "storageclasses.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "volumeattributesclasses.storage.k8s.io",
];

/// DeleteOptions from the query and the body.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub propagation_policy: Option<String>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub dry_run: bool,
}

impl DeleteOptions {
    pub fn parse(request: &ResourceRequest<'_>) -> Result<Self, ApiError> {
        let body = decode::options_body(request)?;
        let mut dry_run = options::dry_run(request.query, "DeleteOptions")?;
        for value in body.array_at("/dryRun") {
            if value != "All" {
                let error = FieldError::not_supported(&FieldPath::new("dryRun"), json!([value]), &["All"]);
                return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
            }
            dry_run = true;
        }
        let text = |key: &str| body.str_at(key).map(str::to_string);
        let from_query = |key: &str| Some(request.query.get(key).to_string()).filter(|v| !v.is_empty());
        let mut policy = text("/propagationPolicy").or_else(|| from_query("propagationPolicy"));
        let orphan = body
            .bool_at("/orphanDependents")
            .or_else(|| request.query.has("orphanDependents").then(|| request.query.bool("orphanDependents")));
        if let Some(orphan) = orphan {
            if policy.is_some() {
                let error = FieldError::invalid(
                    &FieldPath::new("propagationPolicy"),
                    policy.unwrap_or_default(),
                    "orphanDependents and deletionPropagation cannot be both set",
                );
                return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
            }
            policy = Some(if orphan { "Orphan" } else { "Background" }.into());
        }
        if let Some(policy) = &policy
            && !matches!(policy.as_str(), "Orphan" | "Background" | "Foreground")
        {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            let error = FieldError::not_supported_in_order(&FieldPath::new("propagationPolicy"), policy.as_str(), &known);
            return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
        }
        Ok(Self {
            grace_period_seconds: body.i64_at("/gracePeriodSeconds").or(request.query.number("gracePeriodSeconds")?),
            propagation_policy: policy,
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            dry_run,
        })
    }
}

/// What one step of a deletion does to the object.
enum Step {
    /// The object as the answer shows it.
    Remove(Value),
    /// Mark it; others finish the deletion.
    Mark(Value),
    /// Nothing changes: it is being deleted already.
    Keep,
}

impl Server {
    pub(crate) async fn handle_delete(&self, request: &ResourceRequest<'_>) -> Result<HttpResponse, ApiError> {
        let options = DeleteOptions::parse(request)?;
        let (written, removed) = self.delete_object(request, &request.info.name, &options).await?;
        let resource = &request.resource;
        let object = &match written {
            Written::Value(value) => value,
            Written::Entry(stored) => self.object_at(stored.value(), resource).await?,
        };
        if removed && !RETURNS_OBJECT.contains(&resource.group_resource().as_str()) {
            let mut details = json!({"name": object.name(), "kind": resource.plural, "uid": object.uid()});
            if !resource.group.is_empty() {
                details["group"] = json!(resource.group);
            }
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
            return Ok(respond::value(StatusCode::OK, request.accepted, &status));
        }
        self.present_value(request, StatusCode::OK, object)
    }

    pub(crate) async fn handle_delete_collection(&self, request: &ResourceRequest<'_>) -> Result<HttpResponse, ApiError> {
        let options = DeleteOptions::parse(request)?;
        let mut list_options = ListOptions::parse(request.query, false)?;
        list_options.limit = None;
        let selection = Selection::parse(&request.resource, &list_options.label_selector, &list_options.field_selector)?;
        let namespace = (request.resource.namespaced && !request.info.namespace.is_empty()).then_some(request.info.namespace.as_str());
        let page = self.page(&request.resource, namespace, &list_options, &selection).await?;
        for entry in &page.entries {
            let (_, name) = entry.namespace_and_name();
            let name = name.to_string();
            match self.delete_object_in(request, entry.namespace_and_name().0, &name, &options).await {
                Ok(_) => {}
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        self.present_list(request, page)
    }

    async fn delete_object(&self, request: &ResourceRequest<'_>, name: &str, options: &DeleteOptions) -> Result<(Written, bool), ApiError> {
        self.delete_object_in(request, request.namespace(), name, options).await
    }

    /// Deletes, or marks for deletion; tells whether the object is gone.
    pub(crate) async fn delete_object_in(
        &self,
        request: &ResourceRequest<'_>,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<(Written, bool), ApiError> {
        let resource = &request.resource;
        let bucket = storage_resource(resource);
        let mut turn = None;
        for attempt in 0..DELETE_TRIES_MAX {
            if attempt > 0 && turn.is_none() {
                turn = self.turn(&bucket, namespace, name).await;
            }
            let entry = self.store().get(&bucket, namespace, name).ok_or_else(|| request.not_found(name))?;
            let old = Arc::new(self.object_at(entry.value(), resource).await?);
            check_preconditions(resource, &old, options)?;
            let mut attributes = Attributes {
                namespace,
                // A request about a collection names none of its objects; each is shown as what it was.
                name: if request.info.verb == "deletecollection" { "" } else { name },
                old: Some(old.clone()),
                dry_run: options.dry_run,
                delete_options: Some(options),
                // An eviction was judged as such; what the server deletes by itself has no path.
                is_inner: !request.info.subresource.is_empty() || request.info.path.is_empty(),
                ..Attributes::new(request.user, Operation::Delete, resource)
            };
            self.admit(request, &mut attributes).await?;
            match plan(resource, &old, options, &self.now(), self.clock_now()) {
                Step::Keep => return Ok((Written::Entry(entry), false)),
                // A definition goes after its instances.
                Step::Remove(_) if is_held_by_instances(resource, &old) => {
                    if let Some(done) =
                        self.mark(resource, &entry, &old, crate::crd::begin_delete(&old, &self.now()), options.dry_run).await?
                    {
                        return Ok((done, false));
                    }
                }
                Step::Mark(marked) if is_held_by_instances(resource, &old) => {
                    if let Some(done) =
                        self.mark(resource, &entry, &old, crate::crd::begin_delete(&marked, &self.now()), options.dry_run).await?
                    {
                        return Ok((done, false));
                    }
                }
                Step::Remove(last) if options.dry_run => return Ok((Written::Value(last), true)),
                Step::Mark(marked) => {
                    if let Some(done) = self.mark(resource, &entry, &old, marked, options.dry_run).await? {
                        return Ok((done, false));
                    }
                }
                Step::Remove(last) => match self.store().write(&bucket, namespace, name, None, Expect::At(entry.revision)).await {
                    Ok(_) => {
                        self.after_delete(resource, &old).await;
                        return Ok((Written::Value(last), true));
                    }
                    Err(StorageError::Conflict { .. }) => {}
                    Err(error) => return Err(storage_error(&error)),
                },
            }
        }
        Err(ApiError::modified(&resource.group, &resource.plural, name))
    }

    /// Writes an object that waits for its end; `None` when another writer was faster.
    async fn mark(
        &self,
        resource: &Resource,
        entry: &Entry,
        old: &Value,
        mut marked: Value,
        dry_run: bool,
    ) -> Result<Option<Written>, ApiError> {
        if dry_run {
            return Ok(Some(Written::Value(marked)));
        }
        let (namespace, name) = entry.namespace_and_name();
        let encoded = self.stored_form(resource, &mut marked).await?;
        match self.store().write(&storage_resource(resource), namespace, name, Some(encoded), Expect::At(entry.revision)).await {
            Ok(entry) => {
                let written = Written::Entry(entry);
                self.after_write(resource, Some(old), &written, false).await;
                Ok(Some(written))
            }
            Err(StorageError::Conflict { .. }) => Ok(None),
            Err(error) => Err(storage_error(&error)),
        }
    }
}

fn is_held_by_instances(resource: &Resource, old: &Value) -> bool {
    resource.group == "apiextensions.k8s.io" && resource.plural == "customresourcedefinitions" && !old.is_deleting()
}

fn check_preconditions(resource: &Resource, old: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    // With the kind, where other conflicts have the resource.
    let failed = |what: &str, wanted: &str, actual: &str, since: &str| {
        let why = format!("the {what} in the precondition ({wanted}) does not match the {what} in record ({actual}). {since}");
        Err(ApiError::conflict(&resource.group, &resource.kind, old.name(), why))
    };
    match (&options.uid, &options.resource_version) {
        (Some(uid), _) if uid != old.uid() => failed("UID", uid, old.uid(), "The object might have been deleted and then recreated"),
        (_, Some(version)) if version != old.resource_version() => {
            failed("ResourceVersion", version, old.resource_version(), "The object might have been modified")
        }
        _ => Ok(()),
    }
}

/// Decides what a delete does, as upstream's BeforeDelete and the store after it.
fn plan(resource: &Resource, old: &Value, options: &DeleteOptions, now: &str, now_at: jiff::Timestamp) -> Step {
    let mut new = old.clone();
    let finalizers = finalizers_after(resource, old, options);
    let finalizers_change = finalizers.iter().map(String::as_str).ne(old.finalizers());
    if finalizers.is_empty() {
        new.metadata_mut().remove("finalizers");
    } else {
        new.metadata_mut().insert("finalizers".into(), json!(finalizers));
    }
    let grace = grace_seconds(resource, old, options);
    if old.is_deleting() {
        let current = old.i64_at("/metadata/deletionGracePeriodSeconds").unwrap_or(0);
        let shorter = resource.strategy.grace == Grace::Pod && grace < current;
        if shorter {
            new["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            new["metadata"]["deletionTimestamp"] = json!(deletion_time(old, current, grace));
        }
        if is_finished(resource, &new) {
            return Step::Remove(new);
        }
        return if shorter || finalizers_change { Step::Mark(new) } else { Step::Keep };
    }
    let held_by_namespace = resource.strategy.grace == Grace::Namespace && !old.array_at("/spec/finalizers").is_empty();
    let at_once = grace == 0 && finalizers.is_empty() && !held_by_namespace;
    if at_once && resource.strategy.grace != Grace::Pod {
        return Step::Remove(new);
    }
    let timestamp = if grace == 0 { now.to_string() } else { later(now_at, grace) };
    let metadata = new.metadata_mut();
    metadata.insert("deletionTimestamp".into(), json!(timestamp));
    metadata.insert("deletionGracePeriodSeconds".into(), json!(grace));
    if old.generation() > 0 {
        metadata.insert("generation".into(), json!(old.generation() + 1));
    }
    if resource.strategy.grace == Grace::Namespace {
        new.metadata_mut().remove("deletionGracePeriodSeconds");
        new.set_at("/status/phase", json!("Terminating"));
    }
    if at_once { Step::Remove(new) } else { Step::Mark(new) }
}

fn later(now: jiff::Timestamp, seconds: i64) -> String {
    let seconds = seconds.clamp(0, 10 * 365 * 86_400);
    now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(now).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A shorter grace counts from the moment the deletion was first asked for.
fn deletion_time(old: &Value, current: i64, grace: i64) -> String {
    let text = old.str_at("/metadata/deletionTimestamp").unwrap_or_default();
    match text.parse::<jiff::Timestamp>() {
        Ok(at) => {
            let asked = at.checked_sub(jiff::SignedDuration::from_secs(current.clamp(0, 10 * 365 * 86_400))).unwrap_or(at);
            later(asked, grace)
        }
        Err(_) => text.to_string(),
    }
}

fn grace_seconds(resource: &Resource, old: &Value, options: &DeleteOptions) -> i64 {
    if resource.strategy.grace != Grace::Pod {
        return 0;
    }
    let unscheduled = old.str_at("/spec/nodeName").unwrap_or_default().is_empty();
    let ended = matches!(old.str_at("/status/phase"), Some("Failed" | "Succeeded"));
    let asked = options.grace_period_seconds.or_else(|| old.i64_at("/spec/terminationGracePeriodSeconds")).unwrap_or(30);
    // A negative period means the shortest one that is not forced.
    let asked = if asked < 0 { 1 } else { asked };
    if unscheduled || ended { 0 } else { asked }
}

/// The finalizers after the propagation policy has had its say.
fn finalizers_after(resource: &Resource, old: &Value, options: &DeleteOptions) -> Vec<String> {
    let mut finalizers: Vec<String> = old.finalizers().into_iter().map(str::to_string).collect();
    let policy = match options.propagation_policy.as_deref() {
        Some(policy) => policy,
        // Without a word from the client, what the object already carries stands; else the kind's default.
        None if finalizers.iter().any(|f| f == ORPHAN || f == FOREGROUND) => return finalizers,
        None if matches!(resource.plural.as_str(), "replicationcontrollers" if resource.group.is_empty()) => "Orphan",
        None if resource.group == "batch" && resource.plural == "jobs" => "Orphan",
        None => "Background",
    };
    finalizers.retain(|f| f != ORPHAN && f != FOREGROUND);
    match policy {
        "Orphan" => finalizers.push(ORPHAN.into()),
        "Foreground" => finalizers.push(FOREGROUND.into()),
        _ => {}
    }
    finalizers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::Strategy;

    fn resource(grace: Grace) -> Resource {
        crate::registry::test_resource("", "v1", "things", "Thing", Strategy { grace, ..Strategy::PLAIN })
    }

    fn step(grace: Grace, old: &Value, options: &DeleteOptions) -> String {
        match plan(&resource(grace), old, options, "2026-01-01T00:00:00Z", jiff::Timestamp::from_second(1_767_225_600).unwrap()) {
            Step::Remove(_) => "remove".into(),
            Step::Keep => "keep".into(),
            Step::Mark(new) => format!(
                "mark {} {} {}",
                new["metadata"]["deletionTimestamp"].as_str().unwrap_or_default(),
                new["metadata"]["deletionGracePeriodSeconds"],
                new["metadata"]["finalizers"]
            ),
        }
    }

    #[test]
    fn delete_waits_for_finalizers_and_grace() {
        let plain = json!({"metadata": {"name": "a"}});
        let held = json!({"metadata": {"name": "a", "finalizers": ["x/y"]}});
        let none = DeleteOptions::default();
        assert_eq!(step(Grace::None, &plain, &none), "remove");
        assert_eq!(step(Grace::None, &held, &none), "mark 2026-01-01T00:00:00Z 0 [\"x/y\"]");
        let foreground = DeleteOptions { propagation_policy: Some("Foreground".into()), ..none.clone() };
        assert_eq!(step(Grace::None, &plain, &foreground), "mark 2026-01-01T00:00:00Z 0 [\"foregroundDeletion\"]");
        let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 30}});
        assert_eq!(step(Grace::Pod, &pod, &none), "mark 2026-01-01T00:00:30Z 30 null");
        let pending = json!({"metadata": {"name": "a"}, "spec": {"terminationGracePeriodSeconds": 30}});
        assert_eq!(step(Grace::Pod, &pending, &none), "remove");
    }

    #[test]
    fn a_deletion_can_only_be_hastened() {
        let deleting = json!({
            "metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30},
            "spec": {"nodeName": "n"}
        });
        let with = |s| DeleteOptions { grace_period_seconds: Some(s), ..DeleteOptions::default() };
        assert_eq!(step(Grace::Pod, &deleting, &with(60)), "keep");
        assert_eq!(step(Grace::Pod, &deleting, &with(5)), "mark 2026-01-01T00:00:05Z 5 null");
        assert_eq!(step(Grace::Pod, &deleting, &with(0)), "remove");
    }

    #[test]
    fn a_namespace_waits_for_its_contents() {
        let namespace = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}});
        assert_eq!(step(Grace::Namespace, &namespace, &DeleteOptions::default()), "mark 2026-01-01T00:00:00Z null null");
        let empty = json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}});
        assert_eq!(step(Grace::Namespace, &empty, &DeleteOptions::default()), "remove");
    }
}
