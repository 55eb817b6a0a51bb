//! Which kind has which rules.

use super::{
    Strategy, aggregation, apps, autoscaling, batch, certificates, coordination, core, devices, disruption, flow_control, networking, pod,
    rbac, registration, scheduling, storage,
};

/// The strategy of a built-in resource, by group and plural name; resources without rules of their own get
/// [`Strategy::PLAIN`]. A subresource with rules of its own is asked for as `pods/resize`.
pub fn of(group: &str, resource: &str) -> Strategy {
    match group {
        "" => of_core(resource),
        "apps" => of_apps(resource),
        "batch" => match resource {
            "jobs" => batch::job::JOB,
            "cronjobs" => batch::cron_job::CRON_JOB,
            _ => Strategy::PLAIN,
        },
        "networking.k8s.io" => match resource {
            "ingresses" => networking::INGRESS,
            "ingressclasses" => networking::INGRESS_CLASS,
            "networkpolicies" => networking::NETWORK_POLICY,
            "ipaddresses" => networking::IP_ADDRESS,
            "servicecidrs" => networking::SERVICE_CIDR,
            _ => Strategy::PLAIN,
        },
        "rbac.authorization.k8s.io" => match resource {
            "roles" => rbac::ROLE,
            "clusterroles" => rbac::CLUSTER_ROLE,
            "rolebindings" => rbac::ROLE_BINDING,
            "clusterrolebindings" => rbac::CLUSTER_ROLE_BINDING,
            _ => Strategy::PLAIN,
        },
        _ => of_other(group, resource),
    }
}

/// What every answer about a kind says that will go some day.
pub fn deprecation(group: &str, version: &str, resource: &str) -> Option<String> {
    let text = match (group, version, resource) {
        ("", "v1", "componentstatuses") => "v1 ComponentStatus is deprecated in v1.19+",
        ("", "v1", "endpoints") => "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        _ => return None,
    };
    Some(text.into())
}

fn of_core(resource: &str) -> Strategy {
    match resource {
        "configmaps" => core::config::CONFIG_MAP,
        "endpoints" => core::endpoints::ENDPOINTS,
        "events" => core::event::EVENT,
        "limitranges" => core::quota::LIMIT_RANGE,
        "namespaces" => core::namespace::NAMESPACE,
        "namespaces/finalize" => core::namespace::NAMESPACE_FINALIZE,
        "nodes" => core::node::NODE,
        "persistentvolumeclaims" => core::volume::PERSISTENT_VOLUME_CLAIM,
        "persistentvolumes" => core::volume::PERSISTENT_VOLUME,
        "pods" => pod::POD,
        "pods/ephemeralcontainers" => pod::POD_EPHEMERAL_CONTAINERS,
        "pods/resize" => pod::POD_RESIZE,
        "podtemplates" => pod::POD_TEMPLATE,
        "replicationcontrollers" => apps::replica_set::REPLICATION_CONTROLLER,
        "resourcequotas" => core::quota::RESOURCE_QUOTA,
        "secrets" => core::config::SECRET,
        "serviceaccounts" => core::service_account::SERVICE_ACCOUNT,
        "services" => core::service::SERVICE,
        _ => Strategy::PLAIN,
    }
}

fn of_apps(resource: &str) -> Strategy {
    match resource {
        "controllerrevisions" => apps::CONTROLLER_REVISION,
        "daemonsets" => apps::daemon_set::DAEMON_SET,
        "deployments" => apps::deployment::DEPLOYMENT,
        "replicasets" => apps::replica_set::REPLICA_SET,
        "statefulsets" => apps::stateful_set::STATEFUL_SET,
        _ => Strategy::PLAIN,
    }
}

fn of_other(group: &str, resource: &str) -> Strategy {
    match (group, resource) {
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations") => registration::MUTATING_WEBHOOKS,
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations") => registration::VALIDATING_WEBHOOKS,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies") => registration::MUTATING_POLICY,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings") => registration::MUTATING_POLICY_BINDING,
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => registration::ADMISSION_POLICY,
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => registration::VALIDATING_POLICY_BINDING,
        ("apiextensions.k8s.io", "customresourcedefinitions") => crate::crd::DEFINITION,
        ("apiregistration.k8s.io", "apiservices") => aggregation::API_SERVICE,
        ("autoscaling", "horizontalpodautoscalers") => autoscaling::AUTOSCALER,
        ("certificates.k8s.io", "certificatesigningrequests") => certificates::CERTIFICATE_REQUEST,
        ("certificates.k8s.io", "certificatesigningrequests/approval") => certificates::CERTIFICATE_APPROVAL,
        ("certificates.k8s.io", "clustertrustbundles") => certificates::TRUST_BUNDLE,
        ("certificates.k8s.io", "podcertificaterequests") => certificates::POD_CERTIFICATE_REQUEST,
        ("coordination.k8s.io", "leases") => coordination::LEASE,
        ("discovery.k8s.io", "endpointslices") => core::endpoint_slice::ENDPOINT_SLICE,
        ("events.k8s.io", "events") => core::event::EVENTS_EVENT,
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => flow_control::FLOW_SCHEMA,
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => flow_control::PRIORITY_LEVEL,
        ("node.k8s.io", "runtimeclasses") => scheduling::RUNTIME_CLASS,
        ("policy", "poddisruptionbudgets") => disruption::DISRUPTION_BUDGET,
        ("resource.k8s.io", "deviceclasses") => devices::DEVICE_CLASS,
        ("resource.k8s.io", "devicetaintrules") => devices::DEVICE_TAINT_RULE,
        ("resource.k8s.io", "resourceclaims") => devices::RESOURCE_CLAIM,
        ("resource.k8s.io", "resourceclaimtemplates") => devices::RESOURCE_CLAIM_TEMPLATE,
        ("resource.k8s.io", "resourceslices") => devices::RESOURCE_SLICE,
        ("scheduling.k8s.io", "priorityclasses") => scheduling::PRIORITY_CLASS,
        ("storage.k8s.io", "csidrivers") => storage::CSI_DRIVER,
        ("storage.k8s.io", "csinodes") => storage::CSI_NODE,
        ("storage.k8s.io", "csistoragecapacities") => storage::CSI_STORAGE_CAPACITY,
        ("storage.k8s.io", "storageclasses") => storage::STORAGE_CLASS,
        ("storage.k8s.io", "volumeattachments") => storage::VOLUME_ATTACHMENT,
        ("storage.k8s.io", "volumeattributesclasses") => storage::VOLUME_ATTRIBUTES_CLASS,
        ("storagemigration.k8s.io", "storageversionmigrations") => storage::MIGRATION,
        _ => Strategy::PLAIN,
    }
}
