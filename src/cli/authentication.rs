//! The flags of `sublet apiserver` for tokens of other issuers, named as kube-apiserver's.

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sublet_apiserver::auth::jwt::{
    Anonymous, AuthenticationConfiguration, ClaimMappings, ClaimValidationRule, Issuer, JwtAuthenticator, PrefixedClaim,
};
use sublet_apiserver::server::Server;
use tokio_util::sync::CancellationToken;

/// How often the configuration is looked at.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Args)]
pub struct AuthenticationArguments {
    /// Whose tokens are believed: an AuthenticationConfiguration of apiserver.config.k8s.io; read again when it changes
    #[arg(long, value_name = "FILE", conflicts_with = "oidc_issuer_url")]
    authentication_config: Option<PathBuf>,
    /// Whether requests without credentials go on as system:anonymous
    #[arg(long, value_name = "BOOL", conflicts_with = "authentication_config", action = clap::ArgAction::Set, default_value_t = true)]
    anonymous_auth: bool,
    /// The issuer of OpenID Connect tokens
    #[arg(long, value_name = "URL", requires = "oidc_client_id")]
    oidc_issuer_url: Option<String>,
    /// The audience that its tokens must have
    #[arg(long, value_name = "ID", requires = "oidc_issuer_url")]
    oidc_client_id: Option<String>,
    /// The claim that is the user's name
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    oidc_username_claim: String,
    /// Goes before names; `-` for nothing. The default is the issuer's URL and `#`, but for addresses of mail
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    oidc_username_prefix: String,
    /// The claim that holds the user's groups
    #[arg(long, value_name = "CLAIM", default_value = "", hide_default_value = true)]
    oidc_groups_claim: String,
    /// Goes before groups
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    oidc_groups_prefix: String,
    /// Claims that a token must have, with their values
    #[arg(long, value_name = "CLAIM=VALUE", value_delimiter = ',')]
    oidc_required_claim: Vec<String>,
    /// The authorities of the issuer's certificate; without it, the system's
    #[arg(long, value_name = "FILE")]
    oidc_ca_file: Option<PathBuf>,
    /// Algorithms that signatures may have
    #[arg(long, value_name = "ALGORITHMS", value_delimiter = ',', default_value = "RS256")]
    oidc_signing_algs: Vec<String>,
}

impl AuthenticationArguments {
    /// Puts what the flags say in force. A file is followed until cancelled.
    pub fn apply(&self, server: &Server, cancel: CancellationToken) -> Result<()> {
        if let Some(path) = &self.authentication_config {
            let text = read("--authentication-config", path)?;
            put_in_force(server, &text).with_context(|| format!("--authentication-config: {}", path.display()))?;
            tokio::spawn(follow(server.clone(), path.clone(), text, cancel));
            return Ok(());
        }
        let anonymous = (!self.anonymous_auth).then(Anonymous::default);
        let jwt = self.legacy()?.into_iter().collect();
        let config = AuthenticationConfiguration { jwt, anonymous, ..AuthenticationConfiguration::default() };
        server.set_authentication(&config).map_err(|why| anyhow!(why)).context("--oidc-issuer-url")
    }

    fn legacy(&self) -> Result<Option<JwtAuthenticator>> {
        let (Some(url), Some(client)) = (&self.oidc_issuer_url, &self.oidc_client_id) else { return Ok(None) };
        let prefix = match self.oidc_username_prefix.as_str() {
            "-" => String::new(),
            "" if self.oidc_username_claim != "email" => format!("{url}#"),
            prefix => prefix.to_string(),
        };
        let mut required = BTreeMap::new();
        for rule in &self.oidc_required_claim {
            let Some((claim, value)) = rule.split_once('=') else {
                bail!("--oidc-required-claim: {rule:?} is no claim with its value; write hd=example.com")
            };
            required.insert(claim.to_string(), value.to_string());
        }
        let groups = PrefixedClaim {
            prefix: (!self.oidc_groups_claim.is_empty()).then(|| self.oidc_groups_prefix.clone()),
            claim: self.oidc_groups_claim.clone(),
            ..PrefixedClaim::default()
        };
        Ok(Some(JwtAuthenticator {
            issuer: Issuer {
                url: url.clone(),
                audiences: vec![client.clone()],
                certificate_authority: self
                    .oidc_ca_file
                    .as_deref()
                    .map(|path| read("--oidc-ca-file", path))
                    .transpose()?
                    .unwrap_or_default(),
                ..Issuer::default()
            },
            claim_mappings: ClaimMappings {
                username: PrefixedClaim { claim: self.oidc_username_claim.clone(), prefix: Some(prefix), ..PrefixedClaim::default() },
                groups,
                ..ClaimMappings::default()
            },
            claim_validation_rules: required
                .into_iter()
                .map(|(claim, required_value)| ClaimValidationRule { claim, required_value, ..ClaimValidationRule::default() })
                .collect(),
            algorithms: self.oidc_signing_algs.clone(),
            ..JwtAuthenticator::default()
        }))
    }
}

fn read(flag: &str, path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("{flag}: cannot read {}", path.display()))
}

fn put_in_force(server: &Server, text: &str) -> Result<()> {
    let config = AuthenticationConfiguration::parse(text).map_err(|why| anyhow!(why))?;
    server.set_authentication(&config).map_err(|why| anyhow!(why))
}

/// A file that becomes wrong changes nothing.
async fn follow(server: Server, path: PathBuf, mut known: String, cancel: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(RELOAD_INTERVAL) => {}
            () = cancel.cancelled() => return,
        }
        let Ok(text) = tokio::fs::read_to_string(&path).await else { continue };
        if text != known {
            match put_in_force(&server, &text) {
                Ok(()) => tracing::info!(path = %path.display(), "the authentication configuration was read again"),
                Err(error) => tracing::error!(path = %path.display(), "the authentication configuration stays as it was: {error:#}"),
            }
            known = text;
        }
    }
}
