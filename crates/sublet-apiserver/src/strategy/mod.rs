//! What the schema cannot say about a kind, as pure functions: dependent defaults, system fields,
//! cross-field rules, immutability.

mod aggregation;
mod apps;
mod autoscaling;
mod batch;
mod certificates;
mod conditions;
mod coordination;
mod core;
mod devices;
mod disruption;
pub(crate) mod edit;
pub(crate) mod field;
mod flow_control;
pub(crate) mod metadata;
mod networking;
pub(crate) mod pod;
pub(crate) mod quantities;
mod rbac;
mod registration;
mod scheduling;
mod status;
mod storage;
mod table;

pub use pod::validate_binding;
pub use table::{deprecation, of};

pub(crate) use flow_control::{MANDATORY_FLOW_NAMES, mandatory_level, mandatory_schema};
use serde_json::Value;
use sublet_machinery::FieldError;

/// How an object of the kind is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Grace {
    /// At once, unless finalizers hold it.
    #[default]
    None,
    /// As pods: `spec.terminationGracePeriodSeconds`, until somebody deletes with zero.
    Pod,
    /// As namespaces: the phase becomes Terminating and `spec.finalizers` hold it.
    Namespace,
}

/// The rules of one kind. Every function has a default that does nothing, so that a row names only what it has.
#[derive(Clone, Copy, Debug)]
pub struct Strategy {
    /// Defaults that the schema cannot state. Runs after schema defaulting, on create, update and read
    /// of objects stored before the default existed. Must be idempotent.
    pub default: fn(&mut Value),
    /// Clears what clients may not set on create (status), fills what the server sets.
    pub prepare_create: fn(&mut Value),
    /// `(new, given)`: what preparation of a new object needs to know of it as it came, before defaults.
    pub prepare_given: Option<fn(&mut Value, &Value)>,
    /// `(new, old)`: an update of the main resource keeps status and the like from the old object.
    pub prepare_update: fn(&mut Value, &Value),
    /// `(new, old)`: an update of `/status` keeps everything but status.
    pub prepare_status_update: fn(&mut Value, &Value),
    pub validate: fn(&Value) -> Vec<FieldError>,
    /// What holds only for new objects; `validate` runs as well.
    pub validate_create: fn(&Value) -> Vec<FieldError>,
    /// `(new, old)`; `validate` of the new object has run as well.
    pub validate_update: fn(&Value, &Value) -> Vec<FieldError>,
    pub validate_status_update: fn(&Value, &Value) -> Vec<FieldError>,
    /// What upstream fails over while it reads an object of right types.
    pub readable: fn(&Value) -> Result<(), String>,
    /// Texts for the Warning header, on create and update.
    pub warnings: fn(&Value) -> Vec<String>,
    /// `(new, old)`: the texts for an update, where they are not those for a create.
    pub warnings_update: Option<fn(&Value, &Value) -> Vec<String>>,
    /// Fields for field selectors beside metadata.name and metadata.namespace.
    pub fields: fn(&Value) -> Vec<(&'static str, String)>,
    /// Under which name [`Strategy::fields`] has what a selector of this version names; empty: nowhere.
    pub field_named: fn(&str) -> &str,
    pub grace: Grace,
    /// `metadata.generation` starts at 1 and rises with every change outside metadata and status.
    pub generation: bool,
    /// `(new, old)`: whether the update raises it; most kinds compare all outside metadata and status.
    pub changes_generation: fn(&Value, &Value) -> bool,
    /// Names are checked as this; metadata validation picks the rule.
    pub name_rule: NameRule,
    /// PUT of an object that does not exist creates it.
    pub create_on_update: bool,
    /// An update without resourceVersion is accepted.
    pub unconditional_update: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NameRule {
    #[default]
    DnsSubdomain,
    DnsLabel,
    /// RFC 1035: services.
    Dns1035Label,
    /// Path segments: RBAC objects.
    PathSegment,
}

/// Upstream tells an error once, however often it is found.
pub fn distinct(errors: Vec<FieldError>) -> Vec<FieldError> {
    let mut seen = std::collections::BTreeSet::new();
    errors.into_iter().filter(|error| seen.insert(error.to_string())).collect()
}

impl Strategy {
    /// No rules beyond metadata.
    pub const PLAIN: Self = Self {
        default: |_| {},
        prepare_create: |_| {},
        prepare_given: None,
        prepare_update: |_, _| {},
        prepare_status_update: keep_all_but_status,
        validate: |_| Vec::new(),
        validate_create: |_| Vec::new(),
        validate_update: |_, _| Vec::new(),
        validate_status_update: |_, _| Vec::new(),
        readable: |_| Ok(()),
        warnings: |_| Vec::new(),
        warnings_update: None,
        fields: |_| Vec::new(),
        field_named: |name| name,
        grace: Grace::None,
        generation: false,
        changes_generation: spec_changed,
        name_rule: NameRule::DnsSubdomain,
        create_on_update: false,
        unconditional_update: true,
    };

    /// What an update of the main resource warns of.
    pub fn warn_of_update(&self, new: &Value, old: &Value) -> Vec<String> {
        match self.warnings_update {
            Some(warnings) => warnings(new, old),
            None => (self.warnings)(new),
        }
    }

    /// The usual kind with spec and status: status belongs to `/status`, spec changes bump the generation.
    pub const SPEC_AND_STATUS: Self = Self { prepare_create: drop_status, prepare_update: keep_status, generation: true, ..Self::PLAIN };
}

/// Drops fields behind gates that are off by default from what pods are made of, unless the old object has them.
pub(crate) fn drop_gated(group: &str, plural: &str, new: &mut Value, old: Option<&Value>) {
    let Some((job, pod)) = templates(group, plural) else { return };
    let before = |path: &str| old.and_then(|old| old.pointer(path)).unwrap_or(&Value::Null);
    if let Some(spec) = new.pointer_mut(pod) {
        pod::prepare::drop_gated(spec, before(pod));
    }
    if let Some(spec) = job.and_then(|path| new.pointer_mut(path)).and_then(Value::as_object_mut)
        && job.is_some_and(|path| before(path)["scheduling"].is_null())
    {
        spec.remove("scheduling");
    }
}

/// Where an object of the resource has the specification of a job, and of a pod.
fn templates(group: &str, plural: &str) -> Option<(Option<&'static str>, &'static str)> {
    match (group, plural) {
        ("", "replicationcontrollers") | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets") => {
            Some((None, "/spec/template/spec"))
        }
        ("", "podtemplates") => Some((None, "/template/spec")),
        ("batch", "jobs") => Some((Some("/spec"), "/spec/template/spec")),
        ("batch", "cronjobs") => Some((Some("/spec/jobTemplate/spec"), "/spec/jobTemplate/spec/template/spec")),
        _ => None,
    }
}

/// Whether anything differs outside metadata and status.
pub fn spec_changed(new: &Value, old: &Value) -> bool {
    fn rest(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
        object.as_object().into_iter().flatten().filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status"))
    }
    !rest(new).eq(rest(old))
}

pub fn drop_status(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
}

pub fn keep_status(new: &mut Value, old: &Value) {
    if let Some(map) = new.as_object_mut() {
        match old.get("status") {
            Some(status) => map.insert("status".into(), status.clone()),
            None => map.remove("status"),
        };
    }
}

/// Takes the status, and of the metadata only what the system manages, from `new`; the rest from `old`.
pub fn keep_all_but_status(new: &mut Value, old: &Value) {
    let status = new.get("status").cloned();
    let managed_fields = new["metadata"].get("managedFields").cloned();
    let resource_version = new["metadata"].get("resourceVersion").cloned();
    *new = old.clone();
    if let Some(map) = new.as_object_mut() {
        match status {
            Some(status) => map.insert("status".into(), status),
            None => map.remove("status"),
        };
    }
    for (key, value) in [("managedFields", managed_fields), ("resourceVersion", resource_version)] {
        if let Some(value) = value {
            new["metadata"][key] = value;
        }
    }
}
