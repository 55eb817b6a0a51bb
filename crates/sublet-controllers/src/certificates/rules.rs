//! What each signer demands of a request, in upstream's words.

use sublet_pki::Request;

pub(super) const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub(super) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(super) const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

type Rule = fn(&Request, &[&str]) -> Result<(), String>;

/// The signers of Kubernetes whose requests can be made in `certificates.k8s.io/v1`.
const SIGNERS: [(&str, Rule); 3] = [(CLIENT, client), (KUBELET_CLIENT, kubelet_client), (KUBELET_SERVING, kubelet_serving)];

const NODES_GROUP: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";
const CLIENT_AUTH: &str = "client auth";
const SERVER_AUTH: &str = "server auth";
const SIGNATURE: &str = "digital signature";
const ENCIPHERMENT: &str = "key encipherment";

/// The rule of a signer; `None`: it is not one of ours.
pub(super) fn of(signer: &str) -> Option<Rule> {
    SIGNERS.iter().find(|(name, _)| *name == signer).map(|(_, rule)| *rule)
}

fn client(_: &Request, usages: &[&str]) -> Result<(), String> {
    if let Some(other) = usages.iter().find(|u| ![CLIENT_AUTH, SIGNATURE, ENCIPHERMENT].contains(u)) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    if usages.contains(&CLIENT_AUTH) { Ok(()) } else { Err(format!("missing required usage for client certificate: {CLIENT_AUTH}")) }
}

pub(super) fn kubelet_client(request: &Request, usages: &[&str]) -> Result<(), String> {
    of_nodes(request)?;
    let kinds = [(request.dns_names, "DNS"), (request.emails, "Email"), (request.ip_addresses, "IP"), (request.uris, "URI")];
    none_of(&kinds)?;
    of_a_node(request)?;
    exactly(CLIENT_AUTH, usages)
}

fn kubelet_serving(request: &Request, usages: &[&str]) -> Result<(), String> {
    of_nodes(request)?;
    if request.dns_names + request.ip_addresses == 0 {
        return Err("DNS or IP subjectAltName is required".into());
    }
    none_of(&[(request.emails, "Email"), (request.uris, "URI")])?;
    exactly(SERVER_AUTH, usages)?;
    of_a_node(request)
}

fn of_nodes(request: &Request) -> Result<(), String> {
    if request.organizations == [NODES_GROUP] { Ok(()) } else { Err(format!("subject organization is not {NODES_GROUP}")) }
}

fn of_a_node(request: &Request) -> Result<(), String> {
    if request.common_name.starts_with(NODE_PREFIX) {
        Ok(())
    } else {
        Err(format!("subject common name does not begin with {NODE_PREFIX}"))
    }
}

fn none_of(kinds: &[(usize, &str)]) -> Result<(), String> {
    match kinds.iter().find(|(count, _)| *count > 0) {
        Some((_, kind)) => Err(format!("{kind} subjectAltNames are not allowed")),
        None => Ok(()),
    }
}

/// The purpose with what a handshake takes; keys that encipher nothing may leave that out.
fn exactly(purpose: &str, usages: &[&str]) -> Result<(), String> {
    let mut wanted = [SIGNATURE, ENCIPHERMENT, purpose];
    let known = usages.iter().all(|u| wanted.contains(u));
    if known && usages.contains(&SIGNATURE) && usages.contains(&purpose) {
        return Ok(());
    }
    wanted.sort_unstable();
    Err(format!("usages did not match [{}]", wanted.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(common_name: &str, organizations: &[&str]) -> Request {
        let organizations = organizations.iter().map(ToString::to_string).collect();
        Request { common_name: common_name.into(), organizations, ..Request::default() }
    }

    fn check(signer: &str, request: &Request, usages: &[&str], wrong: &str) {
        let verdict = of(signer).expect("a signer of ours")(request, usages);
        assert_eq!(verdict.err().unwrap_or_default(), wrong, "{signer} {request:?} {usages:?}");
    }

    #[test]
    fn clients_ask_for_what_clients_need() {
        let anybody = request("hello-world", &["some-org"]);
        check(CLIENT, &anybody, &[CLIENT_AUTH, SIGNATURE, ENCIPHERMENT], "");
        check(CLIENT, &anybody, &[CLIENT_AUTH], "");
        check(CLIENT, &anybody, &[SERVER_AUTH, CLIENT_AUTH, SIGNATURE], "invalid usage for client certificate: server auth");
        check(CLIENT, &anybody, &[SIGNATURE], "missing required usage for client certificate: client auth");
    }

    #[test]
    fn kubelets_are_nodes_without_other_names() {
        let node = || request("system:node:hello-world", &["system:nodes"]);
        let usages = [CLIENT_AUTH, SIGNATURE, ENCIPHERMENT];
        let check = |request: &Request, usages: &[&str], wrong| check(KUBELET_CLIENT, request, usages, wrong);
        check(&node(), &usages, "");
        check(&node(), &usages[..2], "");
        check(&node(), &usages[..1], "usages did not match [client auth digital signature key encipherment]");
        check(&node(), &[CLIENT_AUTH, SIGNATURE, SERVER_AUTH], "usages did not match [client auth digital signature key encipherment]");
        check(&request("mike", &["system:nodes"]), &usages, "subject common name does not begin with system:node:");
        check(&request("system:node:a", &["system:nodes", "more"]), &usages, "subject organization is not system:nodes");
        check(&request("system:node:a", &[]), &usages, "subject organization is not system:nodes");
        check(&Request { dns_names: 1, ..node() }, &usages, "DNS subjectAltNames are not allowed");
        check(&Request { ip_addresses: 1, ..node() }, &usages, "IP subjectAltNames are not allowed");
        check(&Request { emails: 1, ..node() }, &usages, "Email subjectAltNames are not allowed");
        check(&Request { uris: 1, ..node() }, &usages, "URI subjectAltNames are not allowed");
    }

    #[test]
    fn kubelets_serve_under_names_of_their_own() {
        let node = || Request { dns_names: 1, ..request("system:node:testnode", &["system:nodes"]) };
        let usages = [SERVER_AUTH, SIGNATURE, ENCIPHERMENT];
        let check = |request: &Request, usages: &[&str], wrong| check(KUBELET_SERVING, request, usages, wrong);
        check(&node(), &usages, "");
        check(&node(), &usages[..2], "");
        check(&Request { dns_names: 0, ip_addresses: 1, ..node() }, &usages, "");
        check(&Request { dns_names: 0, ..node() }, &usages, "DNS or IP subjectAltName is required");
        check(&Request { uris: 1, ..node() }, &usages, "URI subjectAltNames are not allowed");
        check(&node(), &[CLIENT_AUTH, SIGNATURE], "usages did not match [digital signature key encipherment server auth]");
        check(
            &Request { dns_names: 1, ..request("x", &["system:nodes"]) },
            &usages,
            "subject common name does not begin with system:node:",
        );
        assert!(of("example.com/other").is_none() && of("kubernetes.io/legacy-unknown").is_none());
    }
}
