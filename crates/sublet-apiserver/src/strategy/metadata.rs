//! What differs between kinds in how their metadata is judged.

use crate::registry::Resource;

/// Whether finalizers without a domain must be among those that upstream knows. Kinds of custom resources and some groups
/// check their metadata with rules that do not know them.
pub(crate) fn knows_finalizers(resource: &Resource) -> bool {
    const WITHOUT: [&str; 7] = [
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "coordination.k8s.io",
        "events.k8s.io",
        "node.k8s.io",
        "policy",
    ];
    let event = resource.group.is_empty() && resource.plural == "events";
    resource.custom.is_none() && !event && !WITHOUT.contains(&resource.group.as_str())
}

/// Whether an update is judged by all the rules for new objects: those about `generateName` apply to it then.
pub(crate) fn validates_all_on_update(group: &str, plural: &str) -> bool {
    match group {
        "" => [
            "configmaps",
            "endpoints",
            "limitranges",
            "namespaces",
            "nodes",
            "persistentvolumeclaims",
            "persistentvolumes",
            "pods",
            "secrets",
            "serviceaccounts",
        ]
        .contains(&plural),
        "admissionregistration.k8s.io" | "apiregistration.k8s.io" | "discovery.k8s.io" | "node.k8s.io" | "storagemigration.k8s.io" => true,
        "apps" => plural == "controllerrevisions",
        "certificates.k8s.io" => plural == "clustertrustbundles",
        "flowcontrol.apiserver.k8s.io" => plural == "prioritylevelconfigurations",
        "networking.k8s.io" => ["ingressclasses", "ingresses", "ipaddresses"].contains(&plural),
        "resource.k8s.io" => ["resourceclaims", "resourceclaimtemplates"].contains(&plural),
        "storage.k8s.io" => plural != "csidrivers",
        _ => false,
    }
}
