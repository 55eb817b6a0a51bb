//! May this user do this? A list of modes, asked in order; the first that allows or denies decides.

pub mod escalation;
mod node;
mod rbac;
mod rule;
mod tables;

pub use rbac::{Rbac, Resolved};
pub use rule::Rule;

use crate::admission::UserInfo;
use crate::auth::authn::unauthorized;
use crate::auth::{MASTERS, UNAUTHENTICATED};
use crate::reader::Reader;
use std::sync::Arc;
use sublet_machinery::ApiError;

/// What is asked: a resource (when `path` is `None`) or a path that is none.
#[derive(Clone, Copy, Debug)]
pub struct AuthzAttributes<'a> {
    pub user: &'a UserInfo,
    /// `get`, `list`, ..., or the lower-case HTTP method for a path.
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub path: Option<&'a str>,
}

impl<'a> AuthzAttributes<'a> {
    pub fn path(user: &'a UserInfo, verb: &'a str, path: &'a str) -> Self {
        Self { user, verb, group: "", resource: "", subresource: "", namespace: "", name: "", path: Some(path) }
    }

    pub fn resource(user: &'a UserInfo, verb: &'a str, group: &'a str, resource: &'a str) -> Self {
        Self { user, verb, group, resource, subresource: "", namespace: "", name: "", path: None }
    }

    /// The answer to a client whose request is not allowed, in upstream's words.
    pub fn forbidden(&self, reason: &str) -> ApiError {
        let mut why = escape_html(&self.sentence());
        if !reason.is_empty() {
            why = format!("{why}: {reason}");
        }
        if self.resource.is_empty() {
            return ApiError::forbidden_path(format!("forbidden: {why}"));
        }
        ApiError::forbidden(self.group, self.resource, self.name, why)
    }

    fn sentence(&self) -> String {
        let (user, verb) = (&self.user.name, self.verb);
        if let Some(path) = self.path {
            return format!("User {user:?} cannot {verb} path {path:?}");
        }
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        let resource = format!("{}{slash}{}", self.resource, self.subresource);
        let scope =
            if self.namespace.is_empty() { "at the cluster scope".into() } else { format!("in the namespace {:?}", self.namespace) };
        format!("User {user:?} cannot {verb} resource {resource:?} in API group {:?} {scope}", self.group)
    }
}

/// Error texts must not read as markup.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// What an authorizer thinks. The reason costs text only when somebody reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow(Source),
    /// Nobody forbids it, and nobody here allows it; the text says what kept rules from being found.
    NoOpinion(String),
    Deny(String),
}

/// Why something is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Membership in `system:masters`, or the mode allows everything: no reason is told.
    Unconditional,
    /// A binding, described for people.
    Binding(Arc<str>),
}

impl Decision {
    pub fn allowed(&self) -> bool {
        matches!(self, Self::Allow(_))
    }

    pub fn reason(&self) -> String {
        match self {
            Self::Allow(Source::Unconditional) => String::new(),
            Self::Allow(Source::Binding(binding)) => format!("RBAC: allowed by {binding}"),
            Self::NoOpinion(reason) | Self::Deny(reason) => reason.clone(),
        }
    }
}

pub trait Authorizer: Send + Sync + 'static {
    fn authorize(&self, attributes: &AuthzAttributes<'_>) -> Decision;
}

/// As in `--authorization-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    AlwaysAllow,
    AlwaysDeny,
    Node,
    Rbac,
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "AlwaysAllow" => Ok(Self::AlwaysAllow),
            "AlwaysDeny" => Ok(Self::AlwaysDeny),
            "Node" => Ok(Self::Node),
            "RBAC" => Ok(Self::Rbac),
            other => Err(format!("{other:?} is not a mode of authorization: use AlwaysAllow, AlwaysDeny, Node or RBAC")),
        }
    }
}

/// The modes in force, and the RBAC rules that reviews and escalation checks read whatever the mode.
pub struct Authorization {
    modes: Vec<Mode>,
    reader: Arc<dyn Reader>,
    rbac: Rbac,
}

impl Authorization {
    pub fn new(modes: Vec<Mode>, reader: Arc<dyn Reader>) -> Self {
        Self { modes, rbac: Rbac::new(reader.clone()), reader }
    }

    pub fn rbac(&self) -> &Rbac {
        &self.rbac
    }

    /// What SelfSubjectRulesReview tells: all rules that apply to the user, whatever mode they come from.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> Resolved {
        let mut resolved = Resolved::default();
        for mode in &self.modes {
            match mode {
                Mode::AlwaysAllow => resolved.rules.push(Arc::new(Rule::everything())),
                // Nodes have no rules that could be listed.
                Mode::AlwaysDeny | Mode::Node => {}
                Mode::Rbac => {
                    let found = self.rbac.rules_for(user, namespace);
                    resolved.rules.extend(found.rules);
                    resolved.errors.extend(found.errors);
                }
            }
        }
        resolved
    }

    /// `Err` is what the client gets.
    pub fn check(&self, attributes: &AuthzAttributes<'_>) -> Result<(), ApiError> {
        self.settle(self.authorize(attributes), attributes)
    }

    /// What a decision means to the client.
    pub fn settle(&self, decision: Decision, attributes: &AuthzAttributes<'_>) -> Result<(), ApiError> {
        match decision {
            Decision::Allow(_) => Ok(()),
            // Where everybody may do everything, upstream takes no requests of nobody at all.
            _ if self.modes.contains(&Mode::AlwaysAllow) && has_group(attributes.user, UNAUTHENTICATED) => Err(unauthorized()),
            refused => Err(attributes.forbidden(&refused.reason())),
        }
    }
}

impl Authorizer for Authorization {
    fn authorize(&self, attributes: &AuthzAttributes<'_>) -> Decision {
        if has_group(attributes.user, MASTERS) {
            return Decision::Allow(Source::Unconditional);
        }
        let mut reasons = Vec::new();
        for mode in &self.modes {
            let decision = match mode {
                Mode::AlwaysAllow => always_allow(attributes),
                Mode::AlwaysDeny => Decision::NoOpinion("Everything is forbidden.".into()),
                Mode::Node => node::authorize(&*self.reader, &self.rbac, attributes),
                Mode::Rbac => self.rbac.authorize(attributes),
            };
            match decision {
                // Reasons of refusal carry the mode's name, as in the union authorizer of 1.37.
                Decision::NoOpinion(reason) if !reason.is_empty() => reasons.push(format!("{}: {reason}", prefix(*mode))),
                Decision::NoOpinion(_) => {}
                decided => return decided,
            }
        }
        Decision::NoOpinion(reasons.join("\n"))
    }
}

fn prefix(mode: Mode) -> &'static str {
    match mode {
        Mode::AlwaysAllow => "alwaysallow",
        Mode::AlwaysDeny => "alwaysdeny",
        Mode::Node => "node",
        Mode::Rbac => "rbac",
    }
}

/// Upstream turns anonymous requests off in this mode. Here they keep what they have under RBAC's default
/// roles, so that probes work.
fn always_allow(attributes: &AuthzAttributes<'_>) -> Decision {
    const PUBLIC: [&str; 5] = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let public = attributes.verb == "get" && attributes.path.is_some_and(|path| PUBLIC.contains(&path));
    if has_group(attributes.user, UNAUTHENTICATED) && !public {
        return Decision::NoOpinion(String::new());
    }
    Decision::Allow(Source::Unconditional)
}

pub(crate) fn has_group(user: &UserInfo, group: &str) -> bool {
    user.groups.iter().any(|g| g == group)
}
