//! Which plugins run, and in which order.

use super::certificates::{
    CertificateApproval, CertificateRequester, CertificateSigning, CertificateSubjectRestriction, ClusterTrustBundleAttest,
};
use super::ingress_class::DefaultIngressClass;
use super::limit_ranger::LimitRanger;
use super::namespace_lifecycle::NamespaceLifecycle;
use super::node_restriction::NodeRestriction;
use super::pod_resize::PodResizeValidator;
use super::pod_security::{PodSecurity, PodSecurityLevel};
use super::policy::{MutatingAdmissionPolicy, ValidatingAdmissionPolicy};
use super::priority::Priority;
use super::resource_quota::ResourceQuota;
use super::runtime_class::RuntimeClass;
use super::service_account::ServiceAccount;
use super::storage::{DefaultStorageClass, PersistentVolumeClaimResize, StorageObjectInUseProtection};
use super::taint_nodes::TaintNodesByCondition;
use super::tolerations::DefaultTolerationSeconds;
use super::topology_labels::PodTopologyLabels;
use super::webhook::{MutatingAdmissionWebhook, ValidatingAdmissionWebhook};
use super::{Plugin, UserInfo};
use std::fmt;
use std::sync::Arc;

/// All plugins of upstream that can be on here, in upstream's order. Webhooks and policies live in rooms of
/// their own; whoever adds them sorts by this list.
pub const ORDER: &[&str] = &[
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "PodSecurity",
    "Priority",
    "DefaultTolerationSeconds",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "ClusterTrustBundleAttest",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "PodTopologyLabels",
    "PodResizeValidator",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
];

/// Of these the ones that are off unless they are turned on.
const OFF: &[&str] = &["NodeRestriction"];

/// May the user `verb` (`approve`, `sign`, `attest`) the signer named so?
pub type SignerPermission = Arc<dyn Fn(&UserInfo, &str, &str) -> bool + Send + Sync>;

/// What the plugins can be told.
#[derive(Clone, Default)]
pub struct Config {
    /// Names as in `--enable-admission-plugins`.
    pub enabled: Vec<String>,
    /// Names as in `--disable-admission-plugins`.
    pub disabled: Vec<String>,
    /// What pods must hold to whatever the labels of their namespace say.
    pub least_pod_security: PodSecurityLevel,
    /// `None` refuses approvals and signatures by everybody outside `system:masters`.
    pub signer_permission: Option<SignerPermission>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("enabled", &self.enabled).field("disabled", &self.disabled).finish_non_exhaustive()
    }
}

/// The plugins that are on by default or enabled, and not disabled, in upstream's order.
pub fn default_plugins(config: &Config) -> Vec<Box<dyn Plugin>> {
    let permission = config.signer_permission.clone().unwrap_or_else(|| {
        Arc::new(|user: &UserInfo, _: &str, _: &str| user.groups.iter().any(|g| g == "system:masters")) as SignerPermission
    });
    let all: Vec<Box<dyn Plugin>> = vec![
        Box::new(CertificateRequester),
        Box::new(NamespaceLifecycle),
        Box::new(LimitRanger),
        Box::new(ServiceAccount),
        Box::new(NodeRestriction),
        Box::new(TaintNodesByCondition),
        Box::new(PodSecurity { least: config.least_pod_security }),
        Box::new(Priority),
        Box::new(DefaultTolerationSeconds),
        Box::new(DefaultStorageClass),
        Box::new(StorageObjectInUseProtection),
        Box::new(PersistentVolumeClaimResize),
        Box::new(RuntimeClass),
        Box::new(CertificateApproval::new(permission.clone())),
        Box::new(CertificateSigning::new(permission.clone())),
        Box::new(ClusterTrustBundleAttest::new(permission)),
        Box::new(CertificateSubjectRestriction),
        Box::new(DefaultIngressClass),
        Box::new(PodTopologyLabels),
        Box::new(PodResizeValidator),
        Box::new(MutatingAdmissionPolicy::new()),
        Box::new(MutatingAdmissionWebhook::new()),
        Box::new(ValidatingAdmissionPolicy::new()),
        Box::new(ValidatingAdmissionWebhook::new()),
        Box::new(ResourceQuota::default()),
    ];
    let named = |names: &[String], plugin: &dyn Plugin| names.iter().any(|name| name == plugin.name());
    let is_on = |plugin: &dyn Plugin| !OFF.contains(&plugin.name()) || named(&config.enabled, plugin);
    all.into_iter().filter(|plugin| is_on(&**plugin) && !named(&config.disabled, &**plugin)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_stand_in_upstreams_order_and_can_be_switched_off() {
        let names = |config: &Config| -> Vec<&'static str> { default_plugins(config).iter().map(|p| p.name()).collect() };
        let place = |name: &&str| ORDER.iter().position(|n| n == name);
        let all = names(&Config::default());
        let places: Vec<_> = all.iter().filter_map(place).collect();
        assert!(places.is_sorted(), "{all:?}");
        let some = names(&Config { disabled: vec!["ServiceAccount".into()], ..Config::default() });
        assert!(!some.contains(&"ServiceAccount"));
        let more = names(&Config { enabled: vec!["NodeRestriction".into()], ..Config::default() });
        assert_eq!((all.contains(&"NodeRestriction"), more.contains(&"NodeRestriction")), (false, true));
    }
}
