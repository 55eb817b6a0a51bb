//! Who sends a request, as whom, and whether they may; and what is told about that in the audit log.

use super::Server;
use super::handle::{InProcess, Peer, attributes};
use crate::admission::UserInfo;
use crate::audit::{AUDIT_ID, AuditConfig, Auditor, Record, audit_id};
use crate::auth::authn::Certified;
use crate::auth::authn::impersonation::impersonate;
use crate::auth::authz::{Authorizer as _, Decision};
use crate::http::{HttpResponse, Query, RequestInfo};
use http::HeaderValue;
use http::request::Parts;
use jiff::Timestamp;
use std::sync::Arc;
use sublet_machinery::ApiError;
use sublet_machinery::structural::format::parse_go_duration;

/// What follows a request through the server, for whoever audits.
pub(super) struct Trail {
    /// Requests from within the process that nobody audits have no name.
    id: Option<HeaderValue>,
    received: Timestamp,
    auditor: Option<Arc<Auditor>>,
    record: Option<Arc<Record>>,
    /// It was refused before anybody knew who sent it.
    refused: bool,
}

impl Trail {
    pub(super) fn record(&self) -> Option<&Record> {
        self.record.as_deref()
    }

    fn begin(&mut self, parts: &Parts, user: Option<&UserInfo>, info: &RequestInfo) {
        let (Some(auditor), Some(id)) = (self.auditor.take(), &self.id) else { return };
        self.record = Record::begin(auditor, &String::from_utf8_lossy(id.as_bytes()), parts, user, info, self.received);
        self.refused = user.is_none();
    }

    fn annotate(&self, key: &str, value: &str) {
        if let Some(record) = &self.record {
            record.annotate(key, value);
        }
    }

    /// The answer is known: it is told, and tells the name of the request.
    pub(super) async fn end(mut self, response: &mut HttpResponse, long_running: bool) {
        match self.record.take() {
            Some(record) if self.refused => record.refused(response).await,
            Some(record) => record.answered(response, long_running).await,
            None => {}
        }
        if let Some(id) = self.id {
            response.headers_mut().entry(AUDIT_ID).or_insert(id);
        }
    }
}

impl Server {
    pub(super) fn trail(&self, parts: &Parts) -> Trail {
        let auditor = self.auditor();
        let named = auditor.is_some() || parts.extensions.get::<InProcess>().is_none();
        Trail { id: named.then(|| audit_id(parts)), received: self.clock_now(), auditor, record: None, refused: false }
    }

    /// From now on requests are audited this way, or not at all.
    pub async fn set_audit(&self, config: Option<AuditConfig>) -> std::io::Result<()> {
        let auditor = config.map(Auditor::open).transpose()?.map(Arc::new);
        let before = std::mem::replace(&mut *self.inner.auditor.write().expect("no holder of this lock panics"), auditor);
        if let Some(before) = before {
            before.close().await;
        }
        Ok(())
    }

    pub(super) fn auditor(&self) -> Option<Arc<Auditor>> {
        self.inner.auditor.read().expect("no holder of this lock panics").clone()
    }

    /// The user that the request is made as.
    pub(super) async fn identify(&self, parts: &Parts, query: &Query, info: &RequestInfo, trail: &mut Trail) -> Result<UserInfo, ApiError> {
        let user = check_timeout(query.get("timeout")).and_then(|()| self.authenticate(parts));
        trail.begin(parts, user.as_ref().ok(), info);
        if let Some(record) = &trail.record {
            record.received().await;
        }
        let user = user?;
        let acting = impersonate(&attributes(&user, info), &parts.headers, &*self.security().authorization)?;
        Ok(match acting {
            Some((acting, constraint)) => {
                if let Some(record) = &trail.record {
                    record.impersonated(&acting, &constraint);
                }
                acting
            }
            None => user,
        })
    }

    fn authenticate(&self, parts: &Parts) -> Result<UserInfo, ApiError> {
        if let Some(InProcess(user)) = parts.extensions.get::<InProcess>() {
            return Ok(UserInfo::clone(user));
        }
        let now = self.clock_now();
        let certified = match parts.extensions.get::<Peer>() {
            None => Certified::Nobody,
            Some(Peer::User { user, until }) if *until >= now => Certified::User(user),
            Some(_) => Certified::Refused,
        };
        self.security().authenticator.authenticate(certified, &parts.headers, now)
    }

    pub(super) fn authorize_request(&self, user: &UserInfo, info: &RequestInfo, trail: &Trail) -> Result<(), ApiError> {
        let attributes = attributes(user, info);
        if trail.record.is_none() {
            return self.authorization().check(&attributes);
        }
        let decision = self.authorization().authorize(&attributes);
        trail.annotate("authorization.k8s.io/decision", if matches!(decision, Decision::Allow(_)) { "allow" } else { "forbid" });
        trail.annotate("authorization.k8s.io/reason", &decision.reason());
        self.authorization().settle(decision, &attributes)
    }

    pub(super) fn authorize(&self, user: &UserInfo, info: &RequestInfo) -> Result<(), ApiError> {
        self.authorization().check(&attributes(user, info))
    }
}

/// How long the client waits is its own affair, but it must say so in Go's notation.
fn check_timeout(timeout: &str) -> Result<(), ApiError> {
    if timeout.is_empty() || parse_go_duration(timeout).is_some() {
        return Ok(());
    }
    Err(ApiError::bad_request(format!("invalid timeout specified in the request URL - time: invalid duration {timeout:?}")))
}
