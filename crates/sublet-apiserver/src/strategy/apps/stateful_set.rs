//! Stateful sets.

use super::super::core::volume::{default_claim, validate_claim_spec};
use super::super::edit::{ensure, fill, fill_zero, items};
use super::super::field::{Errors, Field};
use super::super::pod::defaults::default_template;
use super::super::pod::validate::validate_template;
use super::super::pod::warnings;
use super::super::status::{keep_spec, zero_counters};
use super::super::{NameRule, Strategy, keep_status};
use super::rules;
use serde_json::{Value, json};
use sublet_machinery::{FieldError, ObjectExt};

pub(crate) const STATEFUL_SET: Strategy = Strategy {
    default,
    prepare_create: |object| object["status"] = json!({"availableReplicas": 0, "replicas": 0}),
    prepare_update: keep_status,
    prepare_status_update: keep_spec,
    validate,
    validate_create,
    validate_update,
    validate_status_update,
    warnings,
    warnings_update: Some(|new, old| {
        let mut all = warnings::of_changed(new, old, &["spec", "template"]);
        all.extend(own_warnings(new));
        all
    }),
    name_rule: NameRule::DnsLabel,
    generation: true,
    ..Strategy::PLAIN
};

fn default(set: &mut Value) {
    let spec = ensure(set, "spec");
    fill_zero(spec, "podManagementPolicy", "OrderedReady");
    default_update_strategy(ensure(spec, "updateStrategy"));
    let retention = ensure(spec, "persistentVolumeClaimRetentionPolicy");
    fill_zero(retention, "whenDeleted", "Retain");
    fill_zero(retention, "whenScaled", "Retain");
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "serviceName", "");
    default_template(ensure(spec, "template"));
    for claim in items(spec, "volumeClaimTemplates") {
        ensure(claim, "metadata");
        // Whatever a client says they are.
        claim["apiVersion"] = json!("v1");
        claim["kind"] = json!("PersistentVolumeClaim");
        default_claim(claim);
    }
    zero_counters(set, &["availableReplicas", "replicas"]);
}

fn default_update_strategy(strategy: &mut Value) {
    if super::super::edit::is_zero(&strategy["type"]) {
        fill_zero(strategy, "type", "RollingUpdate");
        ensure(strategy, "rollingUpdate");
    }
    if strategy["type"] == "RollingUpdate" && strategy["rollingUpdate"].is_object() {
        let rolling = ensure(strategy, "rollingUpdate");
        fill(rolling, "partition", 0);
        fill(rolling, "maxUnavailable", 1);
    }
}

fn validate(set: &Value) -> Vec<FieldError> {
    let spec = Field::root(set).at("spec");
    Errors::of(|errors| {
        let policy = spec.at("podManagementPolicy");
        if errors.require(&policy) && !matches!(policy.text(), "OrderedReady" | "Parallel") {
            errors.add(policy.invalid("must be 'OrderedReady' or 'Parallel'"));
        }
        validate_update_strategy(&spec.at("updateStrategy"), errors);
        for key in ["whenDeleted", "whenScaled"] {
            errors.one_of(&spec.at("persistentVolumeClaimRetentionPolicy").at(key), &["Retain", "Delete"]);
        }
        rules::validate_counts(&spec, &["replicas", "minReadySeconds"], errors);
        errors.non_negative(&Field::new(spec.at("ordinals").at("start").value, spec.path.child("ordinals.start")));
        rules::validate_selector(&spec, "statefulset", errors);
        match rules::read_selector(&spec.at("selector")) {
            Some(selector) => {
                let template = template_with_claims(&spec);
                let template = Field::new(&template, spec.path.child("template"));
                rules::validate_match(&template, &selector, errors);
                validate_template(&template, errors);
            }
            None => errors.add(spec.at("selector").invalid("")),
        }
        rules::validate_lasting(&spec.at("template"), "StatefulSet", errors);
    })
}

/// The template as its pods will be: with a volume for every claim, and names that the set gives.
fn template_with_claims(spec: &Field<'_>) -> Value {
    let mut template = spec.at("template").value.clone();
    let inner = ensure(&mut template, "spec");
    for key in ["hostname", "subdomain"] {
        super::super::edit::remove(inner, key);
    }
    let claims = spec.at("volumeClaimTemplates");
    let names: Vec<&str> = claims.list().iter().map(ObjectExt::name).collect();
    if !names.is_empty() {
        let mut volumes: Vec<Value> = Vec::new();
        for name in &names {
            if !volumes.iter().any(|v| v["name"] == *name) {
                volumes.push(json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
            }
        }
        let own = inner["volumes"].as_array().cloned().unwrap_or_default();
        volumes.extend(own.into_iter().filter(|v| !names.iter().any(|name| v["name"] == *name)));
        inner["volumes"] = json!(volumes);
    }
    template
}

fn validate_update_strategy(strategy: &Field<'_>, errors: &mut Errors) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "" => errors.add(strategy.required("")),
        "OnDelete" if rolling.is_set() => errors.add(rolling.invalid("only allowed for updateStrategy 'RollingUpdate'")),
        "OnDelete" => {}
        "RollingUpdate" => {
            errors.non_negative(&rolling.at("partition"));
            let unavailable = rolling.at("maxUnavailable");
            if unavailable.is_set() {
                rules::validate_int_or_percent(&unavailable, errors);
                if rules::int_or_percent(&unavailable) == 0 {
                    errors.add(unavailable.invalid("cannot be 0"));
                }
                rules::validate_at_most_whole(&unavailable, errors);
            }
        }
        _ => errors.add(strategy.invalid("must be 'RollingUpdate' or 'OnDelete'")),
    }
}

/// Later these are immutable, so what was stored before a rule is left alone.
fn validate_create(set: &Value) -> Vec<FieldError> {
    let spec = Field::root(set).at("spec");
    Errors::of(|errors| {
        spec.at("volumeClaimTemplates").items().for_each(|claim| validate_claim_spec(&claim.at("spec"), errors));
        if !spec.at("serviceName").is_zero() {
            errors.dns_label(&spec.at("serviceName"));
        }
    })
}

fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let spec = Field::root(new).at("spec");
    Errors::of(|errors| {
        for key in ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"] {
            errors.immutable(&spec.at(key), &old["spec"][key]);
        }
    })
}

fn validate_status_update(new: &Value, old: &Value) -> Vec<FieldError> {
    const PARTS: [&str; 4] = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    let status = Field::root(new).at("status");
    Errors::of(|errors| {
        rules::validate_counts(&status, &["replicas"], errors);
        rules::validate_counts(&status, &PARTS, errors);
        rules::validate_counts(&status, &["observedGeneration", "collisionCount"], errors);
        rules::validate_parts(&status, &PARTS, "replicas", "cannot be greater than status.replicas", errors);
        rules::validate_parts(&status, &["availableReplicas"], "readyReplicas", "cannot be greater than status.readyReplicas", errors);
        rules::validate_collisions(&status, &old["status"], errors);
    })
}

fn warnings(set: &Value) -> Vec<String> {
    let mut all = warnings::of_template(&Field::root(set).at("spec").at("template"));
    all.extend(own_warnings(set));
    all
}

/// What has nothing to do with the pods.
fn own_warnings(set: &Value) -> Vec<String> {
    let spec = Field::root(set).at("spec");
    let mut all = Vec::new();
    spec.at("volumeClaimTemplates")
        .items()
        .for_each(|claim| warnings::claim_spec(&Field::new(claim.at("spec").value, claim.path.clone()), &mut all));
    if spec.at("revisionHistoryLimit").int() < 0 {
        all.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".into());
    }
    all
}
