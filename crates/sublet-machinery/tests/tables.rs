//! Quantities, selectors and names against what upstream (apimachinery 1.37) says of the same texts.

use serde_json::Value;
use sublet_machinery::names;
use sublet_machinery::{FieldError, FieldPath, FieldSelector, Quantity, Selector};

fn cases(text: &str) -> Vec<Value> {
    serde_json::from_str(text).expect("a table of cases is JSON")
}

/// Compares every case's `out` or `error` with what `run` makes of its `in`.
fn check(table: &str, run: impl Fn(&str) -> Result<String, String>) {
    let mut wrong = Vec::new();
    for case in cases(table) {
        let text = |field: &str| case[field].as_str().expect("cases hold texts");
        let actual = run(text("in"));
        let expected = match &case["error"] {
            Value::String(error) => Err(error.clone()),
            _ => Ok(text("out").to_string()),
        };
        if actual != expected {
            wrong.push(format!("{}: want {expected:?}, got {actual:?}", case["in"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn quantities_read_and_print_as_upstream_does() {
    check(include_str!("cases/quantity.json"), |text| Quantity::parse(text).map(|q| q.to_string()).map_err(|e| e.to_string()));
    for case in cases(include_str!("cases/quantity.json")).iter().filter(|c| c.get("sign").is_some()) {
        let quantity = Quantity::parse(case["in"].as_str().unwrap()).unwrap();
        assert_eq!(i64::from(quantity.sign()), case["sign"].as_i64().unwrap(), "{case}");
    }
}

#[test]
fn label_selectors_read_and_print_as_upstream_does() {
    check(include_str!("cases/label_selectors.json"), |text| Selector::parse(text).map(|s| s.to_string()).map_err(|e| e.to_string()));
}

#[test]
fn field_selectors_read_and_print_as_upstream_does() {
    check(include_str!("cases/field_selectors.json"), |text| FieldSelector::parse(text).map(|s| s.to_string()).map_err(|e| e.to_string()));
}

fn texts(errors: Vec<FieldError>) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn faults(rule: &str, text: &str) -> Vec<String> {
    let path = FieldPath::new("p");
    match rule {
        "label" => names::dns_label(text),
        "subdomain" => names::dns_subdomain(text),
        "subdomain_underscore" => names::dns_subdomain_with_underscore(text),
        "label1035" => names::dns_1035_label(text),
        "wildcard" => names::wildcard_dns_subdomain(text),
        "qualified" => names::qualified_name(text),
        "label_value" => names::label_value(text),
        "c_identifier" => names::c_identifier(text),
        "port_name" => names::port_name(text),
        "percent" => names::percent(text),
        "http_header" => names::http_header_name(text),
        "env" => names::env_var_name(text),
        "env_relaxed" => names::relaxed_env_var_name(text),
        "config_key" => names::config_map_key(text),
        "path_segment" => names::path_segment(text),
        "path_prefix" => names::path_segment_prefix(text),
        "gen_subdomain" => names::name_is_dns_subdomain(text, true),
        "gen_label" => names::name_is_dns_label(text, true),
        "fqdn" => texts(names::fully_qualified_domain_name(&path, text)),
        "fqn" => texts(names::fully_qualified_name(&path, text)),
        "domain_path" => texts(names::domain_prefixed_path(&path, text)),
        "ip" => texts(names::validate_ip(&path, text)),
        "ip_legacy" => texts(names::validate_ip_legacy(&path, text, false)),
        "ip_strict" => texts(names::validate_ip_legacy(&path, text, true)),
        "ip_warn" => names::ip_warnings(&path, text),
        "cidr" => texts(names::validate_cidr(&path, text)),
        "cidr_legacy" => texts(names::validate_cidr_legacy(&path, text, false)),
        "cidr_strict" => texts(names::validate_cidr_legacy(&path, text, true)),
        "cidr_warn" => names::cidr_warnings(&path, text),
        other => panic!("{other}"),
    }
}

#[test]
fn names_are_judged_as_upstream_judges_them() {
    let mut wrong = Vec::new();
    for row in cases(include_str!("cases/names.json")) {
        let rule = row["rule"].as_str().unwrap();
        for text in row["valid"].as_array().unwrap() {
            if !faults(rule, text.as_str().unwrap()).is_empty() {
                wrong.push(format!("{rule} {text} is valid"));
            }
        }
        for text in row["invalid"].as_array().unwrap() {
            if faults(rule, text.as_str().unwrap()).is_empty() {
                wrong.push(format!("{rule} {text} is not valid"));
            }
        }
        for (text, errors) in row["errors"].as_object().unwrap() {
            let actual = serde_json::json!(faults(rule, text));
            if actual != *errors {
                wrong.push(format!("{rule} {text:?}: want {errors}, got {actual}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
