//! The operations of a group version, from its rows; both OpenAPI versions render them.

use super::names::{self, Names};
use super::parameters::{self as p, Parameter};
use crate::registry::{Resource, Subresource};
use sublet_machinery::Gvk;

/// A path and what can be done there.
#[derive(Debug)]
pub(super) struct PathItem {
    pub path: String,
    pub operations: Vec<Operation>,
}

#[derive(Debug)]
pub(super) struct Operation {
    /// Lower case, as in the documents.
    pub method: &'static str,
    pub id: String,
    pub tag: String,
    pub description: String,
    pub action: Option<&'static str>,
    pub kind: Option<Gvk>,
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    /// Codes that answer with `answer`; 401 is always there.
    pub codes: &'static [u16],
    pub answer: Type,
    pub produces: &'static [&'static str],
    /// Only version 2 tells what a request without body may consume.
    pub consumes: &'static [&'static str],
}

#[derive(Debug)]
pub(super) struct Body {
    pub of: String,
    pub required: bool,
    pub consumes: &'static [&'static str],
}

/// What an answer is.
#[derive(Clone, Debug)]
pub(super) enum Type {
    /// A published type by its full name.
    Named(String),
    Text,
}

/// All paths of a row.
pub(super) fn paths(row: &Resource) -> Vec<PathItem> {
    let writer = Writer::new(row);
    let mut items = writer.collection();
    items.extend(writer.item());
    if row.custom.is_none() && row.has_verb("watch") {
        items.extend(writer.watches());
    }
    for subresource in &row.subresources {
        items.extend(writer.subresource(subresource));
    }
    items.retain(|item| !item.operations.is_empty());
    items
}

struct Writer<'a> {
    row: &'a Resource,
    names: Names,
    /// `/apis/apps/v1`
    base: String,
    /// `namespaces/{namespace}/deployments`
    collection: String,
    produces: &'static [&'static str],
    /// `Namespaced`, or nothing.
    scope: &'static str,
}

impl<'a> Writer<'a> {
    fn new(row: &'a Resource) -> Self {
        let collection = if row.namespaced { format!("namespaces/{{namespace}}/{}", row.plural) } else { row.plural.clone() };
        Self {
            row,
            names: Names::of(&row.group, &row.version),
            base: names::base_path(&row.group, &row.version),
            collection,
            produces: if row.custom.is_some() { CUSTOM } else { BUILTIN },
            scope: if row.namespaced { "Namespaced" } else { "" },
        }
    }

    /// An operation that answers with an object of the kind.
    fn operation(&self, method: &'static str, verb: &str, rest: &str, action: &'static str, description: String) -> Operation {
        Operation {
            method,
            id: format!("{verb}{}{rest}", self.names.title),
            tag: self.names.tag.clone(),
            description,
            action: Some(action),
            kind: Some(self.row.gvk()),
            parameters: vec![p::PRETTY],
            body: None,
            codes: &[200],
            answer: Type::Named(names::kind_type(self.row)),
            produces: self.produces,
            consumes: if self.row.custom.is_some() { CUSTOM } else { ANY },
        }
    }

    fn body(&self, of: String, required: bool) -> Option<Body> {
        Some(Body { of, required, consumes: if self.row.custom.is_some() { CUSTOM } else { ANY } })
    }

    fn scoped(&self, path: String, mut operations: Vec<Operation>, with_name: bool) -> PathItem {
        for operation in &mut operations {
            if with_name {
                operation.parameters.push(p::NAME);
            }
            if path.contains("{namespace}") {
                operation.parameters.push(p::NAMESPACE);
            }
        }
        PathItem { path, operations }
    }

    fn list(&self, rest: &str) -> Operation {
        let kind = &self.row.kind;
        let or_watch = if self.row.custom.is_none() && self.row.has_verb("watch") { " or watch" } else { "" };
        let mut list = self.operation("get", "list", rest, "list", format!("list{or_watch} objects of kind {kind}"));
        list.answer = Type::Named(names::list_type(self.row));
        list.parameters.extend(p::LIST);
        if self.row.custom.is_none() {
            list.produces = BUILTIN_STREAM;
        }
        list
    }

    fn collection(&self) -> Vec<PathItem> {
        let (row, scope, kind) = (self.row, self.scope, &self.row.kind);
        let mut operations = Vec::new();
        if row.has_verb("list") {
            operations.push(self.list(&format!("{scope}{kind}")));
        }
        if row.has_verb("create") {
            operations.push(self.create(
                "create",
                &format!("{scope}{kind}"),
                names::kind_type(row),
                format!("create {}", with_article(kind)),
            ));
        }
        if row.has_verb("deletecollection") {
            let rest = format!("Collection{scope}{kind}");
            let mut delete = self.operation("delete", "delete", &rest, "deletecollection", format!("delete collection of {kind}"));
            delete.answer = Type::Named(STATUS.into());
            // Upstream documents custom resources with the parameters of lists, and without a body.
            if row.custom.is_some() {
                delete.parameters.extend(p::LIST);
            } else {
                delete.parameters.extend(p::DELETE_COLLECTION);
                delete.body = self.body(DELETE_OPTIONS.into(), false);
            }
            operations.push(delete);
        }
        let mut items = vec![self.scoped(format!("{}/{}", self.base, self.collection), operations, false)];
        if row.namespaced && row.has_verb("list") {
            let all = self.list(&format!("{kind}ForAllNamespaces"));
            items.push(PathItem { path: format!("{}/{}", self.base, row.plural), operations: vec![all] });
        }
        items
    }

    fn item(&self) -> Vec<PathItem> {
        let (row, kind) = (self.row, &self.row.kind);
        let rest = format!("{}{kind}", self.scope);
        let mut operations = self.read_and_write(&rest, &row.verbs, names::kind_type(row), row.gvk(), "");
        if row.has_verb("delete") {
            let mut delete = self.operation("delete", "delete", &rest, "delete", format!("delete {}", with_article(kind)));
            let returns_object = row.custom.is_none() && DELETE_RETURNS_OBJECT.contains(&row.plural.as_str());
            if !returns_object {
                delete.answer = Type::Named(STATUS.into());
            }
            delete.codes = &[200, 202];
            delete.parameters.extend(p::DELETE);
            delete.body = self.body(DELETE_OPTIONS.into(), false);
            operations.push(delete);
        }
        vec![self.scoped(format!("{}/{}/{{name}}", self.base, self.collection), operations, true)]
    }

    fn watches(&self) -> Vec<PathItem> {
        let (row, scope, kind) = (self.row, self.scope, &self.row.kind);
        let watch = |rest: String, action: &'static str| {
            let what = if action == "watch" { "an object" } else { "a list" };
            let text = format!("watch changes to {what} of kind {kind}. Deprecated: use the 'watch' parameter of the list.");
            let mut watch = self.operation("get", "watch", &rest, action, text);
            watch.answer = Type::Named(WATCH_EVENT.into());
            watch.parameters.extend(p::LIST);
            watch.produces = BUILTIN_STREAM;
            watch
        };
        let list = watch(format!("{scope}{kind}List"), "watchlist");
        let one = watch(format!("{scope}{kind}"), "watch");
        let mut items = vec![
            self.scoped(format!("{}/watch/{}", self.base, self.collection), vec![list], false),
            self.scoped(format!("{}/watch/{}/{{name}}", self.base, self.collection), vec![one], true),
        ];
        if row.namespaced {
            let all = watch(format!("{kind}ListForAllNamespaces"), "watchlist");
            items.push(PathItem { path: format!("{}/watch/{}", self.base, row.plural), operations: vec![all] });
        }
        items
    }

    fn create(&self, verb: &str, rest: &str, of: String, description: String) -> Operation {
        let mut create = self.operation("post", verb, rest, "post", description);
        create.codes = &[200, 201, 202];
        create.parameters.extend(p::WRITE);
        create.answer = Type::Named(of.clone());
        create.body = self.body(of, true);
        create
    }

    /// get, put and patch of an object or subresource.
    fn read_and_write(&self, rest: &str, verbs: &[String], of: String, kind: Gvk, part: &str) -> Vec<Operation> {
        let custom = self.row.custom.is_some();
        let has = |verb: &str| verbs.iter().any(|v| v == verb);
        let what = format!("{part}the specified {}", self.row.kind);
        let mut operations = Vec::new();
        if has("get") {
            let mut get = self.operation("get", "read", rest, "get", format!("read {what}"));
            if custom {
                get.parameters.push(p::RESOURCE_VERSION);
            }
            operations.push(get);
        }
        if has("update") {
            let mut put = self.operation("put", "replace", rest, "put", format!("replace {what}"));
            put.codes = &[200, 201];
            put.parameters.extend(p::WRITE);
            put.body = self.body(of.clone(), true);
            operations.push(put);
        }
        if has("patch") {
            let mut patch = self.operation("patch", "patch", rest, "patch", format!("partially update {what}"));
            patch.codes = if custom { &[200] } else { &[200, 201] };
            patch.parameters.extend(p::PATCH);
            patch.body = Some(Body { of: PATCH.into(), required: true, consumes: if custom { CUSTOM_PATCHES } else { PATCHES } });
            operations.push(patch);
        }
        for operation in &mut operations {
            operation.answer = Type::Named(of.clone());
            operation.kind = Some(kind.clone());
        }
        operations
    }

    fn subresource(&self, subresource: &Subresource) -> Vec<PathItem> {
        let path = format!("{}/{}/{{name}}/{}", self.base, self.collection, subresource.name);
        if let Some((methods, parameters)) = connect(&subresource.name) {
            return self.connects(subresource, path, methods, parameters);
        }
        let rest = format!("{}{}{}", self.scope, self.row.kind, names::capitalized(&subresource.name));
        if subresource.name == "log" {
            let mut log = self.operation("get", "read", &rest, "get", format!("read log of the specified {}", self.row.kind));
            log.answer = Type::Text;
            log.produces = LOGS;
            log.parameters = p::LOG.to_vec();
            return vec![self.scoped(path, vec![log], true)];
        }
        let of = names::subresource_type(self.row, subresource);
        // Upstream names the kind of the custom resource for its scale as well.
        let kind = if self.row.custom.is_some() { self.row.gvk() } else { subresource.kind.clone() };
        let part = format!("{} of ", subresource.name);
        let mut operations = self.read_and_write(&rest, &subresource.verbs, of.clone(), kind.clone(), &part);
        if subresource.verbs.iter().any(|v| v == "create") {
            let text = format!("create {} of {}", subresource.name, with_article(&self.row.kind));
            operations.push(Operation { kind: Some(kind), ..self.create("create", &rest, of, text) });
        }
        vec![self.scoped(path, operations, true)]
    }

    fn connects(&self, subresource: &Subresource, path: String, methods: &[&'static str], parameters: &[Parameter]) -> Vec<PathItem> {
        let rest = format!("{}{}{}", self.scope, self.row.kind, names::capitalized(&subresource.name));
        let connect = |method: &'static str, suffix: &str| {
            let verb = method.to_uppercase();
            let text = format!("connect {verb} requests to {} of {}", subresource.name, self.row.kind);
            let mut connect = self.operation(method, "connect", "", "connect", text);
            connect.id = format!("connect{}{}{rest}{suffix}", self.names.title, names::capitalized(method));
            connect.kind = Some(subresource.kind.clone());
            connect.answer = Type::Text;
            connect.produces = ANY;
            connect.parameters = parameters.to_vec();
            connect
        };
        let mut items = Vec::new();
        if subresource.name == "proxy" {
            let with_path = methods.iter().map(|method| {
                let mut operation = connect(method, "WithPath");
                operation.parameters.push(p::PATH);
                operation
            });
            items.push(self.scoped(format!("{path}/{{path}}"), with_path.collect(), true));
        }
        items.push(self.scoped(path, methods.iter().map(|method| connect(method, "")).collect(), true));
        items
    }
}

/// The methods and parameters of a subresource that is a stream or a proxy.
fn connect(subresource: &str) -> Option<(&'static [&'static str], &'static [Parameter])> {
    const STREAM: &[&str] = &["get", "post"];
    const ALL: &[&str] = &["get", "put", "post", "delete", "options", "head", "patch"];
    match subresource {
        "attach" => Some((STREAM, p::ATTACH)),
        "exec" => Some((STREAM, p::EXEC)),
        "portforward" => Some((STREAM, &[p::PORTS])),
        "proxy" => Some((ALL, &[p::PATH_QUERY])),
        _ => None,
    }
}

fn with_article(kind: &str) -> String {
    match kind.chars().next() {
        Some(first) if "AEIOU".contains(first) => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

pub(super) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const WATCH_EVENT: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

pub(super) const ANY: &[&str] = &["*/*"];
pub(super) const BUILTIN: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const BUILTIN_STREAM: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
const CUSTOM: &[&str] = &["application/json", "application/yaml"];
const LOGS: &[&str] = &["text/plain", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
const CUSTOM_PATCHES: &[&str] = &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

/// Their delete answers with the object instead of a Status.
const DELETE_RETURNS_OBJECT: &[&str] = &[
    "persistentvolumeclaims",
    "pods",
    "podtemplates",
    "resourcequotas",
    "serviceaccounts",
    "services",
    "persistentvolumes",
    "deviceclasses",
    "resourceclaims",
    "resourceclaimtemplates",
    "resourceslices",
    "csidrivers",
    "csinodes",
    "storageclasses",
    "volumeattachments",
    "volumeattributesclasses",
];
