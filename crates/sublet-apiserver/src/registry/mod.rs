//! The table that routes, discovery, OpenAPI, printing and storage are derived from: a row per resource.

mod builtin;

pub use builtin::builtin_rows;
pub(crate) use builtin::storage_group_version;

use crate::strategy::Strategy;
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};
use sublet_machinery::{Gvk, Gvr, Schema};

/// A subresource and the kind it speaks.
#[derive(Clone, Debug, PartialEq)]
pub struct Subresource {
    /// `status`, `scale`, `binding`, ...
    pub name: String,
    pub kind: Gvk,
    /// `get`, `patch`, `update`, `create`, `delete`.
    pub verbs: Vec<String>,
    /// Where a scale subresource finds its numbers.
    pub scale: Option<ScalePaths>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ScalePaths {
    /// JSON pointers: `/spec/replicas`, `/status/replicas`.
    pub spec_replicas: String,
    pub status_replicas: String,
    /// A pointer to a selector: a string for custom resources, a LabelSelector or plain map for built-ins.
    pub label_selector: Option<String>,
}

/// A column of `kubectl get`.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub value_type: String,
    pub format: String,
    pub description: String,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: i32,
    pub cell: Cell,
}

/// Makes a cell of an object; ages need to know the time.
pub type CellCode = fn(&serde_json::Value, &crate::table::Printing<'_>) -> serde_json::Value;

/// How the value of a column is found.
#[derive(Clone)]
pub enum Cell {
    /// A JSONPath as in `additionalPrinterColumns`.
    JsonPath(String),
    /// Code: some columns of built-in kinds count or format.
    Code(CellCode),
}

/// A resource at one version: built-in and custom alike.
#[derive(Clone, Debug)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    pub subresources: Vec<Subresource>,
    pub columns: Vec<Column>,
    pub schema: Schema,
    /// The version whose form is stored. Equal to `version` for most rows.
    pub storage_version: String,
    pub strategy: Strategy,
    /// Set for custom resources.
    pub custom: Option<Custom>,
}

/// What only custom resources have.
#[derive(Clone, Debug, Default)]
pub struct Custom {
    /// Name and UID of the CustomResourceDefinition.
    pub crd: String,
    pub crd_uid: String,
    /// The resourceVersion of the definition that the row was made from.
    pub crd_revision: u64,
    /// What was written later has all defaults of the schema; what was not may lack some when it is read.
    pub complete_after: u64,
    /// JSON paths of `selectableFields`.
    pub selectable_fields: Vec<String>,
    pub has_status: bool,
    pub preserve_unknown: bool,
    /// Printed as a Warning header on every request: a deprecated version.
    pub deprecation_warning: Option<String>,
    /// The definition is being deleted: creates are forbidden, what is there can be read and deleted.
    pub terminating: bool,
    /// The compiled `x-kubernetes-validations`, if there are any.
    pub rules: Option<Arc<crate::crd::Rules>>,
    /// Who converts between its versions, where that is more than a name.
    pub conversion: Option<Arc<crate::crd::Conversion>>,
}

impl Resource {
    pub fn gvr(&self) -> Gvr {
        Gvr::owned(self.group.clone(), self.version.clone(), self.plural.clone())
    }

    pub fn gvk(&self) -> Gvk {
        Gvk::owned(self.group.clone(), self.version.clone(), self.kind.clone())
    }

    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `pods`, `deployments.apps`: the name in storage, reads by plugins, and messages.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Where upstream's Go code has the kind, which some of its messages tell: `core`, `apps`, `rbac`.
    pub fn internal_package(&self) -> &str {
        if self.group.is_empty() { "core" } else { self.group.split('.').next().unwrap_or_default() }
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::JsonPath(path) => write!(f, "JsonPath({path})"),
            Self::Code(_) => f.write_str("Code"),
        }
    }
}

impl PartialEq for Cell {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::JsonPath(a), Self::JsonPath(b)) => a == b,
            (Self::Code(a), Self::Code(b)) => std::ptr::fn_addr_eq(*a, *b),
            _ => false,
        }
    }
}

/// The rows in force at one moment. Requests hold one snapshot from start to end.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// By (group, version, plural).
    pub resources: BTreeMap<(String, String, String), Arc<Resource>>,
    /// Group versions that other servers serve; only discovery shows them here.
    pub external: Vec<External>,
    /// Rises with every change: caches of documents compare it.
    pub generation: u64,
}

/// A group version that has no rows: behind an APIService with a `spec.service`, or of figures that are kept elsewhere.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct External {
    pub group: String,
    pub version: String,
    /// `groupPriorityMinimum` and `versionPriority` of the APIService.
    pub group_priority: i64,
    pub version_priority: i64,
    /// The `resources` of the version in aggregated discovery, as the other server told them last.
    pub resources: Vec<serde_json::Value>,
    /// Whether they were told just now: otherwise their `freshness` is `Stale`.
    pub current: bool,
    /// Answered by this server, from figures that it gets elsewhere.
    pub own: bool,
}

impl Snapshot {
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&(group.to_string(), version.to_string(), plural.to_string()))
    }

    /// The row of a kind.
    pub fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.in_version(group, version).find(|r| r.kind == kind)
    }

    /// The rows of a group, without a look at those of a thousand others.
    pub fn in_group<'s>(&'s self, group: &str) -> impl Iterator<Item = &'s Arc<Resource>> {
        let from = (group.to_string(), String::new(), String::new());
        self.resources.range(from..).take_while(move |((g, ..), _)| g == group).map(|(_, row)| row)
    }

    /// The rows of a group version.
    pub fn in_version<'s>(&'s self, group: &str, version: &str) -> impl Iterator<Item = &'s Arc<Resource>> {
        let from = (group.to_string(), version.to_string(), String::new());
        self.resources.range(from..).take_while(move |((g, v, _), _)| g == group && v == version).map(|(_, row)| row)
    }
}

/// The rows of one API server; custom resources come and go.
#[derive(Debug, Default)]
pub struct Registry {
    current: RwLock<Arc<Snapshot>>,
}

impl Registry {
    pub fn new(rows: impl IntoIterator<Item = Arc<Resource>>) -> Self {
        let registry = Self::default();
        registry.change(|next| next.resources.extend(rows.into_iter().map(|r| (key(&r), r))));
        registry
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.read().expect("no holder of this lock panics").clone()
    }

    /// Replaces all rows of a custom resource definition; no rows removes it.
    pub fn set_custom(&self, crd: &str, rows: Vec<Arc<Resource>>) {
        self.change(|next| {
            next.resources.retain(|_, r| r.custom.as_ref().is_none_or(|c| c.crd != crd));
            next.resources.extend(rows.into_iter().map(|r| (key(&r), r)));
        });
    }

    /// Adds the rows of definitions that none are known of: all at once, where one after the other would copy the
    /// table as often as there are definitions.
    pub fn add_custom(&self, rows: impl IntoIterator<Item = Arc<Resource>>) {
        self.change(|next| next.resources.extend(rows.into_iter().map(|r| (key(&r), r))));
    }

    /// Replaces what other servers serve.
    pub fn set_external(&self, external: Vec<External>) {
        self.change(|next| next.external = external);
    }

    fn change(&self, edit: impl FnOnce(&mut Snapshot)) {
        let mut current = self.current.write().expect("no holder of this lock panics");
        let mut next = Snapshot::clone(&current);
        edit(&mut next);
        next.generation += 1;
        *current = Arc::new(next);
    }
}

fn key(resource: &Resource) -> (String, String, String) {
    (resource.group.clone(), resource.version.clone(), resource.plural.clone())
}

/// A row for unit tests.
#[cfg(test)]
pub(crate) fn test_resource(group: &str, version: &str, plural: &str, kind: &str, strategy: Strategy) -> Resource {
    let mut table = sublet_machinery::Table::new();
    let root = table.push(sublet_machinery::Node::default());
    Resource {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        list_kind: format!("{kind}List"),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        verbs: Vec::new(),
        subresources: Vec::new(),
        columns: Vec::new(),
        schema: Schema { table: Arc::new(table), root },
        storage_version: version.into(),
        strategy,
        custom: None,
    }
}
