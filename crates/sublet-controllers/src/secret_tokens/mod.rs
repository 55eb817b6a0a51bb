//! Tokens of service accounts that live in Secrets: filled in, and gone with their account.
//!
//! Every namespace's Secrets are looked at without their data, but for those that hold tokens.

mod clean;

pub(crate) use clean::controller as cleaner;

use crate::kit::exec;
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::sync::Arc;
use sublet_machinery::ObjectExt;
use sublet_runtime::manager::{Mapping, map};
use sublet_runtime::resources::{SECRETS, SERVICE_ACCOUNTS};
use sublet_runtime::{Change, ClientError, Controller, Ctx, DeleteOptions, Informer, Key, Outcome, Reconciler};

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// Secrets of tokens by their account, as `NAMESPACE/NAME`.
const BY_ACCOUNT: &str = "account";

type Make = dyn Fn(&Value, &Value) -> Result<String, String> + Send + Sync;

/// Makes the token of a service account for a Secret: only the API server has the key.
#[derive(Clone)]
pub struct TokenMaker(Arc<Make>);

impl TokenMaker {
    pub fn new(make: impl Fn(&Value, &Value) -> Result<String, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }
}

impl std::fmt::Debug for TokenMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenMaker")
    }
}

/// What an informer of Secrets keeps: nobody here reads the data of others. Their keys stay: the nodes of an embedded host, who share the
/// informer, ask whether a pod's volumes find theirs.
pub(crate) fn without_foreign_data(secret: &mut Value) {
    if !is_token(secret)
        && let Some(data) = secret.get_mut("data").and_then(Value::as_object_mut)
    {
        data.values_mut().for_each(|value| *value = "".into());
    }
}

/// To be called before the informer runs.
pub(crate) fn index_by_account(informer: &Informer) {
    informer.add_index(BY_ACCOUNT, |secret| match secret.annotation(ACCOUNT_NAME) {
        Some(name) if is_token(secret) => vec![format!("{}/{name}", secret.namespace())],
        _ => Vec::new(),
    });
}

pub(crate) fn controller(maker: TokenMaker, ca_pem: String) -> Controller {
    let ca = STANDARD.encode(ca_pem);
    Controller::new("tokens-controller", Tokens { maker, ca })
        .watches(SECRETS, |change, mapping| if is_token(change.object()) { map::itself(change, mapping) } else { Vec::new() })
        .watches(SERVICE_ACCOUNTS, tokens_of_former)
}

fn is_token(secret: &Value) -> bool {
    secret["type"] == TYPE
}

/// The tokens of an account that went, or was replaced.
fn tokens_of_former(change: &Change, mapping: &Mapping) -> Vec<Key> {
    let Some(old) = &change.old else { return Vec::new() };
    if change.new.as_ref().is_some_and(|new| new.uid() == old.uid()) {
        return Vec::new();
    }
    let tokens = mapping.informer(&SECRETS).by_index(BY_ACCOUNT, &format!("{}/{}", old.namespace(), old.name()));
    tokens.iter().map(|secret| Key::of(secret)).collect()
}

/// The account that a Secret names is this one.
fn is_of(secret: &Value, account: &Value) -> bool {
    let uid = secret.annotation(ACCOUNT_UID).unwrap_or_default();
    secret.annotation(ACCOUNT_NAME) == Some(account.name()) && (uid.is_empty() || uid == account.uid())
}

struct Tokens {
    maker: TokenMaker,
    /// The certificates that clients are to trust, as Secrets hold them; empty: none are given.
    ca: String,
}

#[async_trait]
impl Reconciler for Tokens {
    async fn reconcile(&self, ctx: &Ctx, key: &Key) -> Outcome {
        let result = match ctx.informer(&SECRETS).get_key(key).filter(|s| is_token(s)) {
            Some(secret) => self.settle(ctx, &secret).await,
            None => forget_references(ctx, key).await.map(|()| Outcome::Done),
        };
        result.unwrap_or_else(Outcome::from)
    }
}

impl Tokens {
    async fn settle(&self, ctx: &Ctx, secret: &Value) -> Result<Outcome, ClientError> {
        let name = secret.annotation(ACCOUNT_NAME).unwrap_or_default();
        let cached = ctx.informer(&SERVICE_ACCOUNTS).get(secret.namespace(), name).filter(|account| is_of(secret, account));
        let account = match cached {
            Some(account) => Some(account),
            // The account may be newer than the local copy.
            None if name.is_empty() => None,
            None => ctx
                .client
                .get_opt(&SERVICE_ACCOUNTS, secret.namespace(), name)
                .await?
                .filter(|account| is_of(secret, account))
                .map(Arc::new),
        };
        let Some(account) = account else {
            exec::delete(ctx, &SECRETS, secret, DeleteOptions::default()).await?;
            return Ok(Outcome::Done);
        };
        let (Some(filled), false) = (self.filled(&account, secret), secret.is_deleting()) else { return Ok(Outcome::Done) };
        match filled {
            Ok(filled) => match exec::update(ctx, &SECRETS, &filled).await {
                // Whoever changed or deleted it has queued it again.
                Err(error) if !error.is_conflict() && !error.is_not_found() => Err(error),
                _ => Ok(Outcome::Done),
            },
            Err(why) => Ok(Outcome::Stuck(format!("no token can be made: {why}"))),
        }
    }

    /// The Secret with all that it lacks; `None`: it lacks nothing.
    fn filled(&self, account: &Value, secret: &Value) -> Option<Result<Value, String>> {
        let held = |key: &str| secret["data"][key].as_str().unwrap_or_default();
        let (lacks_ca, lacks_token) = (!self.ca.is_empty() && held("ca.crt") != self.ca, held("token").is_empty());
        let lacks_namespace = held("namespace").is_empty();
        if !lacks_ca && !lacks_token && !lacks_namespace {
            return None;
        }
        let mut filled = secret.clone();
        if lacks_ca {
            filled["data"]["ca.crt"] = json!(self.ca);
        }
        if lacks_namespace {
            filled["data"]["namespace"] = json!(STANDARD.encode(secret.namespace()));
        }
        if lacks_token {
            match (self.maker.0)(account, secret) {
                Ok(token) => filled["data"]["token"] = json!(STANDARD.encode(token)),
                Err(why) => return Some(Err(why)),
            }
        }
        filled.set_annotation(ACCOUNT_NAME, account.name());
        filled.set_annotation(ACCOUNT_UID, account.uid());
        Some(Ok(filled))
    }
}

/// Accounts name a Secret no longer that is gone.
async fn forget_references(ctx: &Ctx, secret: &Key) -> Result<(), ClientError> {
    for account in ctx.informer(&SERVICE_ACCOUNTS).list(Some(&secret.namespace)) {
        if !names(&account, &secret.name) {
            continue;
        }
        let mut changed = (*account).clone();
        let rest: Vec<&Value> = account.array_at("/secrets").iter().filter(|s| s["name"] != secret.name).collect();
        changed["secrets"] = json!(rest);
        match exec::update(ctx, &SERVICE_ACCOUNTS, &changed).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn names(account: &Value, secret: &str) -> bool {
    account.array_at("/secrets").iter().any(|s| s["name"] == secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Tokens {
        let maker = TokenMaker::new(|account, secret| Ok(format!("{}:{}", account.uid(), secret.name())));
        Tokens { maker, ca: STANDARD.encode("CA") }
    }

    #[test]
    fn a_secret_gets_what_it_lacks_and_nothing_else() {
        let account = json!({"metadata": {"namespace": "n", "name": "a", "uid": "u"}});
        let secret = json!({"metadata": {"namespace": "n", "name": "s", "annotations": {ACCOUNT_NAME: "a"}}, "type": TYPE, "data": {"mine": "eA=="}});
        let filled = tokens().filled(&account, &secret).expect("it lacks all").expect("it can be made");
        let text =
            |key: &str| String::from_utf8(STANDARD.decode(filled["data"][key].as_str().expect("text")).expect("base64")).expect("text");
        assert_eq!(["token", "ca.crt", "namespace", "mine"].map(text), ["u:s", "CA", "n", "x"]);
        assert_eq!(filled.annotation(ACCOUNT_UID), Some("u"));
        assert!(tokens().filled(&account, &filled).is_none());
        let mut old = filled.clone();
        old["data"]["ca.crt"] = json!("b2xk");
        let renewed = tokens().filled(&account, &old).expect("its authority is of old").expect("it can be made");
        assert_eq!(renewed["data"], filled["data"]);
    }

    #[test]
    fn a_secret_belongs_to_one_account() {
        let account = json!({"metadata": {"name": "a", "uid": "u"}});
        let secret = |name: &str, uid: &str| json!({"metadata": {"annotations": {ACCOUNT_NAME: name, ACCOUNT_UID: uid}}});
        assert!(is_of(&secret("a", "u"), &account) && is_of(&secret("a", ""), &account));
        assert!(!is_of(&secret("a", "former"), &account) && !is_of(&secret("b", "u"), &account));
    }

    #[test]
    fn the_data_of_others_is_not_kept() {
        let mut secrets = [json!({"type": "Opaque", "data": {"a": "eA=="}}), json!({"type": TYPE, "data": {"token": "eA=="}})];
        secrets.iter_mut().for_each(without_foreign_data);
        assert_eq!(secrets, [json!({"type": "Opaque", "data": {"a": ""}}), json!({"type": TYPE, "data": {"token": "eA=="}})]);
    }
}
