//! Names of kinds and resources.

use std::borrow::Cow;
use std::fmt;

/// A group, version and kind, as in `apiVersion` and `kind` of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvk {
    pub group: Cow<'static, str>,
    pub version: Cow<'static, str>,
    pub kind: Cow<'static, str>,
}

/// A group, version and plural resource name, as in a request path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvr {
    pub group: Cow<'static, str>,
    pub version: Cow<'static, str>,
    pub resource: Cow<'static, str>,
}

impl Gvk {
    pub const fn new(group: &'static str, version: &'static str, kind: &'static str) -> Self {
        Self { group: Cow::Borrowed(group), version: Cow::Borrowed(version), kind: Cow::Borrowed(kind) }
    }

    pub fn owned(group: impl Into<String>, version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { group: Cow::Owned(group.into()), version: Cow::Owned(version.into()), kind: Cow::Owned(kind.into()) }
    }

    /// `v1` for the core group, `group/version` for the others.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }
}

impl Gvr {
    pub const fn new(group: &'static str, version: &'static str, resource: &'static str) -> Self {
        Self { group: Cow::Borrowed(group), version: Cow::Borrowed(version), resource: Cow::Borrowed(resource) }
    }

    pub fn owned(group: impl Into<String>, version: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: Cow::Owned(group.into()), version: Cow::Owned(version.into()), resource: Cow::Owned(resource.into()) }
    }

    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// `pods`, or `deployments.apps`: the name used in messages and storage keys.
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.resource.to_string() } else { format!("{}.{}", self.resource, self.group) }
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, Kind={}", self.api_version(), self.kind)
    }
}

impl fmt::Display for Gvr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, Resource={}", self.api_version(), self.resource)
    }
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_string() } else { format!("{group}/{version}") }
}

/// Splits `apps/v1` into group and version; `v1` has the empty group.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}
