//! From the claims of a token to a user.

use super::config::JwtAuthenticator;
use crate::admission::UserInfo;
use crate::auth::reviews::user_json;
use crate::auth::tokens::CREDENTIAL_ID;
use crate::cel::{self, CALL_COST_MAX, Fields, Program, Type, to_json};
use serde_json::Value;
use std::sync::{Arc, LazyLock};

pub(super) const CLAIMS: &str = "claims";
pub(super) const USER: &str = "user";

/// Costs of all expressions for one token.
const COST_MAX: u64 = 4 * CALL_COST_MAX;

#[derive(Clone, Debug)]
pub(super) struct Expression {
    pub text: String,
    pub program: Program,
}

/// The compiled parts of the rules of one issuer. Rules with a message.
#[derive(Clone, Debug, Default)]
pub(super) struct Mapping {
    pub username: Option<Expression>,
    pub groups: Option<Expression>,
    pub uid: Option<Expression>,
    pub extra: Vec<(String, Expression)>,
    /// Claims that must have a value.
    pub required: Vec<(String, String)>,
    pub claim_rules: Vec<(Expression, String)>,
    pub user_rules: Vec<(Expression, String)>,
}

static USER_FIELDS: LazyLock<Arc<Fields>> = LazyLock::new(|| {
    let texts = || Type::List(Box::new(Type::String));
    let extra = Type::Map(Box::new(Type::String), Box::new(texts()));
    let fields = [("username", Type::String), ("uid", Type::String), ("groups", texts()), ("extra", extra)];
    Arc::new(Fields { name: "kubernetes.UserInfo", fields: fields.map(|(name, of)| (name.to_string(), of)).to_vec() })
});

pub(super) fn user_type() -> Type<'static> {
    Type::Fields(USER_FIELDS.clone())
}

/// One token on its way to a user.
pub(super) struct Claims<'a> {
    jwt: &'a JwtAuthenticator,
    mapping: &'a Mapping,
    claims: Value,
}

/// Numbers as Go reads them where it knows no types: expressions see doubles.
fn with_doubles(value: Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or(Value::Number(number), Value::from),
        Value::Array(items) => Value::Array(items.into_iter().map(with_doubles).collect()),
        Value::Object(map) => Value::Object(map.into_iter().map(|(key, value)| (key, with_doubles(value))).collect()),
        other => other,
    }
}

impl<'a> Claims<'a> {
    pub(super) fn new(jwt: &'a JwtAuthenticator, mapping: &'a Mapping, claims: Value) -> Self {
        Self { jwt, mapping, claims: with_doubles(claims) }
    }

    /// The user, or why there is none.
    pub(super) fn user(&self) -> Result<UserInfo, String> {
        let mut budget = COST_MAX;
        let mut user = UserInfo { name: self.username(&mut budget)?, groups: self.groups(&mut budget)?, ..UserInfo::default() };
        user.uid = self.uid(&mut budget)?;
        if let Some(id) = self.claims["jti"].as_str().filter(|id| !id.is_empty()) {
            user.extra.insert(CREDENTIAL_ID.to_string(), vec![format!("JTI={id}")]);
        }
        for (key, expression) in &self.mapping.extra {
            let values = self.eval(expression, &mut budget).and_then(|value| texts(&value));
            let values = values.map_err(|why| format!("oidc: error evaluating extra claim expression: {}: {why}", expression.text))?;
            if !values.is_empty() {
                user.extra.insert(key.clone(), values);
            }
        }
        self.check(&mut budget)?;
        let seen = with_all_fields(&user);
        for (rule, message) in &self.mapping.user_rules {
            holds(rule, message, USER, &seen, &mut budget)
                .map_err(|why| format!("oidc: error evaluating user info validation rule: {why}"))?;
        }
        Ok(user)
    }

    fn eval(&self, expression: &Expression, budget: &mut u64) -> Result<Value, String> {
        run(expression, CLAIMS, &self.claims, budget)
    }

    fn username(&self, budget: &mut u64) -> Result<String, String> {
        if let Some(expression) = &self.mapping.username {
            let failed = |why: String| format!("oidc: error evaluating username claim expression: {why}");
            return match self.eval(expression, budget).map_err(failed)? {
                Value::String(name) if name.is_empty() => Err("oidc: empty username via CEL expression is not allowed".into()),
                Value::String(name) => Ok(name),
                _ => Err(failed("username claim expression must return a string".into())),
            };
        }
        let stated = &self.jwt.claim_mappings.username;
        let name = self.text(&stated.claim).map_err(|why| format!("oidc: parse username claims {:?}: {why}", stated.claim))?;
        if stated.claim == "email" {
            match &self.claims["email_verified"] {
                Value::Null if self.claims.get("email_verified").is_none() => {}
                Value::Bool(true) => {}
                Value::Bool(false) => return Err("oidc: email not verified".into()),
                _ => return Err("oidc: parse 'email_verified' claim: it is not a boolean".into()),
            }
        }
        Ok(format!("{}{name}", stated.prefix.as_deref().unwrap_or_default()))
    }

    fn groups(&self, budget: &mut u64) -> Result<Vec<String>, String> {
        if let Some(expression) = &self.mapping.groups {
            let groups = self.eval(expression, budget).and_then(|value| texts(&value));
            return groups.map_err(|why| format!("oidc: error evaluating group claim expression: {why}"));
        }
        let stated = &self.jwt.claim_mappings.groups;
        let Some(value) = self.claims.get(&stated.claim).filter(|_| !stated.claim.is_empty()) else { return Ok(Vec::new()) };
        let wrong = || format!("oidc: parse groups claim {:?}: it is neither a text nor a list of texts", stated.claim);
        let prefix = stated.prefix.as_deref().unwrap_or_default();
        let named = |name: &Value| name.as_str().map(|name| format!("{prefix}{name}")).ok_or_else(wrong);
        match value {
            Value::Null => Ok(Vec::new()),
            Value::Array(groups) => groups.iter().map(named).collect(),
            one => Ok(vec![named(one)?]),
        }
    }

    fn uid(&self, budget: &mut u64) -> Result<String, String> {
        let stated = &self.jwt.claim_mappings.uid;
        match &self.mapping.uid {
            _ if !stated.claim.is_empty() => {
                self.text(&stated.claim).map_err(|why| format!("oidc: parse uid claim {:?}: {why}", stated.claim))
            }
            None => Ok(String::new()),
            Some(expression) => {
                let failed = |why: String| format!("oidc: error evaluating uid claim expression: {why}");
                let value = self.eval(expression, budget).map_err(failed)?;
                value.as_str().map(str::to_string).ok_or_else(|| failed("uid claim expression must return a string".into()))
            }
        }
    }

    /// The rules about claims.
    fn check(&self, budget: &mut u64) -> Result<(), String> {
        for (claim, wanted) in &self.mapping.required {
            if self.claims.get(claim).is_none() {
                return Err(format!("oidc: required claim {claim} not present in ID token"));
            }
            let got = self.text(claim).map_err(|why| format!("oidc: parse claim {claim}: {why}"))?;
            if got != *wanted {
                return Err(format!("oidc: required claim {claim} value does not match. Got = {got}, want = {wanted}"));
            }
        }
        for (rule, message) in &self.mapping.claim_rules {
            let held = holds(rule, message, CLAIMS, &self.claims, budget);
            held.map_err(|why| format!("oidc: error evaluating claim validation expression: {why}"))?;
        }
        Ok(())
    }

    fn text(&self, claim: &str) -> Result<String, String> {
        match self.claims.get(claim) {
            None => Err("claim not present".into()),
            Some(Value::Null) => Ok(String::new()),
            Some(value) => value.as_str().map(str::to_string).ok_or_else(|| "it is not a string".into()),
        }
    }
}

fn run(expression: &Expression, variable: &str, value: &Value, budget: &mut u64) -> Result<Value, String> {
    let seen = cel::of_json(value, None, false)?;
    let (result, cost) = expression.program.eval(&[(variable, seen)], *budget);
    *budget = budget.saturating_sub(cost);
    to_json(&result.map_err(|why| format!("expression '{}' resulted in error: {why}", expression.text))?)
}

fn holds(rule: &Expression, message: &str, variable: &str, value: &Value, budget: &mut u64) -> Result<(), String> {
    match run(rule, variable, value, budget)? {
        Value::Bool(true) => Ok(()),
        Value::Bool(false) => Err(format!("validation expression '{}' failed: {message}", rule.text)),
        _ => Err("validation expression must return a boolean".into()),
    }
}

/// A text or a list of texts; empty ones count for nothing.
fn texts(value: &Value) -> Result<Vec<String>, String> {
    let wrong = || "expression must return a string or a list of strings".to_string();
    let list = match value {
        Value::Null => &[][..],
        Value::Array(list) => list,
        one => std::slice::from_ref(one),
    };
    let texts: Vec<String> = list.iter().map(|text| text.as_str().map(str::to_string).ok_or_else(wrong)).collect::<Result<_, _>>()?;
    Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
}

/// Expressions may look at every field.
fn with_all_fields(user: &UserInfo) -> Value {
    let mut seen = user_json(user);
    for (field, empty) in [("username", Value::from("")), ("uid", Value::from("")), ("groups", Value::Array(Vec::new()))] {
        if seen[field].is_null() {
            seen[field] = empty;
        }
    }
    if seen["extra"].is_null() {
        seen["extra"] = serde_json::json!({});
    }
    seen
}
