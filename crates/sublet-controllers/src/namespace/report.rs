//! The conditions that tell why a namespace is still there.

use super::content::Remains;
use crate::kit::conditions;
use serde_json::{Value, json};

/// (type, reason, message) of each condition when all is well, in the order of the status.
const WELL: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    ("NamespaceDeletionContentFailure", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

/// The status of the namespace after a pass.
pub(super) fn status(namespace: &Value, remains: &Remains, now: &str) -> Value {
    let mut status = namespace.get("status").cloned().unwrap_or(json!({}));
    status["phase"] = json!("Terminating");
    for (kind, reason, message) in WELL {
        let (is_true, reason, message) = match trouble(kind, remains) {
            Some((reason, message)) => (true, reason, message),
            None => (false, reason, message.to_string()),
        };
        conditions::put(&mut status, conditions::new(kind, is_true, reason, &message, now));
    }
    status
}

fn trouble(kind: &str, remains: &Remains) -> Option<(&'static str, String)> {
    match kind {
        "NamespaceDeletionDiscoveryFailure" if !remains.discovery_failures.is_empty() => {
            let failures = &remains.discovery_failures;
            let all = format!("unable to retrieve the complete list of server APIs: {}", failures.join(", "));
            Some(("DiscoveryFailed", format!("Discovery failed for some groups, {} failing: {all}", failures.len())))
        }
        "NamespaceDeletionContentFailure" if !remains.delete_failures.is_empty() => {
            let mut failures = remains.delete_failures.clone();
            failures.sort();
            let message = format!("Failed to delete all resource types, {} remaining: {}", failures.len(), failures.join(", "));
            Some(("ContentDeletionFailed", message))
        }
        "NamespaceContentRemaining" if !remains.resources.is_empty() => {
            let mut parts: Vec<String> =
                remains.resources.iter().map(|(g, n)| format!("{}.{} has {n} resource instances", g.resource, g.group)).collect();
            parts.sort();
            Some(("SomeResourcesRemain", format!("Some resources are remaining: {}", parts.join(", "))))
        }
        "NamespaceFinalizersRemaining" if !remains.finalizers.is_empty() => {
            let parts: Vec<String> = remains.finalizers.iter().map(|(f, n)| format!("{f} in {n} resource instances")).collect();
            Some(("SomeFinalizersRemain", format!("Some content in the namespace has finalizers remaining: {}", parts.join(", "))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sublet_runtime::resources::{CONFIG_MAPS, PODS};

    fn message<'a>(status: &'a Value, kind: &str) -> (&'a str, &'a str) {
        let condition = conditions::find(status, kind).expect("every condition is there");
        (condition["status"].as_str().unwrap_or_default(), condition["message"].as_str().unwrap_or_default())
    }

    #[test]
    fn what_remains_is_told_and_taken_back() {
        let mut remains = Remains::default();
        remains.resources.insert(PODS, 2);
        remains.resources.insert(CONFIG_MAPS, 1);
        remains.finalizers.insert("example.com/f".into(), 1);
        let stuck = status(&json!({}), &remains, "t1");
        assert_eq!(
            message(&stuck, "NamespaceContentRemaining"),
            ("True", "Some resources are remaining: configmaps. has 1 resource instances, pods. has 2 resource instances")
        );
        assert_eq!(
            message(&stuck, "NamespaceFinalizersRemaining"),
            ("True", "Some content in the namespace has finalizers remaining: example.com/f in 1 resource instances")
        );
        let done = status(&json!({"status": stuck}), &Remains::default(), "t2");
        assert_eq!(message(&done, "NamespaceContentRemaining"), ("False", "All content successfully removed"));
        assert_eq!(conditions::find(&done, "NamespaceContentRemaining").map(|c| c["lastTransitionTime"].clone()), Some(json!("t2")));
        assert_eq!(conditions::find(&done, "NamespaceDeletionContentFailure").map(|c| c["lastTransitionTime"].clone()), Some(json!("t1")));
    }
}
