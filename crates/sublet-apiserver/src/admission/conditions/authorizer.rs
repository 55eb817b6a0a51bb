//! `authorizer` in expressions: may somebody do something?

use super::super::{Attributes, UserInfo};
use crate::auth::authz::{Authorization, Authorizer, AuthzAttributes, Decision};
use crate::cel::{AUTHORIZER, DECISION, Extension, GROUP_CHECK, Opaque, PATH_CHECK, RESOURCE_CHECK, Val};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// Who asks, and about which request.
#[derive(Clone)]
pub(in super::super) struct Asker {
    authorization: Arc<Authorization>,
    user: Arc<UserInfo>,
    request: Resource,
}

#[derive(Clone, Debug, Default)]
struct Resource {
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

impl Asker {
    pub(in super::super) fn new(authorization: &Arc<Authorization>, attributes: &Attributes<'_>) -> Self {
        Self {
            authorization: authorization.clone(),
            user: Arc::new(attributes.user.clone()),
            request: Resource {
                group: attributes.resource.group.clone(),
                resource: attributes.resource.plural.clone(),
                subresource: attributes.subresource.into(),
                namespace: attributes.namespace_seen().into(),
                name: attributes.name.into(),
            },
        }
    }

    pub(super) fn value<'v>(&self) -> Val<'v> {
        Question::wrap(self.clone(), Step::Root)
    }
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").field("user", &self.user.name).finish_non_exhaustive()
    }
}

/// A question as far as an expression has put it, or its answer.
#[derive(Debug)]
struct Question {
    asker: Asker,
    step: Step,
}

#[derive(Clone, Debug)]
enum Step {
    Root,
    Path(String),
    Group(String),
    Resource(Resource),
    Answer { allowed: bool, reason: String },
}

impl Question {
    fn wrap<'v>(asker: Asker, step: Step) -> Val<'v> {
        Val::Opaque(Opaque::Extension(Rc::new(Self { asker, step })))
    }

    fn then<'v>(&self, step: Step) -> Val<'v> {
        Self::wrap(self.asker.clone(), step)
    }

    fn ask<'v>(&self, attributes: &AuthzAttributes<'_>) -> Val<'v> {
        let decision = self.asker.authorization.authorize(attributes);
        self.then(Step::Answer { allowed: matches!(decision, Decision::Allow(_)), reason: decision.reason() })
    }

    fn acting_as<'v>(&self, namespace: &str, name: &str) -> Val<'v> {
        let groups = ["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}"), "system:authenticated".into()];
        let user = UserInfo { name: format!("system:serviceaccount:{namespace}:{name}"), groups: groups.into(), ..UserInfo::default() };
        Self::wrap(Asker { user: Arc::new(user), ..self.asker.clone() }, Step::Root)
    }
}

impl Extension for Question {
    fn type_name(&self) -> &'static str {
        match self.step {
            Step::Root => AUTHORIZER,
            Step::Path(_) => PATH_CHECK,
            Step::Group(_) => GROUP_CHECK,
            Step::Resource(_) => RESOURCE_CHECK,
            Step::Answer { .. } => DECISION,
        }
    }

    fn field<'v>(&self, name: &str) -> Option<Val<'v>> {
        match (&self.step, name) {
            (Step::Root, "requestResource") => Some(self.then(Step::Resource(self.asker.request.clone()))),
            _ => None,
        }
    }

    fn call<'v>(&self, function: &str, args: &[Val<'v>]) -> Option<Result<Val<'v>, String>> {
        let text = |index: usize| args.get(index).and_then(Val::as_str).unwrap_or_default().to_string();
        let narrowed = |resource: &Resource, narrow: &dyn Fn(&mut Resource)| {
            let mut next = resource.clone();
            narrow(&mut next);
            self.then(Step::Resource(next))
        };
        Some(Ok(match (&self.step, function) {
            (Step::Root, "path") if text(0).is_empty() => return Some(Err("path must not be empty".into())),
            (Step::Root, "path") => self.then(Step::Path(text(0))),
            (Step::Root, "group") => self.then(Step::Group(text(0))),
            (Step::Root, "serviceAccount") => self.acting_as(&text(0), &text(1)),
            (Step::Group(group), "resource") => {
                self.then(Step::Resource(Resource { group: group.clone(), resource: text(0), ..Resource::default() }))
            }
            (Step::Resource(resource), "subresource") => narrowed(resource, &|r| r.subresource = text(0)),
            (Step::Resource(resource), "namespace") => narrowed(resource, &|r| r.namespace = text(0)),
            (Step::Resource(resource), "name") => narrowed(resource, &|r| r.name = text(0)),
            // RBAC knows no selectors: an answer for all is one for some.
            (Step::Resource(resource), "fieldSelector" | "labelSelector") => narrowed(resource, &|_| {}),
            (Step::Path(path), "check") => self.ask(&AuthzAttributes::path(&self.asker.user, &text(0), path)),
            (Step::Resource(r), "check") => self.ask(&AuthzAttributes {
                subresource: &r.subresource,
                namespace: &r.namespace,
                name: &r.name,
                ..AuthzAttributes::resource(&self.asker.user, &text(0), &r.group, &r.resource)
            }),
            (Step::Answer { allowed, .. }, "allowed") => Val::Bool(*allowed),
            (Step::Answer { reason, .. }, "reason") => Val::text(reason),
            (Step::Answer { .. }, "errored") => Val::Bool(false),
            (Step::Answer { .. }, "error") => Val::text(""),
            _ => return None,
        }))
    }
}
