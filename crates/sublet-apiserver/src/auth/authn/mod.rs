//! Who sent a request: a client certificate, a bearer token, or nobody known.

pub(crate) mod bearer;
pub mod certificate;
pub mod impersonation;
mod token_file;

pub use token_file::{StaticTokens, TokenFileError};

use crate::admission::UserInfo;
use crate::auth::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED};
use http::HeaderMap;
use jiff::Timestamp;
use std::sync::Arc;
use sublet_machinery::ApiError;

/// A user, and for which of the audiences asked for the token is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    pub user: UserInfo,
    pub audiences: Vec<String>,
    pub remark: Option<Remark>,
}

impl Authenticated {
    pub(crate) fn new(user: UserInfo) -> Self {
        Self { user, audiences: Vec::new(), remark: None }
    }
}

/// What there is to say about a credential that is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// For the audit log.
    pub annotation: (&'static str, String),
    /// For the client.
    pub warning: Option<&'static str>,
}

/// What the client certificate of a connection says.
#[derive(Clone, Copy, Debug)]
pub enum Certified<'a> {
    /// There is none, or it names nobody.
    Nobody,
    /// See [`certificate::user`].
    User(&'a UserInfo),
    /// It is of a stranger, over, or not for clients.
    Refused,
}

/// One way to tell whose a token is.
pub trait TokenAuthenticator: Send + Sync + 'static {
    /// `None`: not a token of this kind. `Err`: it is, and it is not good; the text is for logs and TokenReviews.
    fn authenticate_token(&self, token: &str, audiences: &[String], now: Timestamp) -> Result<Option<Authenticated>, String>;
}

/// All ways of one server, asked in order.
pub struct Authenticator {
    tokens: Vec<Arc<dyn TokenAuthenticator>>,
    /// Those by which this server is meant.
    audiences: Vec<String>,
    /// Whether requests without credentials go on as `system:anonymous`.
    anonymous: bool,
}

impl Authenticator {
    pub fn new(tokens: Vec<Arc<dyn TokenAuthenticator>>, audiences: Vec<String>, anonymous: bool) -> Self {
        Self { tokens, audiences, anonymous }
    }

    /// A good certificate comes before a token, a token before a bad certificate.
    pub fn authenticate(&self, certified: Certified<'_>, headers: &HeaderMap, now: Timestamp) -> Result<Authenticated, ApiError> {
        if let Certified::User(user) = certified {
            return Ok(Authenticated::new(with_authenticated_group(user.clone())));
        }
        if let Some(token) = bearer::token(headers) {
            return match self.token(&token, &self.audiences, now) {
                Ok(authenticated) => Ok(authenticated),
                Err(reason) => {
                    tracing::debug!(reason, "a bearer token was refused");
                    Err(unauthorized())
                }
            };
        }
        let refused = matches!(certified, Certified::Refused);
        if self.anonymous && !refused { Ok(Authenticated::new(anonymous())) } else { Err(unauthorized()) }
    }

    /// Whose the token is; the error is the text of a TokenReview.
    pub fn token(&self, token: &str, audiences: &[String], now: Timestamp) -> Result<Authenticated, String> {
        let audiences = if audiences.is_empty() { &self.audiences } else { audiences };
        let mut errors = Vec::new();
        for authenticator in &self.tokens {
            match authenticator.authenticate_token(token, audiences, now) {
                Ok(Some(found)) => return Ok(Authenticated { user: with_authenticated_group(found.user), ..found }),
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        errors.insert(0, "invalid bearer token".into());
        match errors.as_slice() {
            [only] => Err(only.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }

    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }
}

/// What clients get for credentials that are not good, whatever is wrong with them.
pub fn unauthorized() -> ApiError {
    ApiError::unauthorized("Unauthorized")
}

pub fn anonymous() -> UserInfo {
    UserInfo { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..UserInfo::default() }
}

fn with_authenticated_group(mut user: UserInfo) -> UserInfo {
    let told = user.groups.iter().any(|g| g == AUTHENTICATED || g == UNAUTHENTICATED);
    if user.name != ANONYMOUS && !told {
        user.groups.push(AUTHENTICATED.into());
    }
    user
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authenticator(anonymous: bool) -> Authenticator {
        let tokens = StaticTokens::parse("good,alice,1,\"dev,ops\"\n", vec!["api".into()]).unwrap();
        Authenticator::new(vec![Arc::new(tokens)], vec!["api".into()], anonymous)
    }

    fn headers(authorization: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert("authorization", value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_good_token_names_its_user() {
        let user = authenticator(true).authenticate(Certified::Nobody, &headers(Some("bearer good")), Timestamp::UNIX_EPOCH).unwrap().user;
        assert_eq!(user.name, "alice");
        assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
    }

    #[test]
    fn a_bad_token_is_not_anonymous() {
        let error = authenticator(true).authenticate(Certified::Nobody, &headers(Some("Bearer bad")), Timestamp::UNIX_EPOCH).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (401, "Unauthorized"));
    }

    #[test]
    fn a_bad_certificate_is_nobody_s_but_leaves_the_token() {
        let check = |authorization| authenticator(true).authenticate(Certified::Refused, &headers(authorization), Timestamp::UNIX_EPOCH);
        assert_eq!(check(None).unwrap_err().code, 401);
        assert_eq!(check(Some("Bearer bad")).unwrap_err().code, 401);
        assert_eq!(check(Some("Bearer good")).unwrap().user.name, "alice");
    }

    #[test]
    fn nobody_is_anonymous_where_that_is_allowed() {
        for authorization in [None, Some("Basic xyz"), Some("Bearer "), Some("Bearer")] {
            let user = authenticator(true).authenticate(Certified::Nobody, &headers(authorization), Timestamp::UNIX_EPOCH).unwrap().user;
            assert_eq!((user.name.as_str(), user.groups.as_slice()), (ANONYMOUS, &[UNAUTHENTICATED.to_string()][..]));
            assert_eq!(
                authenticator(false).authenticate(Certified::Nobody, &headers(authorization), Timestamp::UNIX_EPOCH).unwrap_err().code,
                401
            );
        }
    }
}
