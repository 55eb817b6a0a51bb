//! Names of the resources that our own loops handle.

use sublet_machinery::Gvr;

macro_rules! resources {
    ($($name:ident = $group:literal / $version:literal / $resource:literal;)*) => {
        $(pub const $name: Gvr = Gvr::new($group, $version, $resource);)*
    };
}

resources! {
    PODS = "" / "v1" / "pods";
    NODES = "" / "v1" / "nodes";
    NAMESPACES = "" / "v1" / "namespaces";
    SERVICES = "" / "v1" / "services";
    ENDPOINTS = "" / "v1" / "endpoints";
    EVENTS = "" / "v1" / "events";
    SECRETS = "" / "v1" / "secrets";
    CONFIG_MAPS = "" / "v1" / "configmaps";
    SERVICE_ACCOUNTS = "" / "v1" / "serviceaccounts";
    PERSISTENT_VOLUMES = "" / "v1" / "persistentvolumes";
    PERSISTENT_VOLUME_CLAIMS = "" / "v1" / "persistentvolumeclaims";
    RESOURCE_QUOTAS = "" / "v1" / "resourcequotas";
    LIMIT_RANGES = "" / "v1" / "limitranges";
    REPLICATION_CONTROLLERS = "" / "v1" / "replicationcontrollers";
    DEPLOYMENTS = "apps" / "v1" / "deployments";
    REPLICA_SETS = "apps" / "v1" / "replicasets";
    STATEFUL_SETS = "apps" / "v1" / "statefulsets";
    DAEMON_SETS = "apps" / "v1" / "daemonsets";
    CLUSTER_TRUST_BUNDLES = "certificates.k8s.io" / "v1" / "clustertrustbundles";
    POD_CERTIFICATE_REQUESTS = "certificates.k8s.io" / "v1" / "podcertificaterequests";
    CONTROLLER_REVISIONS = "apps" / "v1" / "controllerrevisions";
    JOBS = "batch" / "v1" / "jobs";
    CRON_JOBS = "batch" / "v1" / "cronjobs";
    ENDPOINT_SLICES = "discovery.k8s.io" / "v1" / "endpointslices";
    POD_DISRUPTION_BUDGETS = "policy" / "v1" / "poddisruptionbudgets";
    CLUSTER_ROLES = "rbac.authorization.k8s.io" / "v1" / "clusterroles";
    CLUSTER_ROLE_BINDINGS = "rbac.authorization.k8s.io" / "v1" / "clusterrolebindings";
    ROLES = "rbac.authorization.k8s.io" / "v1" / "roles";
    ROLE_BINDINGS = "rbac.authorization.k8s.io" / "v1" / "rolebindings";
    STORAGE_CLASSES = "storage.k8s.io" / "v1" / "storageclasses";
    VOLUME_ATTRIBUTES_CLASSES = "storage.k8s.io" / "v1" / "volumeattributesclasses";
    PRIORITY_CLASSES = "scheduling.k8s.io" / "v1" / "priorityclasses";
    RESOURCE_CLAIMS = "resource.k8s.io" / "v1" / "resourceclaims";
    RUNTIME_CLASSES = "node.k8s.io" / "v1" / "runtimeclasses";
    INGRESSES = "networking.k8s.io" / "v1" / "ingresses";
    NETWORK_POLICIES = "networking.k8s.io" / "v1" / "networkpolicies";
    INGRESS_CLASSES = "networking.k8s.io" / "v1" / "ingressclasses";
    SELF_SUBJECT_ACCESS_REVIEWS = "authorization.k8s.io" / "v1" / "selfsubjectaccessreviews";
    MUTATING_WEBHOOK_CONFIGURATIONS = "admissionregistration.k8s.io" / "v1" / "mutatingwebhookconfigurations";
    VALIDATING_WEBHOOK_CONFIGURATIONS = "admissionregistration.k8s.io" / "v1" / "validatingwebhookconfigurations";
    LEASES = "coordination.k8s.io" / "v1" / "leases";
    CUSTOM_RESOURCE_DEFINITIONS = "apiextensions.k8s.io" / "v1" / "customresourcedefinitions";
    VOLUME_SNAPSHOTS = "snapshot.storage.k8s.io" / "v1" / "volumesnapshots";
    VOLUME_SNAPSHOT_CONTENTS = "snapshot.storage.k8s.io" / "v1" / "volumesnapshotcontents";
    VOLUME_SNAPSHOT_CLASSES = "snapshot.storage.k8s.io" / "v1" / "volumesnapshotclasses";
    GATEWAY_CLASSES = "gateway.networking.k8s.io" / "v1" / "gatewayclasses";
    GATEWAYS = "gateway.networking.k8s.io" / "v1" / "gateways";
    HTTP_ROUTES = "gateway.networking.k8s.io" / "v1" / "httproutes";
    GRPC_ROUTES = "gateway.networking.k8s.io" / "v1" / "grpcroutes";
    REFERENCE_GRANTS = "gateway.networking.k8s.io" / "v1beta1" / "referencegrants";
    VIRTUAL_CLUSTERS = "sublet.dev" / "v1alpha1" / "virtualclusters";
}
