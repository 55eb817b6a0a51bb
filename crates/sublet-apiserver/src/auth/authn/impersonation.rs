//! Acting as somebody else: `Impersonate-User`, `-Uid`, `-Group` and `-Extra-*`.

use crate::admission::UserInfo;
use crate::auth::authz::{Authorizer, AuthzAttributes};
use crate::auth::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, service_account_groups, split_service_account};
use http::HeaderMap;
use percent_encoding::percent_decode_str;
use sublet_machinery::ApiError;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA_PREFIX: &str = "impersonate-extra-";

const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// The user to act as, if the request asks for one and the one who asks may. `None`: go on as oneself.
pub fn impersonate(user: &UserInfo, headers: &HeaderMap, authorizer: &dyn Authorizer) -> Result<Option<UserInfo>, ApiError> {
    let Some(wanted) = wanted(headers)? else { return Ok(None) };
    let check = |attributes: AuthzAttributes<'_>| {
        let decision = authorizer.authorize(&attributes);
        if decision.allowed() { Ok(()) } else { Err(attributes.forbidden(&decision.reason())) }
    };
    let attributes = |group: &'static str, resource: &'static str| AuthzAttributes::resource(user, "impersonate", group, resource);
    let account = split_service_account(&wanted.name);
    match account {
        Some((namespace, name)) => check(AuthzAttributes { namespace, name, ..attributes("", "serviceaccounts") })?,
        None => check(AuthzAttributes { name: &wanted.name, ..attributes("", "users") })?,
    }
    for group in &wanted.groups {
        check(AuthzAttributes { name: group, ..attributes("", "groups") })?;
    }
    for (key, values) in &wanted.extra {
        for value in values {
            check(AuthzAttributes { name: value, subresource: key, ..attributes(AUTHENTICATION_GROUP, "userextras") })?;
        }
    }
    if !wanted.uid.is_empty() {
        check(AuthzAttributes { name: &wanted.uid, ..attributes(AUTHENTICATION_GROUP, "uids") })?;
    }
    let account_groups = account.map(|(namespace, _)| service_account_groups(namespace));
    Ok(Some(with_groups(wanted, account_groups)))
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
        let result = impersonate(&user("admin", &[]), &headers(pairs), &authorizer).map_err(|error| error.message);
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
                "impersonate users/ /bob",
                "impersonate groups/ /a",
                "impersonate groups/ /b",
                "impersonate userextras/foo/bar /x",
                "impersonate uids/ /7"
            ]
        );
    }

    #[test]
    fn service_accounts_have_the_groups_of_their_namespace() {
        let (result, asked) = check(&[(USER, "system:serviceaccount:y:builder")], "");
        assert_eq!(result.unwrap().unwrap().groups, ["system:serviceaccounts", "system:serviceaccounts:y", AUTHENTICATED]);
        assert_eq!(asked, ["impersonate serviceaccounts/ y/builder"]);
        assert_eq!(check(&[(USER, ANONYMOUS)], "").0.unwrap().unwrap().groups, [UNAUTHENTICATED]);
    }

    #[test]
    fn refusals_name_what_is_missing() {
        assert_eq!(check(&[], "").0, Ok(None));
        assert_eq!(
            check(&[(USER, "bob"), (GROUP, "system:masters")], "groups").0.unwrap_err(),
            r#"groups "system:masters" is forbidden: User "admin" cannot impersonate resource "groups" in API group "" at the cluster scope"#
        );
        assert!(check(&[(GROUP, "a")], "").0.unwrap_err().contains("without impersonating a user"));
    }
}
