//! The only place where tenant names turn into host names and back.

mod keys;
mod metadata;
mod names;
mod selector;
mod text;

pub use keys::{HostKey, TenantKey};
pub(crate) use metadata::stamp;
pub use metadata::{host_annotations, host_labels, host_meta_key, label_value, owner_text};
pub use names::{NAME_BYTES_MAX_LABEL, NAME_BYTES_MAX_POD, NAME_BYTES_MAX_SUBDOMAIN, Names, TenantIdentity};
pub use selector::{Namespaces, scoped_map_selector, scoped_selector};
pub use text::{to_tenant_text, with_tenant_uid};
