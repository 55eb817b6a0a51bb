//! `apiserver.config.k8s.io` AuthenticationConfiguration: whose tokens are believed, and what they say.

use super::mapping::Mapping;
use super::validate;
use serde::Deserialize;
use sublet_machinery::FieldError;

/// Issuers of one server.
pub(super) const ISSUERS_MAX: usize = 64;

const KIND: &str = "AuthenticationConfiguration";
const GROUP_VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1"];

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AuthenticationConfiguration {
    pub api_version: String,
    pub kind: String,
    pub jwt: Vec<JwtAuthenticator>,
    pub anonymous: Option<Anonymous>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct JwtAuthenticator {
    pub issuer: Issuer,
    pub claim_validation_rules: Vec<ClaimValidationRule>,
    pub claim_mappings: ClaimMappings,
    pub user_validation_rules: Vec<UserValidationRule>,
    /// Algorithms that signatures may have; empty: all that are known. Only flags tell it.
    #[serde(skip)]
    pub algorithms: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Issuer {
    pub url: String,
    #[serde(rename = "discoveryURL")]
    pub discovery_url: String,
    /// In PEM; empty: the roots of the system.
    pub certificate_authority: String,
    pub audiences: Vec<String>,
    pub audience_match_policy: String,
    pub egress_selector_type: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClaimValidationRule {
    pub claim: String,
    pub required_value: String,
    pub expression: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UserValidationRule {
    pub expression: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClaimMappings {
    pub username: PrefixedClaim,
    pub groups: PrefixedClaim,
    pub uid: ClaimOrExpression,
    pub extra: Vec<ExtraMapping>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PrefixedClaim {
    pub claim: String,
    pub prefix: Option<String>,
    pub expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClaimOrExpression {
    pub claim: String,
    pub expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExtraMapping {
    pub key: String,
    pub value_expression: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Anonymous {
    pub enabled: bool,
    pub conditions: Vec<AnonymousCondition>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AnonymousCondition {
    pub path: String,
}

impl AuthenticationConfiguration {
    /// Of YAML or JSON text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = serde_saphyr::from_str(text).map_err(|e| format!("the authentication configuration cannot be read: {e}"))?;
        if config.kind != KIND || !GROUP_VERSIONS.contains(&config.api_version.as_str()) {
            let (kind, version) = (&config.kind, &config.api_version);
            return Err(format!(
                "the authentication configuration is a {kind:?} of {version:?}; write kind {KIND} of {}",
                GROUP_VERSIONS[0]
            ));
        }
        Ok(config)
    }

    /// The rules of each issuer, ready to be used. `own` are issuers that this server is itself.
    pub(super) fn compile(&self, own: &[String]) -> Result<Vec<Mapping>, String> {
        let mut errors: Vec<FieldError> = Vec::new();
        let mappings = validate::configuration(self, own, &mut errors);
        if errors.is_empty() { Ok(mappings) } else { Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")) }
    }
}
