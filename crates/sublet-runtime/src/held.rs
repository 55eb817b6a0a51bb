//! Objects at rest in an informer.

use crate::resources::{
    CLUSTER_ROLES, CONFIG_MAPS, EVENTS, NAMESPACES, PRIORITY_CLASSES, SECRETS, SERVICE_ACCOUNTS, STORAGE_CLASSES, VIRTUAL_CLUSTERS,
};
use serde_json::Value;
use std::sync::{Arc, Weak};
use sublet_machinery::Gvr;

/// Kinds that every cluster has many of and that are read one at a time: a parsed object takes five to
/// ten times the memory of its text, and reading the text costs microseconds.
const KEPT_AS_TEXT: [Gvr; 9] =
    [CLUSTER_ROLES, CONFIG_MAPS, EVENTS, NAMESPACES, PRIORITY_CLASSES, SECRETS, SERVICE_ACCOUNTS, STORAGE_CLASSES, VIRTUAL_CLUSTERS];

/// An object, parsed or as text. Cheap to clone.
#[derive(Clone)]
pub(crate) enum Held {
    Parsed(Arc<Value>),
    Text(Arc<str>),
}

impl Held {
    /// `as_text` as [`is_kept_as_text`] says.
    pub fn new(object: &Arc<Value>, as_text: bool) -> Self {
        if as_text { Self::Text(object.to_string().into()) } else { Self::Parsed(object.clone()) }
    }

    /// Whether it is this object, parsed.
    pub fn is_parsed(&self, object: &Weak<Value>) -> bool {
        matches!(self, Self::Parsed(own) if std::ptr::eq(Arc::as_ptr(own), object.as_ptr()))
    }

    pub fn become_text(&mut self) {
        if let Self::Parsed(object) = self {
            *self = Self::new(object, true);
        }
    }

    pub fn object(&self) -> Arc<Value> {
        match self {
            Self::Parsed(object) => object.clone(),
            Self::Text(text) => Arc::new(serde_json::from_str(text).expect("it was written from an object")),
        }
    }
}

pub(crate) fn is_kept_as_text(gvr: &Gvr) -> bool {
    KEPT_AS_TEXT.contains(gvr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_comes_back_as_it_was() {
        let object = Arc::new(json!({"metadata": {"name": "a", "labels": {"x": "\u{7f}\"ü"}}, "data": {"n": 1.5e300, "big": u64::MAX}}));
        for as_text in [false, true] {
            let mut held = Held::new(&object, as_text);
            assert_eq!(held.object(), object);
            held.become_text();
            assert_eq!(held.object(), object);
        }
    }
}
