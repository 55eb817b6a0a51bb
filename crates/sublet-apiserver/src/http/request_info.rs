//! What a request path asks for, as upstream's RequestInfo reads it.

use super::query::Query;
use http::Method;
use sublet_machinery::selector::FieldSelector;

/// A request, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    pub is_resource: bool,
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for
    /// non-resource requests the HTTP method in lower case.
    pub verb: &'static str,
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub subresource: String,
    pub name: String,
    /// The one name that the field selector of a list or watch asks for.
    pub selected_name: String,
    /// What follows the subresource: the path of a proxy request.
    pub rest: String,
}

impl RequestInfo {
    pub fn parse(method: &Method, path: &str, query: &Query) -> Self {
        let mut info = Self { path: path.to_string(), verb: plain_verb(method), ..Self::default() };
        // As in Go, a slash is one however it is written.
        let decoded = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
        let decoded: Vec<String> = decoded.trim_matches('/').split('/').map(str::to_string).collect();
        let mut parts: &[String] = &decoded;
        match parts {
            [root, version, _, ..] if root == "api" => {
                info.version.clone_from(version);
                parts = &parts[2..];
            }
            [root, group, version, _, ..] if root == "apis" => {
                info.group.clone_from(group);
                info.version.clone_from(version);
                parts = &parts[3..];
            }
            _ => return info,
        }
        info.is_resource = true;
        let mut verb = match *method {
            Method::POST => "create",
            Method::GET | Method::HEAD => "get",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        };
        // The deprecated form /api/v1/watch/...
        let mut watch_prefix = false;
        if parts[0] == "watch" && parts.len() > 1 {
            watch_prefix = true;
            parts = &parts[1..];
        }
        if parts[0] == "namespaces"
            && let Some(namespace) = parts.get(1)
        {
            info.namespace.clone_from(namespace);
            // `namespaces/NAME/status` and `/finalize` are about the namespace itself.
            if parts.len() > 2 && !(parts.len() == 3 && matches!(parts[2].as_str(), "status" | "finalize")) {
                parts = &parts[2..];
            }
        }
        info.resource.clone_from(&parts[0]);
        if let Some(name) = parts.get(1) {
            info.name.clone_from(name);
        }
        if let Some(subresource) = parts.get(2) {
            info.subresource.clone_from(subresource);
        }
        if parts.len() > 3 {
            info.rest = parts[3..].join("/");
            if path.ends_with('/') {
                info.rest.push('/');
            }
        }
        if info.name.is_empty() && verb == "get" {
            verb = "list";
        }
        if info.name.is_empty() && verb == "delete" {
            verb = "deletecollection";
        }
        let watches = watch_prefix || (query.bool("watch") && info.subresource.is_empty());
        // GET of one object with ?watch=true is a plain get, as upstream has it.
        if watches && (verb == "list" || (verb == "get" && watch_prefix)) {
            verb = "watch";
        }
        // Rights on one name allow to list and watch just that one.
        if info.name.is_empty()
            && matches!(verb, "list" | "watch" | "deletecollection")
            && let Some(name) = selected_name(query.get("fieldSelector"))
        {
            info.selected_name = name;
        }
        info.verb = verb;
        info
    }

    /// The name that authorization looks at.
    pub fn authorized_name(&self) -> &str {
        if self.name.is_empty() { &self.selected_name } else { &self.name }
    }
}

fn selected_name(field_selector: &str) -> Option<String> {
    let selector = FieldSelector::parse(field_selector).ok()?;
    let term = selector.terms().iter().find(|t| t.field == "metadata.name" && !t.negated && !t.value.is_empty())?;
    // As upstream, a name that could not be part of a path counts for nothing.
    (!term.value.contains(['/', '%']) && !matches!(term.value.as_str(), "." | "..")).then(|| term.value.clone())
}

fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: Method, uri: &str, expected: (&str, &str, &str, &str, &str, &str)) {
        let (path, query) = uri.split_once('?').map_or((uri, None), |(p, q)| (p, Some(q)));
        let info = RequestInfo::parse(&method, path, &Query::parse(query));
        let got = (
            info.verb,
            info.group.as_str(),
            info.namespace.as_str(),
            info.resource.as_str(),
            info.subresource.as_str(),
            info.name.as_str(),
        );
        assert_eq!(got, expected, "{uri}");
    }

    #[test]
    fn paths_are_read_as_upstream_reads_them() {
        check(Method::GET, "/api/v1/namespaces", ("list", "", "", "namespaces", "", ""));
        check(Method::GET, "/api/v1/namespaces/other", ("get", "", "other", "namespaces", "", "other"));
        check(Method::GET, "/api/v1/namespaces/other/pods", ("list", "", "other", "pods", "", ""));
        check(Method::GET, "/api/v1/namespaces/other/pods?watch=true", ("watch", "", "other", "pods", "", ""));
        check(Method::PUT, "/api/v1/namespaces/other/finalize", ("update", "", "other", "namespaces", "finalize", "other"));
        check(Method::PUT, "/api/v1/namespaces/other/status", ("update", "", "other", "namespaces", "status", "other"));
        check(Method::POST, "/api/v1/namespaces/other/pods/foo/binding", ("create", "", "other", "pods", "binding", "foo"));
        check(Method::DELETE, "/apis/apps/v1/namespaces/other/deployments", ("deletecollection", "apps", "other", "deployments", "", ""));
        check(Method::GET, "/api/v1/watch/namespaces/other/pods", ("watch", "", "other", "pods", "", ""));
        check(Method::GET, "/apis/apps/v1", ("get", "", "", "", "", ""));
        check(Method::GET, "/version", ("get", "", "", "", "", ""));
        check(Method::GET, "/api/v1/namespaces/o%74her/pods/a%2Flog", ("get", "", "other", "pods", "log", "a"));
    }

    #[test]
    fn the_rest_of_a_proxy_path_is_kept() {
        let info = RequestInfo::parse(&Method::GET, "/api/v1/namespaces/a/pods/b/proxy/x/y/", &Query::default());
        assert_eq!((info.subresource.as_str(), info.rest.as_str()), ("proxy", "x/y/"));
    }
}
