//! Who sends a request, as whom, and whether they may; and what is told about that in the audit log.

use super::Server;
use super::connect::is_connection;
use super::handle::{InProcess, Peer, attributes};
use super::metrics::Authentication;
use super::security::ISSUER;
use crate::admission::UserInfo;
use crate::audit::{AUDIT_ID, AuditConfig, Auditor, Record, audit_id};
use crate::auth::authn::impersonation::impersonate;
use crate::auth::authn::{Authenticated, Certified, Remark, bearer, unauthorized};
use crate::auth::authz::{Authorizer as _, Decision, has_group};
use crate::auth::jwt::AuthenticationConfiguration;
use crate::auth::{MASTERS, UNAUTHENTICATED};
use crate::flow::{Classified, LEVEL_UID, SCHEMA_UID, Seat};
use crate::http::{HttpResponse, Query, RequestInfo, respond};
use http::request::Parts;
use http::{HeaderName, HeaderValue};
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
    classified: Option<Classified>,
    /// What the client is told about its credential.
    warning: Option<&'static str>,
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
        if let Some(warning) = self.warning {
            respond::add_warnings(response, &[warning.to_string()]);
        }
        let headers = response.headers_mut();
        if let Some(id) = self.id {
            headers.entry(AUDIT_ID).or_insert(id);
        }
        if let Some(Classified { schema_uid, level_uid }) = &self.classified {
            for (name, uid) in [(SCHEMA_UID, schema_uid), (LEVEL_UID, level_uid)] {
                headers.extend(HeaderValue::from_str(uid).ok().map(|uid| (HeaderName::from_static(name), uid)));
            }
        }
    }
}

/// Whether a request is one of the server's own loops, in the same process.
pub(super) fn is_own(parts: &Parts) -> bool {
    parts.extensions.get::<InProcess>().is_some_and(|InProcess(user)| has_group(user, MASTERS))
}

/// There is no seat for a request.
pub(super) struct TooManyRequests;

impl Server {
    pub(super) fn trail(&self, parts: &Parts) -> Trail {
        let auditor = self.auditor();
        let named = auditor.is_some() || parts.extensions.get::<InProcess>().is_none();
        Trail {
            id: named.then(|| audit_id(parts)),
            received: self.clock_now(),
            auditor,
            record: None,
            refused: false,
            classified: None,
            warning: None,
        }
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
        let user = match check_timeout(query.get("timeout")) {
            Ok(()) => self.authenticate(parts, info).await,
            Err(error) => Err(error),
        };
        trail.begin(parts, user.as_ref().ok().map(|known| &known.user), info);
        let Authenticated { user, remark, .. } = user?;
        if let Some(Remark { annotation: (key, value), warning }) = remark {
            trail.annotate(key, &value);
            trail.warning = warning;
        }
        if let Some(record) = &trail.record {
            record.received().await;
        }
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

    /// From now on the tokens of these issuers are believed, and no others beside the server's own.
    pub fn set_authentication(&self, config: &AuthenticationConfiguration) -> Result<(), String> {
        self.security().jwt.replace(config, &[ISSUER.to_string()])
    }

    async fn authenticate(&self, parts: &Parts, info: &RequestInfo) -> Result<Authenticated, ApiError> {
        if let Some(InProcess(user)) = parts.extensions.get::<InProcess>() {
            return Ok(Authenticated::new(UserInfo::clone(user)));
        }
        if let Some(token) = bearer::token(&parts.headers) {
            self.prepare_token(&token).await;
        }
        let user = self.who_sent(parts);
        let is_unknown = |known: &Authenticated| has_group(&known.user, UNAUTHENTICATED);
        let result = match &user {
            Ok(known) if is_unknown(known) => None,
            Ok(_) => Some(Authentication::Success),
            Err(_) if bearer::token(&parts.headers).is_none() => Some(Authentication::Failure),
            Err(_) => Some(Authentication::Error),
        };
        if let Some(result) = result {
            self.metrics().authenticated(result);
        }
        let user = user?;
        if is_unknown(&user) && !self.security().jwt.allows_anonymous(&info.path) {
            return Err(unauthorized());
        }
        Ok(user)
    }

    /// Whoever issued the token is asked for keys, when that is needed to judge it.
    pub(super) async fn prepare_token(&self, token: &str) {
        self.security().jwt.prepare(token, self.store(), self.outgoing()).await;
    }

    fn who_sent(&self, parts: &Parts) -> Result<Authenticated, ApiError> {
        let now = self.clock_now();
        let certified = match parts.extensions.get::<Peer>() {
            None => Certified::Nobody,
            Some(Peer::User { user, until }) if *until >= now => Certified::User(user),
            Some(_) => Certified::Refused,
        };
        let user = self.security().authenticator.authenticate(certified, &parts.headers, now);
        self.mark_used_tokens();
        user
    }

    /// A place among the requests in work, for as long as the seat is held: a watch holds it until it has begun. Streams
    /// to pods need none, nor do the server's own loops. `Err`: there is none, the client comes back later.
    pub(super) async fn seat(
        &self,
        parts: &Parts,
        user: &UserInfo,
        info: &RequestInfo,
        trail: &mut Trail,
    ) -> Result<Option<Seat>, TooManyRequests> {
        if is_own(parts) || is_connection(info) {
            return Ok(None);
        }
        let (classified, seat) = self.flow().enter(self.store(), user, info).await;
        trail.classified = Some(classified);
        seat.map(Some).ok_or(TooManyRequests)
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
