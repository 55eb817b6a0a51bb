//! Acting as somebody else: `Impersonate-User`, `-Uid`, `-Group` and `-Extra-*`.

use crate::admission::UserInfo;
use crate::auth::authz::{Authorizer, AuthzAttributes};
use crate::auth::{ANONYMOUS, AUTHENTICATED, MASTERS, NODE_PREFIX, NODES, UNAUTHENTICATED, service_account_groups, split_service_account};
use http::HeaderMap;
use percent_encoding::percent_decode_str;
use sublet_machinery::{ApiError, names};

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA_PREFIX: &str = "impersonate-extra-";

const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";
/// The claim of a bound token that names the node of its pod.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// From so many groups or extras on, the right to all of them is asked for first.
const MANY: usize = 4;

/// The ways to act as somebody. All but the last ask twice: for the right to act as the user (`impersonate:MODE`), and
/// for the right to do what the request does while acting so (`impersonate-on:MODE:VERB`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    AssociatedNode,
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    /// The right `impersonate` is good for every request.
    Legacy,
}

impl Mode {
    const ALL: [Self; 5] = [Self::AssociatedNode, Self::ArbitraryNode, Self::ServiceAccount, Self::UserInfo, Self::Legacy];

    fn name(self) -> &'static str {
        match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => "",
        }
    }

    fn constraint(self) -> String {
        if self == Self::Legacy { String::new() } else { format!("impersonate:{}", self.name()) }
    }

    /// Whether one can act as such a user this way.
    fn applies(self, wanted: &UserInfo, user: &UserInfo) -> bool {
        let name_alone = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node_name(&wanted.name);
        let account = split_service_account(&wanted.name);
        match self {
            Self::AssociatedNode => {
                let own = user.extra.get(NODE_NAME).and_then(|nodes| if nodes.len() == 1 { nodes.first() } else { None });
                name_alone && node.is_some() && split_service_account(&user.name).is_some() && own.map(String::as_str) == node
            }
            Self::ArbitraryNode => name_alone && node.is_some(),
            Self::ServiceAccount => name_alone && account.is_some(),
            Self::UserInfo => node.is_none() && account.is_none(),
            Self::Legacy => true,
        }
    }
}

fn node_name(user: &str) -> Option<&str> {
    user.strip_prefix(NODE_PREFIX).filter(|name| names::name_is_dns_subdomain(name, false).is_empty())
}

/// The user to act as, if the request asks for one and the one who asks may, and the constraint under which they may:
/// `impersonate:MODE`, or nothing. `None`: go on as oneself.
pub fn impersonate(
    request: &AuthzAttributes<'_>,
    headers: &HeaderMap,
    authorizer: &dyn Authorizer,
) -> Result<Option<(UserInfo, String)>, ApiError> {
    let Some(wanted) = wanted(headers)? else { return Ok(None) };
    let mut first_error = None;
    for mode in Mode::ALL.into_iter().filter(|mode| mode.applies(&wanted, request.user)) {
        let attempt = Attempt { mode, request, wanted: &wanted, authorizer };
        match attempt.run() {
            Ok(user) => return Ok(Some((user, mode.constraint()))),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.expect("the last mode applies to all"))
}

/// One way of acting as one user for one request.
struct Attempt<'a> {
    mode: Mode,
    request: &'a AuthzAttributes<'a>,
    wanted: &'a UserInfo,
    authorizer: &'a dyn Authorizer,
}

impl Attempt<'_> {
    fn run(&self) -> Result<UserInfo, ApiError> {
        if self.mode != Mode::Legacy {
            let verb = format!("impersonate-on:{}:{}", self.mode.name(), self.request.verb);
            self.check(&AuthzAttributes { verb: &verb, ..*self.request })?;
        }
        let verb = if self.mode == Mode::Legacy { "impersonate".to_string() } else { self.mode.constraint() };
        // Users and groups belong to the core group in the older rules.
        let group = if self.mode == Mode::Legacy { "" } else { AUTHENTICATION_GROUP };
        let groups = self.name(&AuthzAttributes::resource(self.request.user, &verb, group, ""))?;
        if !self.wanted.uid.is_empty() {
            let uids = AuthzAttributes::resource(self.request.user, &verb, AUTHENTICATION_GROUP, "uids");
            self.check(&AuthzAttributes { name: &self.wanted.uid, ..uids })?;
        }
        self.groups(&AuthzAttributes::resource(self.request.user, &verb, group, "groups"))?;
        self.extra(&AuthzAttributes::resource(self.request.user, &verb, AUTHENTICATION_GROUP, "userextras"))?;
        Ok(with_groups(self.wanted.clone(), groups))
    }

    fn check(&self, attributes: &AuthzAttributes<'_>) -> Result<(), ApiError> {
        let decision = self.authorizer.authorize(attributes);
        if decision.allowed() { Ok(()) } else { Err(attributes.forbidden(&decision.reason())) }
    }

    /// The groups that the name alone brings, once it is allowed.
    fn name(&self, attributes: &AuthzAttributes<'_>) -> Result<Option<Vec<String>>, ApiError> {
        let name = self.wanted.name.as_str();
        if let Some((namespace, name)) = split_service_account(name) {
            self.check(&AuthzAttributes { resource: "serviceaccounts", namespace, name, ..*attributes })?;
            return Ok(Some(service_account_groups(namespace)));
        }
        match node_name(name).filter(|_| self.mode != Mode::Legacy) {
            Some(node) => {
                // Which of its own nodes it is does not matter.
                let name = if self.mode == Mode::AssociatedNode { "*" } else { node };
                self.check(&AuthzAttributes { resource: "nodes", name, ..*attributes })?;
                Ok(Some(vec![NODES.into()]))
            }
            None => self.check(&AuthzAttributes { resource: "users", name, ..*attributes }).map(|()| None),
        }
    }

    fn groups(&self, attributes: &AuthzAttributes<'_>) -> Result<(), ApiError> {
        let groups = &self.wanted.groups;
        if self.mode != Mode::Legacy {
            if groups.iter().any(String::is_empty) {
                return Err(attributes.forbidden("impersonating the empty string group is not allowed"));
            }
            if groups.iter().any(|g| g == MASTERS) {
                let masters = AuthzAttributes { name: MASTERS, ..*attributes };
                return Err(masters.forbidden("impersonating the system:masters group is not allowed"));
            }
            if groups.len() >= MANY && self.check(&AuthzAttributes { name: "*", ..*attributes }).is_ok() {
                return Ok(());
            }
        }
        groups.iter().try_for_each(|group| self.check(&AuthzAttributes { name: group, ..*attributes }))
    }

    fn extra(&self, attributes: &AuthzAttributes<'_>) -> Result<(), ApiError> {
        let extra = &self.wanted.extra;
        if self.mode != Mode::Legacy {
            if extra.iter().any(|(key, values)| key.is_empty() || values.is_empty() || values.iter().any(String::is_empty)) {
                return Err(attributes.forbidden("impersonating an empty key or value in extra is not allowed"));
            }
            let many = extra.values().map(Vec::len).sum::<usize>() >= MANY;
            if many && self.check(&AuthzAttributes { subresource: "*", name: "*", ..*attributes }).is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.check(&AuthzAttributes { subresource: key, name: value, ..*attributes })?;
            }
        }
        Ok(())
    }
}

/// The user as the headers name it.
fn wanted(headers: &HeaderMap) -> Result<Option<UserInfo>, ApiError> {
    let first = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_string();
    let texts = |name: &str| headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(Into::into).collect::<Vec<String>>();
    let mut wanted = UserInfo { name: first(USER), uid: first(UID), groups: texts(GROUP), ..UserInfo::default() };
    for name in headers.keys() {
        if let Some(encoded) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            // Keys that cannot be decoded stand as they are.
            let key = percent_decode_str(encoded).decode_utf8().map_or_else(|_| encoded.to_string(), Into::into);
            wanted.extra.entry(key).or_default().extend(texts(name.as_str()));
        }
    }
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    let others = !wanted.uid.is_empty() || !wanted.groups.is_empty() || !wanted.extra.is_empty();
    if others { Err(ApiError::bad_request(format!("requested {} without impersonating a user name", go_text(&wanted)))) } else { Ok(None) }
}

/// The user as Go prints it.
fn go_text(user: &UserInfo) -> String {
    let list = |items: &[String]| format!("{{{}}}", items.iter().map(|i| format!("{i:?}")).collect::<Vec<_>>().join(", "));
    let groups = if user.groups.is_empty() { "(nil)".into() } else { list(&user.groups) };
    let extra: Vec<String> = user.extra.iter().map(|(key, values)| format!("{key:?}:[]string{}", list(values))).collect();
    let extra = if extra.is_empty() { "(nil)".into() } else { format!("{{{}}}", extra.join(", ")) };
    format!("&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:[]string{groups}, Extra:map[string][]string{extra}}}", user.name, user.uid)
}

/// Groups that are named are all there is; without them a service account has those of its namespace.
fn with_groups(mut wanted: UserInfo, account_groups: Option<Vec<String>>) -> UserInfo {
    if let (true, Some(groups)) = (wanted.groups.is_empty(), account_groups) {
        wanted.groups = groups;
    }
    let has = |group: &str| wanted.groups.iter().any(|g| g == group);
    if wanted.name == ANONYMOUS {
        if !has(UNAUTHENTICATED) {
            wanted.groups.push(UNAUTHENTICATED.into());
        }
    } else if !has(AUTHENTICATED) && !has(UNAUTHENTICATED) {
        wanted.groups.push(AUTHENTICATED.into());
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::authz::{Decision, Source};
    use crate::auth::testing::user;
    use std::sync::Mutex;

    /// Allows all but one resource, and remembers what it was asked.
    struct AllBut(&'static str, Mutex<Vec<String>>);

    impl Authorizer for AllBut {
        fn authorize(&self, a: &AuthzAttributes<'_>) -> Decision {
            self.1.lock().unwrap().push(format!("{} {}/{} {}/{}", a.verb, a.resource, a.subresource, a.namespace, a.name));
            if a.resource == self.0 { Decision::NoOpinion(String::new()) } else { Decision::Allow(Source::Unconditional) }
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn check(pairs: &[(&'static str, &str)], refused: &'static str) -> (Result<Option<UserInfo>, String>, Vec<String>) {
        let authorizer = AllBut(refused, Mutex::default());
        let admin = user("admin", &[]);
        let request = AuthzAttributes::resource(&admin, "list", "", "pods");
        let result = impersonate(&request, &headers(pairs), &authorizer);
        let result = result.map(|found| found.map(|(user, _)| user)).map_err(|error| error.message);
        (result, authorizer.1.into_inner().unwrap())
    }

    #[test]
    fn every_part_is_checked() {
        let (result, asked) = check(&[(USER, "bob"), (GROUP, "a"), (GROUP, "b"), (UID, "7"), ("impersonate-extra-foo%2fbar", "x")], "");
        let bob = result.unwrap().unwrap();
        assert_eq!((bob.name.as_str(), bob.uid.as_str()), ("bob", "7"));
        assert_eq!(bob.groups, ["a", "b", AUTHENTICATED]);
        assert_eq!(bob.extra["foo/bar"], ["x"]);
        assert_eq!(
            asked,
            [
                "impersonate-on:user-info:list pods/ /",
                "impersonate:user-info users/ /bob",
                "impersonate:user-info uids/ /7",
                "impersonate:user-info groups/ /a",
                "impersonate:user-info groups/ /b",
                "impersonate:user-info userextras/foo/bar /x",
            ]
        );
    }

    #[test]
    fn service_accounts_have_the_groups_of_their_namespace() {
        let (result, asked) = check(&[(USER, "system:serviceaccount:y:builder")], "");
        assert_eq!(result.unwrap().unwrap().groups, ["system:serviceaccounts", "system:serviceaccounts:y", AUTHENTICATED]);
        assert_eq!(asked, ["impersonate-on:serviceaccount:list pods/ /", "impersonate:serviceaccount serviceaccounts/ y/builder"]);
        assert_eq!(check(&[(USER, ANONYMOUS)], "").0.unwrap().unwrap().groups, [UNAUTHENTICATED]);
    }

    #[test]
    fn refusals_name_what_is_missing() {
        assert_eq!(check(&[], "").0, Ok(None));
        assert_eq!(
            check(&[(USER, "bob"), (GROUP, "system:masters")], "groups").0.unwrap_err(),
            r#"groups.authentication.k8s.io "system:masters" is forbidden: User "admin" cannot impersonate:user-info resource "groups" in API group "authentication.k8s.io" at the cluster scope: impersonating the system:masters group is not allowed"#
        );
        assert!(check(&[(GROUP, "a")], "").0.unwrap_err().contains("without impersonating a user"));
    }

    #[test]
    fn the_older_right_is_good_for_everything() {
        let (result, asked) = check(&[(USER, "bob"), (GROUP, MASTERS)], "pods");
        assert_eq!(result.unwrap().unwrap().groups, [MASTERS, AUTHENTICATED]);
        assert_eq!(asked, ["impersonate-on:user-info:list pods/ /", "impersonate users/ /bob", "impersonate groups/ /system:masters"]);
        let (result, asked) = check(&[(USER, "system:node:n1")], "");
        assert_eq!(result.unwrap().unwrap().groups, [NODES, AUTHENTICATED]);
        assert_eq!(asked, ["impersonate-on:arbitrary-node:list pods/ /", "impersonate:arbitrary-node nodes/ /n1"]);
    }
}
