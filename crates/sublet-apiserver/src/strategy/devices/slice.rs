//! What drivers offer.

use super::super::field::{Errors, Field, Seen};
use super::super::pod::validate::node_selector;
use super::rules::{is_too_long, validate_binding, validate_driver, validate_name, validate_pool, validate_set, validate_taint};
use regex::Regex;
use serde_json::Value;
use std::sync::LazyLock;
use sublet_machinery::FieldError;

const DEVICES_MAX: usize = 128;
const DEVICES_ADVANCED_MAX: usize = 64;
const ATTRIBUTES_MAX: usize = 32;
const VALUE_BYTES_MAX: usize = 64;
const COUNTER_SETS_MAX: usize = 8;
const COUNTERS_MAX: usize = 32;
const CONSUMPTIONS_MAX: usize = 2;
const TAINTS_MAX: usize = 16;

static SEMVER: LazyLock<Regex> = LazyLock::new(|| {
    let number = r"(0|[1-9]\d*)";
    let pre = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)";
    let build = "[0-9a-zA-Z-]+";
    Regex::new(&format!(r"^{number}\.{number}\.{number}(-{pre}(\.{pre})*)?(\+{build}(\.{build})*)?$")).expect("a valid pattern")
});

pub(super) fn validate(slice: &Value) -> Vec<FieldError> {
    let spec = Field::root(slice).at("spec");
    let pool = spec.at("pool");
    Errors::of(|errors| {
        validate_driver(&spec.at("driver"), errors);
        validate_pool(&pool.at("name"), errors);
        errors.positive(&pool.at("resourceSliceCount"));
        if pool.at("generation").int() < 0 {
            errors.add(pool.at("generation").invalid("must be greater than or equal to zero"));
        }
        validate_place(&spec, errors);
        validate_devices(&spec, errors);
    })
}

pub(super) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let (spec, before) = (Field::root(new).at("spec"), &old["spec"]);
    Errors::of(|errors| {
        errors.immutable(&spec.at("pool").at("name"), &before["pool"]["name"]);
        errors.immutable(&spec.at("driver"), &before["driver"]);
        errors.immutable(&spec.at("nodeName"), &before["nodeName"]);
    })
}

/// Where the devices are: said in one of four ways.
fn validate_place(spec: &Field<'_>, errors: &mut Errors) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let (name, selector) = (spec.at("nodeName"), spec.at("nodeSelector"));
    let mut given = Vec::new();
    if name.is_set() && name.is_zero() {
        errors.add(name.invalid("must be either unset or set to a non-empty string"));
    } else if name.is_set() {
        given.push("`nodeName`");
        errors.dns_subdomain(&name);
    }
    if selector.is_set() {
        given.push("`nodeSelector`");
        node_selector::validate(&selector, errors);
        if selector.at("nodeSelectorTerms").len() != 1 {
            errors.add(selector.at("nodeSelectorTerms").invalid("must have exactly one node selector term"));
        }
    }
    for (key, shown) in [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")] {
        let flag = spec.at(key);
        if flag.flag() {
            given.push(shown);
        } else if flag.is_set() {
            errors.add(flag.invalid("must be either unset or set to true"));
        }
    }
    match given.len() {
        0 => errors.add(spec.required(ONE)),
        1 => {}
        _ => errors.add(spec.invalid_as(format!("{{{}}}", given.join(", ")), format!("{ONE}, but multiple fields are set"))),
    }
}

fn validate_devices(spec: &Field<'_>, errors: &mut Errors) {
    let (devices, counters) = (spec.at("devices"), spec.at("sharedCounters"));
    if devices.is_set() && counters.is_set() {
        errors.add(spec.invalid_as("", "only one of `sharedCounters` or `devices` is allowed"));
    }
    let advanced = devices.items().any(|device| !device.at("taints").is_zero() || !device.at("consumesCounters").is_zero());
    let devices_max = if advanced { DEVICES_ADVANCED_MAX } else { DEVICES_MAX };
    let each = spec.at("perDeviceNodeSelection").flag();
    if !is_too_long(&devices, devices_max, errors) {
        let mut seen = Seen::default();
        for device in devices.items() {
            validate_device(&device, each, errors);
            if seen.again(device.at("name").text()) {
                errors.add(FieldError::duplicate(&device.path, device.at("name").text()));
            }
        }
    }
    validate_set(&counters, COUNTER_SETS_MAX, "name", errors, |set, errors| {
        if errors.require(&set.at("name")) {
            errors.dns_label(&set.at("name"));
        }
        validate_counters(&set.at("counters"), errors);
    });
}

fn validate_counters(counters: &Field<'_>, errors: &mut Errors) {
    if !errors.require(counters) || is_too_long(counters, COUNTERS_MAX, errors) {
        return;
    }
    for (name, _) in counters.entries() {
        errors.extend(sublet_machinery::names::dns_label(name).into_iter().map(|m| counters.invalid_as(name, m)));
    }
}

fn validate_device(device: &Field<'_>, each_says_where: bool, errors: &mut Errors) {
    let (attributes, capacity) = (device.at("attributes"), device.at("capacity"));
    errors.dns_label(&device.at("name"));
    let count = attributes.len() + capacity.len();
    if count > ATTRIBUTES_MAX {
        errors.add(device.invalid_as(count, format!("the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}")));
    }
    for (name, attribute) in attributes.entries() {
        validate_name(name, &attributes, errors);
        validate_attribute(&attribute, errors);
    }
    for (name, amount) in capacity.entries() {
        validate_name(name, &capacity, errors);
        if amount.at("requestPolicy").is_set() && !device.at("allowMultipleAllocations").flag() {
            errors.add(amount.at("requestPolicy").forbidden("allowMultipleAllocations must be true"));
        }
    }
    if !is_too_long(&device.at("taints"), TAINTS_MAX, errors) {
        device.at("taints").items().for_each(|taint| validate_taint(&taint, errors));
    }
    validate_set(&device.at("consumesCounters"), CONSUMPTIONS_MAX, "counterSet", errors, |use_, errors| {
        if errors.require(&use_.at("counterSet")) {
            errors.dns_label(&use_.at("counterSet"));
        }
        validate_counters(&use_.at("counters"), errors);
    });
    validate_device_place(device, each_says_where, errors);
    validate_binding(device, errors);
}

fn validate_device_place(device: &Field<'_>, each_says_where: bool, errors: &mut Errors) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let (name, selector, all) = (device.at("nodeName"), device.at("nodeSelector"), device.at("allNodes"));
    if !each_says_where {
        if name.is_set() || selector.is_set() || all.is_set() {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.add(device.invalid_as(Value::Null, detail));
        }
        return;
    }
    let mut given = Vec::new();
    if name.is_set() && name.is_zero() {
        errors.add(name.invalid("must not be empty"));
    } else if name.is_set() {
        given.push("`nodeName`");
        errors.dns_subdomain(&name);
    }
    if selector.is_set() {
        given.push("`nodeSelector`");
        node_selector::validate(&selector, errors);
    }
    if all.flag() {
        given.push("`allNodes`");
    } else if all.is_set() {
        errors.add(all.invalid("must be either unset or set to true"));
    }
    match given.len() {
        0 => errors.add(device.required(ONE)),
        1 => {}
        _ => errors.add(device.invalid_as(format!("{{{}}}", given.join(", ")), ONE)),
    }
}

fn validate_attribute(attribute: &Field<'_>, errors: &mut Errors) {
    let texts = |key: &str, list: &str| -> Vec<Field<'_>> {
        [attribute.at(key)].into_iter().filter(Field::is_set).chain(attribute.at(list).items()).collect()
    };
    for text in texts("string", "strings").into_iter().filter(|text| text.len() > VALUE_BYTES_MAX) {
        errors.add(text.too_long(VALUE_BYTES_MAX));
    }
    for version in texts("version", "versions") {
        if !SEMVER.is_match(version.text()) {
            errors.add(version.invalid("must be a string compatible with semver.org spec 2.0.0"));
        }
        if version.len() > VALUE_BYTES_MAX {
            errors.add(version.too_long(VALUE_BYTES_MAX));
        }
    }
    for key in ["bools", "ints", "strings", "versions"] {
        if attribute.at(key).is_set() && attribute.at(key).is_zero() {
            errors.add(attribute.at(key).invalid("must not be empty if specified"));
        }
    }
    let kinds = ["int", "bool", "string", "version", "ints", "bools", "strings", "versions"];
    let all = kinds.map(|kind| format!("`{kind}`")).join(", ");
    let given: Vec<&str> = kinds.into_iter().filter(|key| attribute.at(key).is_set()).collect();
    match given.len() {
        0 => errors.add(attribute.invalid_as("", format!("must specify one of: {all}"))),
        1 => {}
        _ => errors.add(attribute.invalid_as(format!("{{{}}}", given.join(", ")), format!("must specify exactly one of: {all}"))),
    }
}
