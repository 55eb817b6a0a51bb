//! Who may ask for, approve and sign certificates.

use super::plugins::SignerPermission;
use super::{Attributes, Operation, Plugin};
use crate::reader::Writer;
use crate::strategy::edit::{ensure, remove};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::{ApiError, ObjectExt};
use x509_parser::prelude::{FromDer, X509CertificationRequest, X509Name};

/// Writes into a request who made it. Upstream's strategy does so; here it takes a step that knows the user.
pub(super) struct CertificateRequester;

pub(super) struct CertificateSubjectRestriction;

pub(super) struct CertificateApproval {
    permission: SignerPermission,
}

pub(super) struct CertificateSigning {
    permission: SignerPermission,
}

pub(super) struct ClusterTrustBundleAttest {
    permission: SignerPermission,
}

const BUNDLES: &str = "clustertrustbundles.certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

#[async_trait]
impl Plugin for CertificateRequester {
    fn name(&self) -> &'static str {
        "CertificateRequester"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is_main(REQUESTS)
    }

    async fn mutate(&self, attributes: &mut Attributes<'_>, _: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let user = attributes.user;
        let Some(request) = attributes.object.as_mut() else { return Ok(()) };
        let spec = ensure(request, "spec");
        for (key, value) in
            [("username", json!(user.name)), ("uid", json!(user.uid)), ("groups", json!(user.groups)), ("extra", json!(user.extra))]
        {
            if crate::strategy::edit::is_zero(&value) {
                remove(spec, key);
            } else {
                spec[key] = value;
            }
        }
        Ok(())
    }
}

impl CertificateApproval {
    pub(super) fn new(permission: SignerPermission) -> Self {
        Self { permission }
    }
}

#[async_trait]
impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update && attributes.is(REQUESTS) && attributes.subresource == "approval"
    }

    async fn validate(&self, attributes: &mut Attributes<'_>, _: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let signer = attributes.old.as_ref().and_then(|old| old.str_at("/spec/signerName")).unwrap_or_default();
        if (self.permission)(attributes.user, "approve", signer) {
            return Ok(());
        }
        Err(attributes.forbidden(format_args!("user not permitted to approve requests with signerName {signer:?}")))
    }
}

impl CertificateSigning {
    pub(super) fn new(permission: SignerPermission) -> Self {
        Self { permission }
    }
}

#[async_trait]
impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Update && attributes.is(REQUESTS) && attributes.subresource == "status"
    }

    async fn validate(&self, attributes: &mut Attributes<'_>, _: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let (Some(new), Some(old)) = (&attributes.object, &attributes.old) else { return Ok(()) };
        if ["certificate", "conditions"].iter().all(|key| new["status"][*key] == old["status"][*key]) {
            return Ok(());
        }
        let signer = old.str_at("/spec/signerName").unwrap_or_default();
        if (self.permission)(attributes.user, "sign", signer) {
            return Ok(());
        }
        Err(attributes.forbidden(format_args!("user not permitted to sign requests with signerName {signer:?}")))
    }
}

impl ClusterTrustBundleAttest {
    pub(super) fn new(permission: SignerPermission) -> Self {
        Self { permission }
    }
}

/// Who vouches for a signer's certificates needs leave to do so.
#[async_trait]
impl Plugin for ClusterTrustBundleAttest {
    fn name(&self) -> &'static str {
        "ClusterTrustBundleAttest"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update) && attributes.is_main(BUNDLES)
    }

    async fn validate(&self, attributes: &mut Attributes<'_>, _: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let Some(bundle) = &attributes.object else { return Ok(()) };
        let signer = bundle.str_at("/spec/signerName").unwrap_or_default();
        if signer.is_empty() || attributes.old.as_ref().is_some_and(|old| changes_owners_alone(bundle, old)) {
            return Ok(());
        }
        if (self.permission)(attributes.user, "attest", signer) {
            return Ok(());
        }
        Err(attributes.forbidden(format_args!("user not permitted to attest for signerName {signer:?}")))
    }
}

/// What the garbage collector may write.
fn changes_owners_alone(new: &Value, old: &Value) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        for key in ["ownerReferences", "finalizers", "resourceVersion", "managedFields"] {
            remove(&mut object["metadata"], key);
        }
        object
    };
    bare(new) == bare(old)
}

#[async_trait]
impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is_main(REQUESTS)
    }

    async fn validate(&self, attributes: &mut Attributes<'_>, _: &Arc<dyn Writer>) -> Result<(), ApiError> {
        let Some(request) = attributes.object.as_ref().filter(|r| r["spec"]["signerName"] == CLIENT_SIGNER) else { return Ok(()) };
        let encoded = request.str_at("/spec/request").unwrap_or_default();
        match organizations(encoded) {
            Err(why) => Err(attributes.forbidden(format_args!("failed to parse CSR: {why}"))),
            Ok(groups) if groups.iter().any(|g| g == "system:masters") => {
                Err(attributes.forbidden(format_args!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed")))
            }
            Ok(_) => Ok(()),
        }
    }
}

/// The organizations (groups, to Kubernetes) in the subject of a request.
fn organizations(encoded: &str) -> Result<Vec<String>, String> {
    of_subject(encoded, |subject| subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_string).collect())
}

/// What is asked of the subject of a request for a certificate.
pub(super) fn of_subject<T>(encoded: &str, read: impl FnOnce(&X509Name<'_>) -> T) -> Result<T, String> {
    let pem = STANDARD.decode(encoded).map_err(|e| e.to_string())?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).map_err(|_| "PEM block type must be CERTIFICATE REQUEST".to_string())?;
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).map_err(|e| e.to_string())?;
    Ok(read(&request.certification_request_info.subject))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Request, store};
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn request(organization: &str) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, organization);
        let key = KeyPair::generate().expect("a key");
        STANDARD.encode(params.serialize_request(&key).expect("a request").pem().expect("PEM"))
    }

    #[tokio::test]
    async fn nobody_asks_to_be_a_master() {
        let object = |organization: &str| {
            let spec = json!({"signerName": CLIENT_SIGNER, "request": request(organization)});
            Request::create(REQUESTS, "", json!({"metadata": {"name": "r"}, "spec": spec}))
        };
        assert!(object("people").validate(&CertificateSubjectRestriction, &store(&[])).await.is_ok());
        let error = object("system:masters").validate(&CertificateSubjectRestriction, &store(&[])).await.expect_err("masters");
        assert!(error.message.ends_with("signer with system:masters group is not allowed"));
    }

    #[tokio::test]
    async fn not_everybody_vouches_for_a_signer() {
        let plugin =
            ClusterTrustBundleAttest::new(Arc::new(|user, verb, signer| (user.name.as_str(), verb, signer) == ("jane", "attest", "a.b/c")));
        let bundle = |signer: &str| Request::create(BUNDLES, "", json!({"metadata": {"name": "b"}, "spec": {"signerName": signer}}));
        let (mut jane, mut other) = (bundle("a.b/c"), bundle("d.e/f"));
        (jane.user.name, other.user.name) = ("jane".into(), "jane".into());
        assert!(jane.validate(&plugin, &store(&[])).await.is_ok());
        assert!(bundle("").validate(&plugin, &store(&[])).await.is_ok());
        let error = other.validate(&plugin, &store(&[])).await.expect_err("another signer");
        assert!(error.message.ends_with("is forbidden: user not permitted to attest for signerName \"d.e/f\""), "{}", error.message);
    }

    #[tokio::test]
    async fn the_request_names_its_maker() {
        let mut create = Request::create(REQUESTS, "", json!({"metadata": {"name": "r"}, "spec": {"username": "forged", "uid": "x"}}));
        create.user.name = "jane".into();
        create.user.groups = vec!["g".into()];
        let (object, _) = create.mutate(&CertificateRequester, &store(&[])).await.expect("accepted");
        assert_eq!(object["spec"], json!({"username": "jane", "groups": ["g"]}));
    }
}
