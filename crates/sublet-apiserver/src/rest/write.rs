//! Create and update: the one order of steps for every kind.

use super::ResourceRequest;
use super::convert::{is_current, storage_resource, to_storage};
use super::selection::fields_of;
use super::{decode, metadata, options};
use crate::admission::{Attributes, Operation};
use crate::auth::authz::escalation::RbacWrite;
use crate::crd::Verdict;
use crate::facts::builtin;
use crate::hooks::Allocation;
use crate::http::HttpResponse;
use crate::registry::Resource;
use crate::server::Server;
use crate::store::entry::{Encoded, Entry};
use crate::store::storage_error;
use crate::strategy::{NameRule, Strategy, distinct, drop_gated, metadata as strategy_table};
use http::StatusCode;
use serde_json::Value;
use std::sync::{Arc, LazyLock};
use sublet_machinery::apply::{self, FieldSet};
use sublet_machinery::metadata::{validate_metadata, validate_metadata_update};
use sublet_machinery::names::{self, NameFn};
use sublet_machinery::structural;
use sublet_machinery::{ApiError, FieldError, FieldPath, ObjectExt};
use sublet_storage::{Expect, StorageError};

/// Tries of an update that other writers keep overtaking.
const UPDATE_TRIES_MAX: usize = 64;
/// Tries of a create with generateName that hits a taken name.
const GENERATE_TRIES_MAX: usize = 8;

/// Who a write is recorded under in managedFields.
#[derive(Clone, Debug)]
pub struct Manager {
    pub name: String,
    pub subresource: String,
}

/// What an update makes of the live object.
pub enum Change {
    /// The new object, in the form of the request's version.
    To(Value),
    /// As `To`; managedFields are already settled (server-side apply).
    Applied(Value),
}

/// The result of a write, in the form of the request's version.
pub enum Written {
    Entry(Arc<Entry>),
    /// Of a dry run, or a delete: nothing was (or is) stored.
    Value(Value),
}

impl Server {
    pub(crate) async fn handle_create(&self, request: &ResourceRequest<'_>) -> Result<HttpResponse, ApiError> {
        let dry_run = options::dry_run(request.query, "CreateOptions")?;
        let mut object = decode::object(request, "CreateOptions")?;
        decode::check_namespace(request, &mut object)?;
        if !matches!(object.resource_version(), "" | "0") {
            return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
        }
        let manager = Manager { name: request.field_manager()?, subresource: String::new() };
        let written = self.create_object(request, object, Some(&manager), dry_run).await?;
        self.present_written(request, StatusCode::CREATED, &written).await
    }

    /// The body of a review, which is created as other objects are, and never stored.
    pub(crate) fn asked(&self, request: &ResourceRequest<'_>) -> Result<Value, ApiError> {
        let resource = &request.resource;
        let mut object = decode::object(request, "CreateOptions")?;
        decode::check_namespace(request, &mut object)?;
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            object.metadata_mut().remove(field);
        }
        tidy(resource, &mut object);
        let manager = Manager { name: request.field_manager()?, subresource: String::new() };
        track(resource, &manager, None, &mut object, &self.now());
        normalize(resource, &mut object);
        Ok(object)
    }

    pub(crate) async fn present_written(
        &self,
        request: &ResourceRequest<'_>,
        status: StatusCode,
        written: &Written,
    ) -> Result<HttpResponse, ApiError> {
        match written {
            Written::Entry(entry) => self.present_entry(request, status, entry).await,
            Written::Value(value) => self.present_value(request, status, value),
        }
    }

    /// Creates an object in the form of the request's version. `manager` is `None` when managedFields
    /// are already settled.
    pub(crate) async fn create_object(
        &self,
        request: &ResourceRequest<'_>,
        object: Value,
        manager: Option<&Manager>,
        dry_run: bool,
    ) -> Result<Written, ApiError> {
        let generated = object.name().is_empty() && object.str_at("/metadata/generateName").is_some_and(|g| !g.is_empty());
        let tries = if generated { GENERATE_TRIES_MAX } else { 1 };
        let mut result = self.create_once(request, object.clone(), manager, dry_run).await;
        for _ in 1..tries {
            match &result {
                Err(error) if error.is(sublet_machinery::Reason::AlreadyExists) => {
                    result = self.create_once(request, object.clone(), manager, dry_run).await;
                }
                _ => break,
            }
        }
        result
    }

    async fn create_once(
        &self,
        request: &ResourceRequest<'_>,
        mut object: Value,
        manager: Option<&Manager>,
        dry_run: bool,
    ) -> Result<Written, ApiError> {
        let resource = &request.resource;
        let now = self.now();
        let given = resource.strategy.prepare_given.map(|_| object.clone());
        metadata::prepare_create(resource, &mut object, &now);
        apply_defaults(resource, &mut object);
        tidy(resource, &mut object);
        if let Some(manager) = manager {
            track(resource, manager, None, &mut object, &now);
        }
        let name = object.name().to_string();
        let mut attributes = Attributes {
            namespace: request.namespace(),
            name: &name,
            object: Some(object),
            dry_run,
            query: Some(request.query),
            ..Attributes::new(request.user, Operation::Create, resource)
        };
        let admitted = self.mutate(&mut attributes).await;
        request.pass_warnings(&mut attributes);
        admitted?;
        let mut object = attributes.object.take().expect("mutation keeps the object");
        drop_gated(&resource.group, &resource.plural, &mut object, None);
        (resource.strategy.prepare_create)(&mut object);
        if let (Some(prepare), Some(given)) = (resource.strategy.prepare_given, &given) {
            prepare(&mut object, given);
        }
        apply_defaults(resource, &mut object);
        normalize(resource, &mut object);
        let mut allocation = self.allocate(resource, &mut object, None, dry_run, true).await?;
        attributes.object = Some(object);
        let result = self.finish_create(request, &mut attributes, &mut allocation, dry_run).await;
        settle(allocation, result.is_ok() && !dry_run).await;
        let written = result?;
        self.after_write(resource, None, &written, dry_run).await;
        Ok(written)
    }

    /// Validation and commit of a new object.
    async fn finish_create(
        &self,
        request: &ResourceRequest<'_>,
        attributes: &mut Attributes<'_>,
        allocation: &mut Option<Box<dyn Allocation>>,
        dry_run: bool,
    ) -> Result<Written, ApiError> {
        let resource = &request.resource;
        let object = attributes.object.as_ref().expect("a create has an object");
        self.check_escalation(request, object, None)?;
        self.check(request, object)?;
        for warning in (resource.strategy.warnings)(object) {
            request.warn(warning);
        }
        let admitted = self.validate_admission(attributes).await;
        request.pass_warnings(attributes);
        admitted?;
        let mut object = attributes.object.take().expect("validation keeps the object");
        if allocation.is_none() {
            *allocation = self.allocate(resource, &mut object, None, dry_run, false).await?;
        }
        self.commit_create(resource, object, dry_run).await
    }

    async fn commit_create(&self, resource: &Resource, mut object: Value, dry_run: bool) -> Result<Written, ApiError> {
        let (bucket, namespace, name) = (storage_resource(resource), object.namespace().to_string(), object.name().to_string());
        if dry_run {
            if self.store().get(&bucket, &namespace, &name).is_some() {
                return Err(self.taken(resource, &bucket, &namespace, &name));
            }
            return Ok(Written::Value(object));
        }
        let encoded = self.stored_form(resource, &mut object).await?;
        match self.store().write(&bucket, &namespace, &name, Some(encoded), Expect::Absent).await {
            Ok(entry) => Ok(Written::Entry(entry)),
            Err(StorageError::Conflict { .. }) => Err(self.taken(resource, &bucket, &namespace, &name)),
            Err(error) => Err(storage_error(&error)),
        }
    }

    /// The name is taken, if only by an object that is on its way out.
    fn taken(&self, resource: &Resource, bucket: &str, namespace: &str, name: &str) -> ApiError {
        let mut error = ApiError::already_exists(&resource.group, &resource.plural, name);
        if self.store().get(bucket, namespace, name).is_some_and(|entry| entry.value().is_deleting()) {
            error.message.insert_str(0, "object is being deleted: ");
        }
        error
    }

    /// PUT of the main resource or of a subresource that has the same kind.
    pub(crate) async fn handle_update(&self, request: &ResourceRequest<'_>) -> Result<HttpResponse, ApiError> {
        let dry_run = options::dry_run(request.query, "UpdateOptions")?;
        let mut object = decode::object(request, "UpdateOptions")?;
        decode::check_namespace(request, &mut object)?;
        check_name(request, &object)?;
        let manager = Manager { name: request.field_manager()?, subresource: request.info.subresource.clone() };
        let strategy = &request.resource.strategy;
        let exists = self.store().get(&storage_resource(&request.resource), request.namespace(), object.name()).is_some();
        if !exists && strategy.create_on_update && request.info.subresource.is_empty() {
            if !object.uid().is_empty() {
                let why = format!("Precondition failed: UID in precondition: {}, UID in object meta: ", object.uid());
                return Err(ApiError::conflict(&request.resource.group, &request.resource.plural, object.name(), why));
            }
            self.authorize_create(request)?;
            object.metadata_mut().remove("resourceVersion");
            let written = self.create_object(request, object, Some(&manager), dry_run).await?;
            return self.present_written(request, StatusCode::CREATED, &written).await;
        }
        // Zero is no version: clients send it to update whatever is there.
        if object.resource_version() == "0" {
            object.metadata_mut().remove("resourceVersion");
        }
        let unconditional = object.resource_version().is_empty();
        if unconditional && exists && !strategy.unconditional_update {
            // With the name of the resource, where other validation has the kind.
            let error = FieldError::invalid(&FieldPath::new("metadata.resourceVersion"), 0, "must be specified for an update");
            return Err(ApiError::invalid(&request.resource.group, &request.resource.plural, object.name(), &[error]));
        }
        let change = |live: &Value| {
            if !object.uid().is_empty() && object.uid() != live.uid() {
                let why = format!("Precondition failed: UID in precondition: {}, UID in object meta: {}", object.uid(), live.uid());
                return Err(ApiError::conflict(&request.resource.group, &request.resource.plural, live.name(), why));
            }
            Ok(Change::To(object.clone()))
        };
        let written = self.modify(request, Some(&manager), dry_run, change).await?;
        self.present_written(request, StatusCode::OK, &written).await
    }

    /// Updates the live object, again when another writer was faster, unless the change itself names
    /// the version it is based on.
    pub(crate) async fn modify(
        &self,
        request: &ResourceRequest<'_>,
        manager: Option<&Manager>,
        dry_run: bool,
        change: impl Fn(&Value) -> Result<Change, ApiError>,
    ) -> Result<Written, ApiError> {
        let (name, bucket) = (&request.info.name, storage_resource(&request.resource));
        let mut turn = None;
        for attempt in 0..UPDATE_TRIES_MAX {
            if attempt > 0 && turn.is_none() {
                turn = self.turn(&bucket, request.namespace(), name).await;
            }
            let entry = self.store().get(&bucket, request.namespace(), name).ok_or_else(|| request.not_found(name))?;
            let old = self.object_at(entry.value(), &request.resource).await?;
            let (mut new, settled) = match change(&old)? {
                Change::To(new) => (new, false),
                Change::Applied(new) => (new, true),
            };
            if new.resource_version().is_empty() {
                // An update without conditions is one of whatever is there.
                new.metadata_mut().insert("resourceVersion".into(), old.resource_version().into());
            } else if new.resource_version() != old.resource_version() {
                return Err(ApiError::modified(&request.resource.group, &request.resource.plural, name));
            }
            // When another writer was faster, a change that names its version fails above in the next
            // round; one that was made from the live object is made anew.
            if let Some(written) = self.update_once(request, if settled { None } else { manager }, dry_run, &entry, old, new).await? {
                return Ok(written);
            }
        }
        Err(ApiError::modified(&request.resource.group, &request.resource.plural, name))
    }

    /// One try; `None` when another writer was faster.
    async fn update_once(
        &self,
        request: &ResourceRequest<'_>,
        manager: Option<&Manager>,
        dry_run: bool,
        entry: &Arc<Entry>,
        old: Value,
        mut new: Value,
    ) -> Result<Option<Written>, ApiError> {
        let resource = &request.resource;
        let subresource = request.info.subresource.as_str();
        let now = self.now();
        metadata::prepare_update(resource, &mut new, &old);
        apply_defaults(resource, &mut new);
        tidy(resource, &mut new);
        if let Some(manager) = manager {
            track(resource, manager, Some(&old), &mut new, &now);
        }
        let old = Arc::new(old);
        let mut attributes = Attributes {
            subresource,
            namespace: request.namespace(),
            name: &request.info.name,
            object: Some(new),
            old: Some(old.clone()),
            dry_run,
            query: Some(request.query),
            // What a Binding does was judged with the Binding.
            is_inner: subresource == "binding",
            ..Attributes::new(request.user, Operation::Update, resource)
        };
        let admitted = self.mutate(&mut attributes).await;
        request.pass_warnings(&mut attributes);
        admitted?;
        let mut new = attributes.object.take().expect("mutation keeps the object");
        let strategy = subresource_strategy(resource, subresource);
        drop_gated(&resource.group, &resource.plural, &mut new, Some(&old));
        if subresource == "status" {
            (strategy.prepare_status_update)(&mut new, &old);
        } else {
            (strategy.prepare_update)(&mut new, &old);
        }
        apply_defaults(resource, &mut new);
        normalize(resource, &mut new);
        if subresource != "status" {
            metadata::bump_generation(resource, &mut new, &old);
        }
        let mut allocation = match self.allocate(resource, &mut new, Some(&old), dry_run, true).await {
            Err(_) if self.is_beaten(resource, entry) => return Ok(None),
            allocated => allocated?,
        };
        attributes.object = Some(new);
        let result = self.finish_update(request, &mut attributes, &mut allocation, entry, dry_run).await;
        settle(allocation, matches!(result, Ok(Some(_))) && !dry_run).await;
        let Some(written) = result? else { return Ok(None) };
        self.after_write(resource, Some(&old), &written, dry_run).await;
        Ok(Some(written))
    }

    /// Validation and commit of a changed object.
    async fn finish_update(
        &self,
        request: &ResourceRequest<'_>,
        attributes: &mut Attributes<'_>,
        allocation: &mut Option<Box<dyn Allocation>>,
        entry: &Arc<Entry>,
        dry_run: bool,
    ) -> Result<Option<Written>, ApiError> {
        let resource = &request.resource;
        let old = attributes.old.clone().expect("an update has an old object");
        let new = attributes.object.as_ref().expect("an update has a new object");
        self.check_escalation(request, new, Some(&old))?;
        self.check_update(request, new, &old)?;
        if attributes.subresource.is_empty() {
            for warning in resource.strategy.warn_of_update(new, &old) {
                request.warn(warning);
            }
        }
        let admitted = self.validate_admission(attributes).await;
        request.pass_warnings(attributes);
        admitted?;
        let mut new = attributes.object.take().expect("validation keeps the object");
        apply::keep_times(&mut new, &old);
        if is_same(&new, &old) && is_current(resource, entry) {
            return Ok(Some(if dry_run { Written::Value(new) } else { Written::Entry(entry.clone()) }));
        }
        if allocation.is_none() {
            *allocation = match self.allocate(resource, &mut new, Some(&old), dry_run, false).await {
                Err(_) if self.is_beaten(resource, entry) => return Ok(None),
                allocated => allocated?,
            };
        }
        self.commit_update(resource, entry, new, dry_run).await
    }

    async fn commit_update(
        &self,
        resource: &Resource,
        entry: &Arc<Entry>,
        mut new: Value,
        dry_run: bool,
    ) -> Result<Option<Written>, ApiError> {
        if dry_run {
            return Ok(Some(Written::Value(new)));
        }
        let (namespace, name) = entry.namespace_and_name();
        let bucket = storage_resource(resource);
        // The last finalizer is gone from an object that waits for its end.
        if is_finished(resource, &new) {
            return match self.store().write(&bucket, namespace, name, None, Expect::At(entry.revision)).await {
                // It was never stored like this, so that it keeps the version that it had.
                Ok(_) => Ok(Some(Written::Value(new))),
                Err(StorageError::Conflict { .. }) => Ok(None),
                Err(error) => Err(storage_error(&error)),
            };
        }
        let encoded = self.stored_form(resource, &mut new).await?;
        match self.store().write(&bucket, namespace, name, Some(encoded), Expect::At(entry.revision)).await {
            Ok(entry) => Ok(Some(Written::Entry(entry))),
            Err(StorageError::Conflict { .. }) => Ok(None),
            Err(error) => Err(storage_error(&error)),
        }
    }

    /// Everything that must be true of a new object.
    fn check(&self, request: &ResourceRequest<'_>, object: &Value) -> Result<(), ApiError> {
        let resource = &request.resource;
        let mut errors = self.validate_metadata(resource, object);
        errors.extend((resource.strategy.validate)(object));
        errors.extend((resource.strategy.validate_create)(object));
        if resource.custom.is_some() {
            errors.extend(self.heed(request, crate::crd::validate_create(resource, object)));
        }
        refuse(resource, object.name(), errors)
    }

    fn check_update(&self, request: &ResourceRequest<'_>, new: &Value, old: &Value) -> Result<(), ApiError> {
        let (resource, subresource) = (&request.resource, request.info.subresource.as_str());
        let path = FieldPath::new("metadata");
        let mut errors = validate_metadata(&new["metadata"], resource.namespaced, names::name_is_path_segment, &path);
        errors.extend(validate_metadata_update(&new["metadata"], &old["metadata"], &path));
        if subresource.is_empty() && strategy_table::validates_all_on_update(&resource.group, &resource.plural) {
            errors.extend(validate_metadata(&new["metadata"], resource.namespaced, name_rule(resource.strategy.name_rule), &path));
        }
        if strategy_table::knows_finalizers(resource) {
            errors.extend(unknown_finalizers(new, &path.child("finalizers")));
        }
        let strategy = subresource_strategy(resource, subresource);
        if subresource == "status" {
            errors.extend((strategy.validate_status_update)(new, old));
        } else {
            errors.extend((strategy.validate)(new));
            errors.extend((strategy.validate_update)(new, old));
        }
        match (&resource.custom, subresource) {
            (None, _) => {}
            (Some(_), "status") => {
                errors.extend(self.heed(request, crate::crd::validate_object_status_update(resource, new, old)));
            }
            (Some(_), _) => errors.extend(self.heed(request, crate::crd::validate_object_update(resource, new, old))),
        }
        refuse(resource, new.name(), errors)
    }

    /// Passes the warnings of a verdict on and returns its errors.
    fn heed(&self, request: &ResourceRequest<'_>, verdict: Verdict) -> Vec<FieldError> {
        for warning in verdict.warnings {
            request.warn(warning);
        }
        verdict.errors
    }

    /// Nobody grants what they do not have.
    fn check_escalation(&self, request: &ResourceRequest<'_>, object: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        if request.resource.group != "rbac.authorization.k8s.io" {
            return Ok(());
        }
        self.authorization().check_escalation(&RbacWrite {
            user: request.user,
            resource: &request.resource.plural,
            namespace: request.namespace(),
            name: &request.info.name,
            object,
            old,
        })
    }

    fn validate_metadata(&self, resource: &Resource, object: &Value) -> Vec<FieldError> {
        let path = FieldPath::new("metadata");
        let mut errors = validate_metadata(&object["metadata"], resource.namespaced, name_rule(resource.strategy.name_rule), &path);
        if strategy_table::knows_finalizers(resource) {
            errors.extend(unknown_finalizers(object, &path.child("finalizers")));
        }
        errors
    }

    /// Whether another writer was faster: what is held against a state that is no more counts for nothing.
    fn is_beaten(&self, resource: &Resource, entry: &Entry) -> bool {
        let (namespace, name) = entry.namespace_and_name();
        let current = self.store().get(&storage_resource(resource), namespace, name);
        current.is_none_or(|current| current.revision != entry.revision)
    }

    async fn allocate(
        &self,
        resource: &Resource,
        new: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
        early: bool,
    ) -> Result<Option<Box<dyn Allocation>>, ApiError> {
        if resource.plural != "services" || !resource.group.is_empty() {
            return Ok(None);
        }
        match self.service_allocator() {
            Some(allocator) if allocator.is_early() == early => allocator.allocate(new, old, dry_run).await.map(Some),
            _ => Ok(None),
        }
    }
}

async fn settle(allocation: Option<Box<dyn Allocation>>, committed: bool) {
    match allocation {
        Some(allocation) if committed => allocation.commit().await,
        Some(allocation) => allocation.rollback().await,
        None => {}
    }
}

pub(crate) fn apply_defaults(resource: &Resource, object: &mut Value) {
    structural::default(object, resource.schema.node());
    (resource.strategy.default)(object);
}

/// What nobody meant to set is not there, before it is recorded who set what.
fn tidy(resource: &Resource, object: &mut Value) {
    let builtin = builtin();
    if Arc::ptr_eq(&resource.schema.table, &builtin.table) {
        builtin.tidy(resource.schema.node(), object);
    }
}

/// Built-in kinds are written as Go writes them.
fn normalize(resource: &Resource, object: &mut Value) {
    let builtin = builtin();
    if Arc::ptr_eq(&resource.schema.table, &builtin.table) {
        builtin.normalize(resource.schema.node(), object);
    }
}

/// The stored form.
pub(crate) fn encode(resource: &Resource, object: &mut Value) -> Encoded {
    to_storage(resource, object);
    Encoded::new(object, &fields_of(resource, object))
}

/// The rules for an update through a path: a subresource may have its own.
fn subresource_strategy(resource: &Resource, subresource: &str) -> Strategy {
    match subresource {
        "" | "status" => resource.strategy,
        other if resource.custom.is_none() => crate::strategy::of(&resource.group, &format!("{}/{other}", resource.plural)),
        _ => resource.strategy,
    }
}

/// Records in managedFields who wrote what.
fn track(resource: &Resource, manager: &Manager, live: Option<&Value>, new: &mut Value, now: &str) {
    let writer = apply::Writer {
        manager: &manager.name,
        subresource: &manager.subresource,
        api_version: &resource.api_version(),
        now,
        reset_fields: reset_fields(resource, &manager.subresource),
    };
    let empty = if live.is_none() { empty_object(resource) } else { Value::Null };
    let base = live.map_or(apply::Base::Empty(&empty), apply::Base::Live);
    apply::track(base, new, resource.schema.node(), &writer);
}

/// What a new object has before anybody sets a field, which is nobody's: the structs that upstream writes always.
pub(crate) fn empty_object(resource: &Resource) -> Value {
    let mut empty = Value::Object(serde_json::Map::new());
    let builtin = builtin();
    if Arc::ptr_eq(&resource.schema.table, &builtin.table) {
        builtin.fill_zeros(resource.schema.node(), &mut empty);
    }
    empty
}

/// Fields that writes through a path have no say in: status through the main resource, all but status
/// through `/status`.
pub(crate) fn reset_fields(resource: &Resource, subresource: &str) -> &'static FieldSet {
    static NONE: LazyLock<FieldSet> = LazyLock::new(FieldSet::new);
    static STATUS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(&["status"]));
    static SPEC_AND_STATUS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(&["spec", "status"]));
    static ALL_BUT_STATUS: LazyLock<FieldSet> = LazyLock::new(|| {
        FieldSet::of_fields(&["spec", "metadata.labels", "metadata.annotations", "metadata.finalizers", "metadata.ownerReferences"])
    });
    // What is asked for is nobody's to change.
    if resource.plural == "certificatesigningrequests" && resource.group == "certificates.k8s.io" && subresource.is_empty() {
        return &SPEC_AND_STATUS;
    }
    let has_status = match &resource.custom {
        Some(custom) => custom.has_status,
        None => resource.subresource("status").is_some(),
    };
    match subresource {
        "" if has_status => &STATUS,
        "status" => &ALL_BUT_STATUS,
        _ => &NONE,
    }
}

fn refuse(resource: &Resource, name: &str, mut errors: Vec<FieldError>) -> Result<(), ApiError> {
    let builtin = builtin();
    if Arc::ptr_eq(&resource.schema.table, &builtin.table) {
        for error in errors.iter_mut().filter(|error| error.value == Some(Value::Null)) {
            if let Some(zero) = builtin.shown_zero(resource.schema.node(), &error.path.to_string()) {
                error.value = Some(zero);
            }
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::invalid(&resource.group, &resource.kind, name, &distinct(errors))) }
}

fn check_name(request: &ResourceRequest<'_>, object: &Value) -> Result<(), ApiError> {
    let name = &request.info.name;
    if object.name().is_empty() {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if object.name() != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({name})",
            object.name()
        )));
    }
    Ok(())
}

/// Whether an update changes nothing worth a revision. The resourceVersion does not count.
fn is_same(new: &Value, old: &Value) -> bool {
    apply::equal_without(new, old, &["metadata", "resourceVersion"])
}

/// Deletion was asked for and nothing holds the object any more.
pub(crate) fn is_finished(resource: &Resource, object: &Value) -> bool {
    object.is_deleting()
        && object.finalizers().is_empty()
        && object.i64_at("/metadata/deletionGracePeriodSeconds").unwrap_or(0) == 0
        && (resource.strategy.grace != crate::strategy::Grace::Namespace || object.array_at("/spec/finalizers").is_empty())
}

/// Finalizers of built-in kinds are upstream's own, or named after a domain.
fn unknown_finalizers(object: &Value, path: &FieldPath) -> Vec<FieldError> {
    let is_known = |name: &str| name.contains('/') || matches!(name, "kubernetes" | "orphan" | "foregroundDeletion");
    let unknown = object.finalizers().into_iter().enumerate().filter(|(_, name)| !is_known(name));
    let why = "name is neither a standard finalizer name nor is it fully qualified";
    unknown.map(|(index, name)| FieldError::invalid(&path.index(index), name, why)).collect()
}

fn name_rule(rule: NameRule) -> NameFn {
    match rule {
        NameRule::DnsSubdomain => names::name_is_dns_subdomain,
        NameRule::DnsLabel => names::name_is_dns_label,
        NameRule::Dns1035Label => names::name_is_dns_1035_label,
        NameRule::PathSegment => names::name_is_path_segment,
    }
}
