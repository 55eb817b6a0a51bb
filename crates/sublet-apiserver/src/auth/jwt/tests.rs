use super::mapping::Claims;
use super::*;
use serde_json::json;

fn config(jwt: &Value) -> AuthenticationConfiguration {
    let text = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [jwt]}).to_string();
    AuthenticationConfiguration::parse(&text).expect("a configuration")
}

fn issuer() -> Value {
    json!({"url": "https://issuer.example.com", "audiences": ["a"]})
}

/// The user of claims, as JSON, or why there is none.
fn user(mut jwt: Value, claims: Value) -> Result<Value, String> {
    jwt["issuer"] = issuer();
    let config = config(&jwt);
    let mapping = config.compile(&[])?.remove(0);
    let user = Claims::new(&config.jwt[0], &mapping, claims).user()?;
    Ok(crate::auth::reviews::user_json(&user))
}

fn errors(jwt: &Value) -> String {
    config(jwt).compile(&["https://own.example.com".into()]).err().unwrap_or_default()
}

#[test]
fn claims_become_a_user_with_prefixes() {
    let mappings = json!({"claimMappings": {
        "username": {"claim": "sub", "prefix": "oidc:"}, "groups": {"claim": "roles", "prefix": "g:"}, "uid": {"claim": "uid"},
    }});
    assert_eq!(
        user(mappings.clone(), json!({"sub": "eve", "roles": ["a", "b"], "uid": "7", "jti": "x"})),
        Ok(json!({
            "username": "oidc:eve", "uid": "7", "groups": ["g:a", "g:b"],
            "extra": {"authentication.kubernetes.io/credential-id": ["JTI=x"]},
        }))
    );
    assert_eq!(user(mappings.clone(), json!({"sub": "eve", "roles": "one", "uid": ""})).unwrap()["groups"], json!(["g:one"]));
    assert_eq!(user(mappings, json!({"uid": "7"})), Err("oidc: parse username claims \"sub\": claim not present".into()));
}

#[test]
fn an_address_counts_when_it_was_verified() {
    let mappings = json!({"claimMappings": {"username": {"claim": "email", "prefix": ""}}});
    assert_eq!(user(mappings.clone(), json!({"email": "e@x"})).unwrap()["username"], "e@x");
    assert_eq!(user(mappings.clone(), json!({"email": "e@x", "email_verified": true})).unwrap()["username"], "e@x");
    assert_eq!(user(mappings, json!({"email": "e@x", "email_verified": false})), Err("oidc: email not verified".into()));
}

#[test]
fn expressions_make_users_and_judge_them() {
    let jwt = json!({
        "claimMappings": {
            "username": {"expression": "claims.org.name + ':' + claims.sub"},
            "groups": {"expression": "claims.roles.split(',')"},
            "uid": {"expression": "claims.n == 1 ? 'one' : 'many'"},
            "extra": [{"key": "example.com/tenant", "valueExpression": "claims.org['-x-']"}, {"key": "example.com/none", "valueExpression": "''"}],
        },
        "claimValidationRules": [
            {"claim": "hd", "requiredValue": "example.com"},
            {"expression": "claims.exp - claims.iat <= 3600", "message": "lives too long"},
        ],
        "userValidationRules": [{"expression": "!user.username.startsWith('system:') && user.groups.all(g, g != 'root')", "message": "reserved"}],
    });
    let claims =
        json!({"sub": "eve", "org": {"name": "acme", "-x-": "t1"}, "roles": "a,b", "n": 1, "hd": "example.com", "exp": 3600, "iat": 0});
    let with = |key: &str, value: Value| {
        let mut claims = claims.clone();
        claims[key] = value;
        user(jwt.clone(), claims)
    };
    let found = user(jwt.clone(), claims.clone()).unwrap();
    assert_eq!((&found["username"], &found["groups"], &found["uid"]), (&json!("acme:eve"), &json!(["a", "b"]), &json!("one")));
    assert_eq!(found["extra"], json!({"example.com/tenant": ["t1"]}));
    assert_eq!(
        with("hd", json!("evil.com")),
        Err("oidc: required claim hd value does not match. Got = evil.com, want = example.com".into())
    );
    assert_eq!(
        with("exp", json!(3601)),
        Err("oidc: error evaluating claim validation expression: validation expression 'claims.exp - claims.iat <= 3600' failed: lives too long".into())
    );
    let rule = "!user.username.startsWith('system:') && user.groups.all(g, g != 'root')";
    assert_eq!(
        with("roles", json!("root")),
        Err(format!("oidc: error evaluating user info validation rule: validation expression '{rule}' failed: reserved"))
    );
    assert!(with("roles", json!(7)).unwrap_err().starts_with("oidc: error evaluating group claim expression: "));
}

#[test]
fn wrong_configurations_are_refused_in_upstreams_words() {
    let name = json!({"claim": "sub", "prefix": ""});
    let check = |issuer: Value, mappings: Value, expected: &str| {
        assert_eq!(errors(&json!({"issuer": issuer, "claimMappings": mappings})), expected);
    };
    let named = json!({"username": name});
    check(issuer(), named.clone(), "");
    check(
        json!({}),
        named.clone(),
        "jwt[0].issuer.url: Required value, jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required",
    );
    let http = json!({"url": "http://u@x/?q=1", "audiences": ["a"]});
    check(
        http,
        named.clone(),
        "jwt[0].issuer.url: Invalid value: \"http://u@x/?q=1\": URL scheme must be https, jwt[0].issuer.url: Invalid value: \"http://u@x/?q=1\": URL must not contain a username or password, jwt[0].issuer.url: Invalid value: \"http://u@x/?q=1\": URL must not contain a query",
    );
    let own = json!({"url": "https://own.example.com", "audiences": ["a", "b"]});
    check(
        own,
        named,
        "jwt[0].issuer.url: Invalid value: \"https://own.example.com\": URL must not overlap with disallowed issuers: [https://own.example.com], jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple audiences",
    );
    check(issuer(), json!({}), "jwt[0].claimMappings.username: Required value: claim or expression is required");
    check(
        issuer(),
        json!({"username": {"claim": "sub"}}),
        "jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set. It can be set to an empty string to disable prefixing",
    );
    let reserved = json!({"username": name, "extra": [{"key": "kubernetes.io/x", "valueExpression": "claims.a"}]});
    check(
        issuer(),
        reserved,
        "jwt[0].claimMappings.extra[0].key: Invalid value: \"kubernetes.io/x\": k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use",
    );
    assert!(
        errors(&json!({"issuer": issuer(), "claimMappings": {"username": {"expression": "claims.email"}}}))
            .contains("claims.email_verified must be used")
    );
    assert_eq!(
        errors(
            &json!({"issuer": issuer(), "claimMappings": {"username": {"expression": "claims.?email_verified.orValue(true) == true ? claims.email : claims.sub"}}})
        ),
        ""
    );
    assert!(
        errors(&json!({"issuer": issuer(), "claimMappings": {"username": name}, "userValidationRules": [{"expression": "user.nobody"}]}))
            .contains("undefined field 'nobody'")
    );
    assert!(
        errors(&json!({"issuer": issuer(), "claimMappings": {"username": name}, "claimValidationRules": [{"expression": "'x'"}]}))
            .ends_with("must evaluate to bool")
    );
}

#[test]
fn other_tokens_are_none_of_ours() {
    let authenticators = JwtAuthenticators::new(vec!["api".into()]);
    let mut jwt = json!({"claimMappings": {"username": {"claim": "sub", "prefix": ""}}});
    jwt["issuer"] = issuer();
    authenticators.replace(&config(&jwt), &[]).unwrap();
    let token = |claims: Value| format!("{}.{}.c2ln", BASE64.encode(r#"{"alg":"RS256"}"#), BASE64.encode(claims.to_string()));
    let ask = |token: &str| authenticators.authenticate_token(token, &["api".into()], Timestamp::UNIX_EPOCH);
    assert_eq!(ask("opaque"), Ok(None));
    assert_eq!(ask(&token(json!({"iss": "https://other.example.com"}))), Ok(None));
    assert_eq!(ask(&token(json!({"iss": "https://issuer.example.com"}))), Err("oidc: authenticator not initialized".into()));
    let none = format!("{}.{}.", BASE64.encode(r#"{"alg":"none"}"#), BASE64.encode(r#"{"iss":"https://issuer.example.com"}"#));
    assert!(ask(&none).unwrap_err().contains("unsupported algorithm"));
}
