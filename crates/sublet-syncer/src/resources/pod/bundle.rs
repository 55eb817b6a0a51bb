//! Trust bundles of a pod's projected volumes. Kubelets read bundles of the host, and a tenant's are
//! its own: what a source asks for is put into the pod's Secret, as a kubelet would write it.

use crate::resources::peers::matches;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::BTreeSet;
use sublet_machinery::ObjectExt;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";
const PEM_LINE_CHARS: usize = 64;

/// One trust bundle source of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub by: By,
    /// Whether the pod may start without.
    pub optional: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum By {
    Name(String),
    /// A null selector matches nothing, an empty one everything.
    Signer {
        name: String,
        selector: Value,
    },
}

/// The trust bundles of a pod, in the order of its volumes.
pub fn wanted(pod: &Value) -> Vec<Wanted> {
    let sources = pod.array_at("/spec/volumes").iter().flat_map(|volume| volume.array_at("/projected/sources"));
    sources.map(|source| &source["clusterTrustBundle"]).filter(|bundle| bundle.is_object()).map(parse).collect()
}

fn parse(bundle: &Value) -> Wanted {
    let by = match bundle["name"].as_str().filter(|name| !name.is_empty()) {
        Some(name) => By::Name(name.into()),
        None => By::Signer { name: bundle["signerName"].as_str().unwrap_or_default().into(), selector: bundle["labelSelector"].clone() },
    };
    Wanted { by, optional: bundle["optional"] == true }
}

pub fn data_key(index: usize) -> String {
    format!("bundle-{index}")
}

/// What the file of the source holds; `None` keeps the pod waiting.
pub fn content(wanted: &Wanted, bundles: &[Value]) -> Option<String> {
    let mut found = bundles.iter().filter(|bundle| is_meant(&wanted.by, bundle)).peekable();
    if found.peek().is_none() {
        return wanted.optional.then(String::new);
    }
    let anchors: BTreeSet<String> = found.flat_map(|bundle| certificates(bundle.str_at("/spec/trustBundle").unwrap_or_default())).collect();
    Some(anchors.iter().map(|anchor| pem(anchor)).collect())
}

fn is_meant(by: &By, bundle: &Value) -> bool {
    match by {
        By::Name(name) => bundle.name() == name,
        By::Signer { name, selector } => {
            bundle.str_at("/spec/signerName") == Some(name) && selector.is_object() && matches(selector, bundle)
        }
    }
}

/// The certificates of a PEM text, each as one line of base64. Headers and text between are left out.
fn certificates(text: &str) -> impl Iterator<Item = String> {
    text.split(BEGIN).skip(1).filter_map(|rest| {
        let body: String = rest.split_once(END)?.0.split_whitespace().collect();
        STANDARD.decode(&body).is_ok().then_some(body)
    })
}

fn pem(body: &str) -> String {
    let mut text = format!("{BEGIN}\n");
    for line in body.as_bytes().chunks(PEM_LINE_CHARS) {
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text + END + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bundle(name: &str, signer: &str, live: &str, bodies: &[&str]) -> Value {
        let text: String = bodies.iter().map(|body| format!("note\n{}", pem(body))).collect();
        json!({"metadata": {"name": name, "labels": {"live": live}}, "spec": {"signerName": signer, "trustBundle": text}})
    }

    #[test]
    fn sources_get_what_a_kubelet_would_write() {
        let bundles = [
            bundle("a", "x/ca", "yes", &["AAAA", "BBBB"]),
            bundle("b", "x/ca", "no", &["BBBB", "CCCC"]),
            bundle("c", "y/ca", "yes", &["DDDD"]),
        ];
        let check = |source: Value, expected: Option<&[&str]>| {
            let pod = json!({"spec": {"volumes": [{"projected": {"sources": [{"clusterTrustBundle": source}]}}]}});
            let expected = expected.map(|bodies| bodies.iter().map(|body| pem(body)).collect::<String>());
            assert_eq!(content(&wanted(&pod)[0], &bundles), expected, "{pod}");
        };
        check(json!({"path": "p", "name": "a"}), Some(&["AAAA", "BBBB"]));
        check(json!({"path": "p", "name": "z"}), None);
        check(json!({"path": "p", "name": "z", "optional": true}), Some(&[]));
        check(json!({"path": "p", "signerName": "x/ca", "labelSelector": {}}), Some(&["AAAA", "BBBB", "CCCC"]));
        check(json!({"path": "p", "signerName": "x/ca", "labelSelector": {"matchLabels": {"live": "no"}}}), Some(&["BBBB", "CCCC"]));
        check(json!({"path": "p", "signerName": "x/ca"}), None);
        check(json!({"path": "p", "signerName": "x/ca", "optional": true}), Some(&[]));
    }
}
