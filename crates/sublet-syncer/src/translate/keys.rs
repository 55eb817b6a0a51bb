//! Keys of the two worlds. They are different types, so that none is taken for the other.

use serde_json::Value;
use std::fmt;
use sublet_machinery::{NamespacedName, ObjectExt};

macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name {
            pub namespace: String,
            pub name: String,
        }

        impl $name {
            pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
                Self { namespace: namespace.into(), name: name.into() }
            }

            pub fn of(object: &Value) -> Self {
                Self::new(object.namespace(), object.name())
            }

            /// The form that informers use.
            pub fn namespaced(&self) -> NamespacedName {
                NamespacedName::new(&*self.namespace, &*self.name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
            }
        }
    };
}

key! {
    /// Namespace and name inside a tenant.
    TenantKey
}
key! {
    /// Namespace and name on the host.
    HostKey
}
