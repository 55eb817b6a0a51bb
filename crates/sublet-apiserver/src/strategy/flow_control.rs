//! Flow schemas and priority levels.

use super::edit::{child, ensure, fill, fill_zero};
use super::field::{Errors, Field, Seen, range};
use super::status::empty_status;
use super::{Strategy, keep_all_but_status, keep_status};
use serde_json::{Value, json};
use sublet_machinery::{FieldError, ObjectExt, names};

pub(super) const FLOW_SCHEMA: Strategy = Strategy {
    default: |object| {
        fill_zero(ensure(object, "spec"), "matchingPrecedence", 1000);
        fill(object, "status", json!({}));
    },
    prepare_create: empty_status,
    prepare_update: keep_status,
    prepare_status_update: keep_all_but_status,
    validate: validate_schema,
    validate_status_update: |new, _| validate_status(new),
    generation: true,
    ..Strategy::PLAIN
};

pub(super) const PRIORITY_LEVEL: Strategy = Strategy { default: default_level, validate: validate_level, ..FLOW_SCHEMA };

const PRECEDENCE_MAX: i64 = 10_000;
const QUEUES_MAX: i64 = 10_000_000;
const HASH_BITS_MAX: i64 = 60;
const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

fn default_level(level: &mut Value) {
    let spec = ensure(level, "spec");
    for (key, shares) in [("exempt", 0), ("limited", 30)] {
        if let Some(part) = child(spec, key) {
            fill(part, "nominalConcurrencyShares", shares);
            fill(part, "lendablePercent", 0);
        }
    }
    if let Some(limited) = child(spec, "limited") {
        let response = ensure(limited, "limitResponse");
        if let Some(queuing) = child(response, "queuing") {
            for (key, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                fill_zero(queuing, key, value);
            }
        }
    }
    fill(level, "status", json!({}));
}

fn validate_status(object: &Value) -> Vec<FieldError> {
    let conditions = Field::root(object).at("status").at("conditions");
    Errors::of(|errors| {
        let mut seen = Seen::default();
        for condition in conditions.items() {
            let kind = condition.at("type");
            if seen.again(kind.text()) {
                errors.add(FieldError::duplicate(&kind.path, kind.text()));
            }
            errors.require(&kind);
        }
    })
}

/// The names of schemas, and of levels, that always exist.
pub(crate) const MANDATORY_FLOW_NAMES: [&str; 2] = ["exempt", "catch-all"];

/// The spec of the two levels that always exist.
pub(crate) fn mandatory_level(name: &str) -> Option<Value> {
    match name {
        "exempt" => Some(json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}})),
        "catch-all" => {
            let limited = json!({"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}});
            Some(json!({"type": "Limited", "limited": limited}))
        }
        _ => None,
    }
}

/// The spec of the two schemas that always exist.
pub(crate) fn mandatory_schema(name: &str) -> Option<Value> {
    let every = |subjects: Value| {
        json!([{
            "subjects": subjects,
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }])
    };
    let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
    match name {
        "exempt" => Some(json!({
            "priorityLevelConfiguration": {"name": "exempt"},
            "matchingPrecedence": 1,
            "rules": every(json!([group("system:masters")])),
        })),
        "catch-all" => Some(json!({
            "priorityLevelConfiguration": {"name": "catch-all"},
            "matchingPrecedence": PRECEDENCE_MAX,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": every(json!([group("system:unauthenticated"), group("system:authenticated")])),
        })),
        _ => None,
    }
}

fn validate_schema(schema: &Value) -> Vec<FieldError> {
    let spec = Field::root(schema).at("spec");
    let (precedence, method) = (spec.at("matchingPrecedence"), spec.at("distinguisherMethod"));
    let level = spec.at("priorityLevelConfiguration").at("name");
    Errors::of(|errors| {
        if precedence.int() <= 0 {
            errors.add(precedence.invalid("must be a positive value"));
        }
        if precedence.int() > PRECEDENCE_MAX {
            errors.add(precedence.invalid(format!("must not be greater than {PRECEDENCE_MAX}")));
        }
        if precedence.int() == 1 && schema.name() != "exempt" {
            errors.add(precedence.invalid("only the schema named 'exempt' may have matchingPrecedence 1"));
        }
        let by = method.at("type");
        if method.is_set() && !matches!(by.text(), "ByNamespace" | "ByUser") {
            errors.add(Field::new(method.value, by.path).unsupported(&["ByNamespace", "ByUser"]));
        }
        if level.is_zero() {
            errors.add(level.required("must reference a priority level"));
        } else {
            errors.dns_subdomain(&level);
        }
        spec.at("rules").items().for_each(|rule| validate_rule(&rule, errors));
        if mandatory_schema(schema.name()).is_some_and(|fixed| fixed != *spec.value) {
            errors.add(spec.invalid(format!("spec of '{}' must equal the fixed value", schema.name())));
        }
        errors.extend(validate_status(schema));
    })
}

fn validate_rule(rule: &Field<'_>, errors: &mut Errors) {
    let (subjects, resources, others) = (rule.at("subjects"), rule.at("resourceRules"), rule.at("nonResourceRules"));
    if subjects.is_zero() {
        errors.add(subjects.required("subjects must contain at least one value"));
    }
    subjects.items().for_each(|subject| validate_subject(&subject, errors));
    if resources.is_zero() && others.is_zero() {
        errors.add(rule.required("at least one of resourceRules and nonResourceRules has to be non-empty"));
    }
    for rule in resources.items() {
        validate_verbs(&rule.at("verbs"), errors);
        validate_list(&rule.at("apiGroups"), "resource rules must supply at least one api group", "api groups", errors);
        validate_list(&rule.at("resources"), "resource rules must supply at least one resource", "resources", errors);
        validate_namespaces(&rule, errors);
    }
    for rule in others.items() {
        validate_verbs(&rule.at("verbs"), errors);
        let urls = rule.at("nonResourceURLs");
        validate_list(&urls, "nonResourceURLs must contain at least one value", "non-resource URLs", errors);
        if !has_star(&urls) {
            urls.items().for_each(|url| validate_url_path(&url, errors));
        }
    }
}

fn has_star(list: &Field<'_>) -> bool {
    list.items().any(|item| item.text() == "*")
}

fn validate_list(list: &Field<'_>, missing: &str, what: &str, errors: &mut Errors) {
    if list.is_zero() {
        errors.add(list.required(missing));
    } else if list.len() > 1 && has_star(list) {
        errors.add(list.invalid(format!("if '*' is present, must not specify other {what}")));
    }
}

fn validate_verbs(verbs: &Field<'_>, errors: &mut Errors) {
    validate_list(verbs, "verbs must contain at least one value", "verbs", errors);
    if !has_star(verbs) && verbs.items().any(|verb| !VERBS.contains(&verb.text())) {
        errors.add(verbs.unsupported(&VERBS));
    }
}

fn validate_namespaces(rule: &Field<'_>, errors: &mut Errors) {
    let namespaces = rule.at("namespaces");
    if namespaces.is_zero() {
        if !rule.at("clusterScope").flag() {
            errors.add(namespaces.required("resource rules that are not cluster scoped must supply at least one namespace"));
        }
    } else if has_star(&namespaces) {
        validate_list(&namespaces, "", "namespaces", errors);
    } else {
        for namespace in namespaces.items() {
            let wrong = names::dns_label(namespace.text()).into_iter();
            let intro = "each member of this list must be '*' or a DNS-1123 label; ";
            errors.extend(wrong.map(|m| namespace.invalid(format!("{intro}{m}"))));
        }
    }
}

fn validate_url_path(url: &Field<'_>, errors: &mut Errors) {
    let text = url.text();
    let stars = text.matches('*').count();
    let wrong = match text {
        "" => "must not be empty",
        "/" => return,
        _ if !text.starts_with('/') => "must start with slash",
        _ if text.contains(' ') => "must not contain white-space",
        _ if text.contains("//") => "must not contain double slash",
        _ if stars > 1 || (stars == 1 && !text.ends_with("/*")) => "wildcard can only do suffix matching",
        _ => return,
    };
    errors.add(url.invalid(wrong));
}

fn validate_subject(subject: &Field<'_>, errors: &mut Errors) {
    const KINDS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = subject.at("kind");
    let Some((_, key)) = KINDS.iter().find(|(name, _)| *name == kind.text()) else {
        return errors.add(kind.unsupported(&["Group", "ServiceAccount", "User"]));
    };
    let part = subject.at(key);
    if part.is_set() {
        let (name, namespace) = (part.at("name"), part.at("namespace"));
        if errors.require(&name) && *key == "serviceAccount" && name.text() != "*" {
            errors.dns_subdomain(&name);
        }
        if *key == "serviceAccount" {
            if namespace.is_zero() {
                errors.add(namespace.required("must specify namespace for service account"));
            } else {
                errors.dns_label(&namespace);
            }
        }
    } else {
        errors.add(part.required(&format!("{key} is required when subject kind is '{}'", kind.text())));
    }
    for (name, other) in KINDS.iter().filter(|(_, other)| other != key && subject.at(other).is_set()) {
        errors.add(subject.at(other).forbidden(format!("{other} is forbidden when subject kind is not '{name}'")));
    }
}

fn validate_level(level: &Value) -> Vec<FieldError> {
    const PRESERVE: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
    let spec = Field::root(level).at("spec");
    let (kind, exempt, limited) = (spec.at("type"), spec.at("exempt"), spec.at("limited"));
    Errors::of(|errors| {
        if level.annotation(PRESERVE).is_some() {
            let notes = Field::root(level).at("metadata").at("annotations");
            errors.add(notes.forbidden(format!("annotation '{PRESERVE}' is forbidden")));
        }
        if (level.name() == "exempt") != (kind.text() == "Exempt") {
            errors.add(kind.invalid_as(kind.text(), "must be 'Exempt' if and only if `name` is 'exempt'"));
        }
        if limited.is_set() && kind.text() != "Limited" {
            errors.add(limited.forbidden(""));
        }
        match kind.text() {
            "Limited" if exempt.is_set() => errors.add(exempt.forbidden("")),
            "Limited" if !limited.is_set() => errors.add(limited.required("")),
            "Exempt" | "Limited" => {}
            _ => errors.required_one_of(&kind, &["Exempt", "Limited"]),
        }
        match kind.text() {
            "Exempt" if exempt.is_set() => validate_shares(&exempt, errors),
            "Limited" if limited.is_set() => validate_limited(&limited, errors),
            _ => {}
        }
        validate_mandatory_level(level, &spec, errors);
        errors.extend(validate_status(level));
    })
}

fn validate_mandatory_level(level: &Value, spec: &Field<'_>, errors: &mut Errors) {
    match level.name() {
        "exempt" if spec.value["type"] != "Exempt" || spec.at("limited").is_set() => {
            errors.add(spec.invalid("spec of 'exempt' except the 'spec.exempt' field must equal the fixed value"));
        }
        "catch-all" if mandatory_level("catch-all").is_some_and(|fixed| fixed != *spec.value) => {
            errors.add(spec.invalid("spec of 'catch-all' must equal the fixed value"));
        }
        _ => {}
    }
}

fn validate_shares(part: &Field<'_>, errors: &mut Errors) {
    let shares = part.at("nominalConcurrencyShares");
    if shares.int() < 0 {
        errors.add(shares.invalid("must be a non-negative integer"));
    }
    let lendable = part.at("lendablePercent");
    if !(0..=100).contains(&lendable.int()) {
        errors.add(lendable.invalid(range(0, 100)));
    }
}

fn validate_limited(limited: &Field<'_>, errors: &mut Errors) {
    validate_shares(limited, errors);
    let borrowing = limited.at("borrowingLimitPercent");
    if borrowing.int() < 0 {
        errors.add(borrowing.invalid("if specified, must be a non-negative integer"));
    }
    let response = limited.at("limitResponse");
    let (kind, queuing) = (response.at("type"), response.at("queuing"));
    match kind.text() {
        "Reject" if queuing.is_set() => errors.add(queuing.forbidden("")),
        "Queue" if queuing.is_set() => validate_queuing(&queuing, errors),
        "Queue" => errors.add(queuing.required("")),
        _ => errors.required_one_of(&kind, &["Queue", "Reject"]),
    }
}

fn validate_queuing(queuing: &Field<'_>, errors: &mut Errors) {
    let (length, queues, hand) = (queuing.at("queueLengthLimit"), queuing.at("queues"), queuing.at("handSize"));
    for field in [&length, &queues, &hand].into_iter().filter(|field| field.int() <= 0) {
        errors.add(field.invalid("must be positive"));
    }
    if queues.int() > QUEUES_MAX {
        errors.add(queues.invalid(format!("must not be greater than {QUEUES_MAX}")));
    }
    if hand.int() <= 0 {
        return;
    }
    if hand.int() > queues.int() {
        return errors.add(hand.invalid(format!("should not be greater than queues ({})", queues.int())));
    }
    if entropy_bits(queues.int(), hand.int()) > HASH_BITS_MAX {
        let detail = format!(
            "required entropy bits of deckSize {} and handSize {} should not be greater than {HASH_BITS_MAX}",
            queues.int(),
            hand.int()
        );
        errors.add(hand.invalid(detail));
    }
}

#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "as upstream, on small numbers")]
fn entropy_bits(deck: i64, hand: i64) -> i64 {
    ((deck as f64).log2() * hand as f64).ceil() as i64
}
