//! What a claim got and who uses it.

use super::super::conditions::validate_conditions;
use super::super::field::{Errors, Field, Seen};
use super::super::pod::validate::{node_selector, validate_driver_name_in_any_case};
use super::claim::{REQUESTS_MAX, RequestNames, request_names, validate_reference, validate_references};
use super::rules::{
    is_too_long, validate_binding, validate_configuration, validate_driver, validate_object, validate_pool, validate_pool_of_result,
    validate_toleration,
};
use serde_json::{Value, json};
use sublet_machinery::{FieldError, ObjectExt};

const CONSUMERS_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
const CONDITIONS_MAX: usize = 8;
const DATA_BYTES_MAX: usize = 10 * 1024;

pub(super) fn validate_status(new: &Value, old: &Value) -> Vec<FieldError> {
    let status = Field::root(new).at("status");
    let (allocation, before) = (status.at("allocation"), &old["status"]["allocation"]);
    let known = request_names(&Field::root(new).at("spec"));
    Errors::of(|errors| {
        validate_consumers(new, old, &status, errors);
        validate_devices(&status, errors);
        if !before.is_null() && allocation.is_set() {
            if allocation.value != before {
                errors.add(allocation.invalid_as(Value::Null, "field cannot be modified once set"));
            }
        } else if allocation.is_set() {
            validate_allocation(&allocation, &known, errors);
        }
    })
}

fn validate_consumers(new: &Value, old: &Value, status: &Field<'_>, errors: &mut Errors) {
    let consumers = status.at("reservedFor");
    if is_too_long(&consumers, CONSUMERS_MAX, errors) {
        return;
    }
    let mut seen = Seen::default();
    for consumer in consumers.items() {
        errors.require_all(&consumer, &["resource", "name", "uid"]);
        if seen.again(consumer.at("uid").text()) {
            errors.add(consumer.duplicate());
        }
    }
    if consumers.is_zero() {
        return;
    }
    let before = old["status"]["reservedFor"].as_array().map_or(&[][..], Vec::as_slice);
    if !status.at("allocation").is_set() {
        errors.add(consumers.forbidden("may not be specified when `allocated` is not set"));
    } else if new.is_deleting() && consumers.list().iter().any(|consumer| !before.contains(consumer)) {
        errors.add(consumers.forbidden("new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"));
    }
}

fn identity(device: &Value) -> [&Value; 4] {
    ["driver", "pool", "device", "shareID"].map(|key| &device[key])
}

fn validate_devices(status: &Field<'_>, errors: &mut Errors) {
    let results = status.at("allocation").at("devices").at("results");
    let mut seen = Seen::default();
    for device in status.at("devices").items() {
        validate_driver(&device.at("driver"), errors);
        validate_pool(&device.at("pool"), errors);
        errors.dns_label(&device.at("device"));
        let shown = json!({"Driver": device.at("driver").value, "Pool": device.at("pool").value, "Device": device.at("device").value});
        if !results.list().iter().any(|result| identity(result) == identity(device.value)) {
            errors.add(device.invalid_as(shown.clone(), "must be an allocated device in the claim"));
        }
        if seen.again(json!(identity(device.value)).to_string()) {
            errors.add(FieldError::duplicate(&device.path, shown));
        }
        is_too_long(&device.at("conditions"), CONDITIONS_MAX, errors);
        validate_conditions(&device.at("conditions"), errors);
        if device.at("data").is_set() {
            validate_object(&device.at("data"), DATA_BYTES_MAX, errors);
        }
    }
}

fn validate_allocation(allocation: &Field<'_>, known: &RequestNames<'_>, errors: &mut Errors) {
    let devices = allocation.at("devices");
    if !is_too_long(&devices.at("results"), RESULTS_MAX, errors) {
        for result in devices.at("results").items() {
            validate_reference(&result.at("request"), known, errors);
            validate_driver_name_in_any_case(&result.at("driver"), errors);
            validate_pool_of_result(&result.at("pool"), errors);
            errors.dns_label(&result.at("device"));
            validate_binding(&result, errors);
            result.at("tolerations").items().for_each(|toleration| validate_toleration(&toleration, errors));
        }
    }
    if !is_too_long(&devices.at("config"), 2 * REQUESTS_MAX, errors) {
        for config in devices.at("config").items() {
            errors.required_one_of(&config.at("source"), &["FromClaim", "FromClass"]);
            validate_references(&config.at("requests"), known, errors);
            validate_configuration(&config, errors);
        }
    }
    if allocation.at("nodeSelector").is_set() {
        node_selector::validate(&allocation.at("nodeSelector"), errors);
    }
}
