//! The file that tells clients where a cluster is and who they are.

use crate::CertifiedKey;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// How the client proves who it is.
#[derive(Clone, Debug)]
pub enum Credential<'a> {
    Certificate(&'a CertifiedKey),
    Token(&'a str),
}

/// One cluster, one user, one context.
#[derive(Clone, Debug)]
pub struct Kubeconfig<'a> {
    /// Names the cluster and the context.
    pub cluster: &'a str,
    /// `https://host:port`.
    pub server: &'a str,
    pub authority_pem: &'a str,
    pub user: &'a str,
    pub credential: Credential<'a>,
    /// The namespace that commands use when they name none.
    pub namespace: Option<&'a str>,
}

impl Kubeconfig<'_> {
    /// The file's text, in YAML.
    pub fn render(&self) -> String {
        let encode = |text: &str| BASE64_STANDARD.encode(text);
        let credential = match self.credential {
            Credential::Certificate(key) => {
                format!("    client-certificate-data: {}\n    client-key-data: {}\n", encode(&key.certificate_pem), encode(&key.key_pem))
            }
            Credential::Token(token) => format!("    token: {}\n", quoted(token)),
        };
        let namespace = self.namespace.map(|n| format!("    namespace: {}\n", quoted(n))).unwrap_or_default();
        let (cluster, user) = (quoted(self.cluster), quoted(self.user));
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: {cluster}\n  cluster:\n    server: {server}\n    \
             certificate-authority-data: {authority}\nusers:\n- name: {user}\n  user:\n{credential}contexts:\n- name: {cluster}\n  \
             context:\n    cluster: {cluster}\n    user: {user}\n{namespace}current-context: {cluster}\n",
            server = quoted(self.server),
            authority = encode(self.authority_pem),
        )
    }
}

/// A YAML string that is never read as anything else.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_has_one_context() {
        let kubeconfig = Kubeconfig {
            cluster: "alpha",
            server: "https://127.0.0.1:6443",
            authority_pem: "CA",
            user: "admin",
            credential: Credential::Token("secret"),
            namespace: Some("team"),
        };
        let expected = "apiVersion: v1\nkind: Config\nclusters:\n- name: \"alpha\"\n  cluster:\n    server: \"https://127.0.0.1:6443\"\n    certificate-authority-data: Q0E=\nusers:\n- name: \"admin\"\n  user:\n    token: \"secret\"\ncontexts:\n- name: \"alpha\"\n  context:\n    cluster: \"alpha\"\n    user: \"admin\"\n    namespace: \"team\"\ncurrent-context: \"alpha\"\n";
        assert_eq!(kubeconfig.render(), expected);
    }
}
