//! Host names inside messages, told in the tenant's words.

use super::TenantKey;
use serde_json::Value;
use sublet_machinery::ObjectExt;

/// Rewrites every host name in `text` that `lookup` knows. `NAMESPACE/NAME` of the host becomes the
/// tenant's namespace and name, as does `NAME_NAMESPACE`, the way in which kubelets tell where; a lone
/// host name becomes the tenant's name; other text stays.
pub fn to_tenant_text(text: &str, host_namespace: &str, lookup: impl Fn(&str) -> Option<TenantKey>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut namespace: Option<String> = None;
    let mut joined_to: Option<String> = None;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !is_name_char(c)).unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        let separator_end = tail.find(is_name_char).unwrap_or(tail.len());
        let (separator, next) = tail.split_at(separator_end);
        // A sentence may end in a name: its full stop is no part of it.
        let name = word.trim_end_matches('.');
        let joined = joined_to.take();
        match (joined, lookup(name)) {
            (Some(tenant), _) if name == host_namespace => {
                out.push_str(&tenant);
                out.push_str(&word[name.len()..]);
            }
            (_, Some(key)) => {
                if out.ends_with(&format!("{host_namespace}/")) {
                    out.truncate(out.len() - host_namespace.len() - 1);
                    out.push_str(&key.namespace);
                    out.push('/');
                }
                out.push_str(&key.name);
                out.push_str(&word[name.len()..]);
                joined_to = (separator == "_").then(|| key.namespace.clone());
                namespace.get_or_insert(key.namespace);
            }
            (_, None) => out.push_str(word),
        }
        out.push_str(separator);
        rest = next;
    }
    match namespace {
        // `in namespace "team-a"`, `namespace: team-a`: the words with which the host tells where.
        Some(tenant) => out
            .replace(&format!("namespace \"{host_namespace}\""), &format!("namespace \"{tenant}\""))
            .replace(&format!("namespace: {host_namespace}"), &format!("namespace: {tenant}")),
        None => out,
    }
}

/// The same for the UID, by which kubelets tell pods apart; not where it is a part of a name.
pub fn with_tenant_uid(text: String, host: &Value, tenant: &Value) -> String {
    let uid = host.uid();
    if uid.is_empty() || !text.contains(uid) {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(uid) {
        let (before, after) = (&rest[..at], &rest[at + uid.len()..]);
        out.push_str(before);
        let ends_sentence = after.trim_start_matches('.').chars().next().is_none_or(|c| !is_name_char(c));
        let alone = out.chars().next_back().is_none_or(|c| !is_name_char(c)) && ends_sentence;
        out.push_str(if alone { tenant.uid() } else { uid });
        rest = after;
    }
    out.push_str(rest);
    out
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let lookup = |name: &str| (name == "web-prod-aaaa").then(|| TenantKey::new("prod", "web"));
        assert_eq!(to_tenant_text(text, "team-a", lookup), expected);
    }

    #[test]
    fn uids_are_the_tenants() {
        let object = |uid: &str| serde_json::json!({"metadata": {"uid": uid}});
        assert_eq!(with_tenant_uid("web_prod(1-2)".into(), &object("1-2"), &object("9")), "web_prod(9)");
        assert_eq!(with_tenant_uid("web".into(), &object(""), &object("9")), "web");
        assert_eq!(with_tenant_uid("/pods/1-2/volumes, pod 1-2.".into(), &object("1-2"), &object("9")), "/pods/9/volumes, pod 9.");
        // The names of volumes and of contents of snapshots are the host's in both worlds, and are made of a UID.
        let named = "Successfully provisioned volume pvc-1-2, 1-2-x, 1-23";
        assert_eq!(with_tenant_uid(named.into(), &object("1-2"), &object("9")), named);
    }

    #[test]
    fn messages_speak_the_tenants_names() {
        check("pods \"web-prod-aaaa\" is forbidden: exceeded quota", "pods \"web\" is forbidden: exceeded quota");
        check("Successfully assigned team-a/web-prod-aaaa to node-1", "Successfully assigned prod/web to node-1");
        check("lost web-prod-aaaa.", "lost web.");
        check("pod web-prod-aaaa in namespace \"team-a\"", "pod web in namespace \"prod\"");
        check("nothing of ours in team-a/other", "nothing of ours in team-a/other");
        check("container main not found in pod web-prod-aaaa_team-a", "container main not found in pod web_prod");
        check("back-off of main in pod web-prod-aaaa_team-a(1-2)", "back-off of main in pod web_prod(1-2)");
        check("other_team-a", "other_team-a");
        check("", "");
    }
}
