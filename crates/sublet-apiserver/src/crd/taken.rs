//! The names that definitions have in force, without reading all definitions at each write of one.

use super::view::{self, strings, text};
use crate::store::entry::Entry;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use sublet_machinery::ObjectExt;

/// What others may not take, by definition.
#[derive(Debug, Default)]
pub struct NamesInForce {
    /// By the name of the definition; read anew when its revision is another one. Held for the reading of what changed.
    known: Mutex<BTreeMap<String, (u64, Arc<Names>)>>,
}

/// The names of one definition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    definition: String,
    group: String,
    resources: Vec<String>,
    kinds: Vec<String>,
    /// Whether it has all the names that it asked for.
    pub is_accepted: bool,
}

impl Names {
    pub fn of(crd: &Value) -> Self {
        let names = &crd["status"]["acceptedNames"];
        let given = |keys: [&str; 2]| keys.map(|key| text(names, key).to_string()).into_iter().filter(|name| !name.is_empty());
        Self {
            definition: crd.name().into(),
            group: view::group(crd).into(),
            resources: given(["plural", "singular"]).chain(strings(&names["shortNames"])).collect(),
            kinds: given(["kind", "listKind"]).collect(),
            is_accepted: crd.is_condition_true("NamesAccepted"),
        }
    }

    /// Whose they are.
    pub fn definition(&self) -> &str {
        &self.definition
    }
}

impl NamesInForce {
    /// Those of all definitions as they are now.
    pub fn read(&self, definitions: &[Arc<Entry>]) -> Vec<Arc<Names>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::with_capacity(definitions.len());
        for entry in definitions {
            let (_, name) = entry.namespace_and_name();
            match known.get(name) {
                Some((revision, names)) if *revision == entry.revision => all.push(names.clone()),
                _ => {
                    let names = Arc::new(Names::of(&entry.value()));
                    known.insert(name.to_string(), (entry.revision, names.clone()));
                    all.push(names);
                }
            }
        }
        if known.len() > definitions.len() {
            known.retain(|name, _| all.iter().any(|names| names.definition == *name));
        }
        all
    }
}

/// The names that one definition cannot have.
pub(super) struct Taken<'a> {
    others: Vec<&'a Names>,
}

impl<'a> Taken<'a> {
    pub fn new(crd: &Value, all: impl Iterator<Item = &'a Names>) -> Self {
        Self { others: all.filter(|o| o.group == view::group(crd) && o.definition != crd.name()).collect() }
    }

    pub fn has_resource(&self, name: &str) -> bool {
        self.others.iter().any(|other| other.resources.iter().any(|taken| taken == name))
    }

    pub fn has_kind(&self, name: &str) -> bool {
        self.others.iter().any(|other| other.kinds.iter().any(|taken| taken == name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::entry::Encoded;
    use serde_json::json;

    fn entry(name: &str, kind: &str, revision: u64) -> Arc<Entry> {
        let object = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {"group": "ex.com"}, "status": {"acceptedNames": {"plural": name, "kind": kind}}});
        let stored = Encoded::new(&object, &[]).stored;
        Arc::new(Entry::compose(format!("crds//{name}").into(), revision, &stored).unwrap())
    }

    #[test]
    fn only_what_changed_is_read_again() {
        let names = NamesInForce::default();
        let (a, b) = (entry("as", "A", 1), entry("bs", "B", 2));
        let before = names.read(&[a.clone(), b]);
        let after = names.read(&[a.clone(), entry("bs", "C", 3)]);
        assert!(Arc::ptr_eq(&before[0], &after[0]));
        assert_eq!((before[1].kinds.as_slice(), after[1].kinds.as_slice()), (&["B".to_string()][..], &["C".to_string()][..]));
        // What is gone is forgotten.
        assert_eq!(names.read(&[a]).len(), 1);
        assert_eq!(names.known.lock().unwrap().len(), 1);
    }
}
