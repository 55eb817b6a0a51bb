//! What CSI drivers and attachers write.

use super::super::edit::{ensure, fill, fill_zero, items};
use super::super::field::{Errors, Field, IMMUTABLE, NEGATIVE, Seen, range};
use super::super::pod::validate::{validate_driver_name, validate_driver_name_in_any_case};
use super::super::pod::warnings::{node_selector_term, old_label};
use super::super::status::empty_status;
use super::super::{Strategy, keep_all_but_status, keep_status, spec_changed};
use serde_json::{Value, json};
use sublet_machinery::{FieldError, FieldPath};

/// The generation of a driver starts at nothing and rises with changes of the spec.
pub(crate) const CSI_DRIVER: Strategy = Strategy {
    default: default_driver,
    prepare_update: bump_driver,
    validate: validate_driver,
    validate_update: |new, old| {
        let (spec, before) = (Field::root(new).at("spec"), &old["spec"]);
        Errors::of(|errors| {
            errors.immutable(&spec.at_as("attachRequired", "attachedRequired"), &before["attachRequired"]);
            errors.immutable(&spec.at("volumeLifecycleModes"), &before["volumeLifecycleModes"]);
        })
    },
    warnings: token_warnings,
    warnings_update: Some(|new, old| {
        let changed = new["spec"]["tokenRequests"] != old["spec"]["tokenRequests"];
        if changed { token_warnings(new) } else { Vec::new() }
    }),
    unconditional_update: false,
    ..Strategy::PLAIN
};

pub(crate) const CSI_NODE: Strategy = Strategy {
    default: |node| {
        for driver in items(ensure(node, "spec"), "drivers") {
            fill(driver, "topologyKeys", Value::Null);
        }
        fill(node, "status", json!({}));
    },
    prepare_create: empty_status,
    prepare_update: keep_status,
    prepare_status_update: keep_all_but_status,
    validate: validate_node,
    validate_update: validate_node_update,
    unconditional_update: false,
    ..Strategy::PLAIN
};

pub(crate) const CSI_STORAGE_CAPACITY: Strategy = Strategy {
    validate: |object| {
        let object = Field::root(object);
        Errors::of(|errors| {
            errors.label_selector(&object.at("nodeTopology"));
            errors.dns_subdomain(&object.at("storageClassName"));
            let capacity = object.at("capacity").quantity();
            if capacity.sign() < 0 {
                errors.add(object.at("capacity").invalid_as(capacity.to_string(), NEGATIVE));
            }
        })
    },
    warnings: |capacity| {
        let topology = Field::root(capacity).at("nodeTopology");
        let mut all = Vec::new();
        node_selector_term(&topology, &mut all);
        let labels = topology.at("matchLabels");
        let old = labels.entries().filter_map(|(key, _)| Some(format!("{}: {}", labels.path.child(key), old_label(key)?)));
        all.extend(old);
        all
    },
    validate_update: |new, old| {
        Errors::of(|errors| {
            for key in ["nodeTopology", "storageClassName"].into_iter().filter(|key| new[*key] != old[*key]) {
                errors.add(Field::root(new).at(key).invalid(IMMUTABLE));
            }
        })
    },
    unconditional_update: false,
    ..Strategy::PLAIN
};

pub(crate) const VOLUME_ATTACHMENT: Strategy = Strategy {
    default: |object| fill(ensure(object, "status"), "attached", false),
    prepare_create: |object| object["status"] = json!({"attached": false}),
    prepare_update: keep_status,
    validate: validate_attachment,
    validate_update: |new, old| Errors::of(|errors| errors.immutable_unshown(&Field::root(new).at("spec"), &old["spec"])),
    validate_status_update: |new, _| validate_attachment(new),
    unconditional_update: false,
    ..Strategy::PLAIN
};

const NODE_ID_BYTES_MAX: usize = 256;
const ATTACHMENT_BYTES_MAX: usize = 256 * 1024;
const ERROR_BYTES_MAX: usize = 1024;

fn token_warnings(driver: &Value) -> Vec<String> {
    let spec = Field::root(driver).at("spec");
    if spec.at("tokenRequests").is_zero() || spec.at("serviceAccountTokenInSecrets").is_set() {
        return Vec::new();
    }
    let advice = "if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";
    vec![format!("spec.serviceAccountTokenInSecrets is unset; {advice}")]
}

fn default_driver(driver: &mut Value) {
    let spec = ensure(driver, "spec");
    fill(spec, "attachRequired", true);
    for key in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount", "preventPodSchedulingIfMissing"] {
        fill(spec, key, false);
    }
    fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    fill_zero(spec, "volumeLifecycleModes", json!(["Persistent"]));
}

fn bump_driver(new: &mut Value, old: &Value) {
    if spec_changed(new, old) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
        ensure(new, "metadata")["generation"] = json!(generation);
    }
}

fn validate_driver(driver: &Value) -> Vec<FieldError> {
    const SECONDS_MIN: i64 = 600;
    let spec = Field::root(driver).at("spec");
    Errors::of(|errors| {
        errors.one_of_if_set(&spec.at("fsGroupPolicy"), &["File", "None", "ReadWriteOnceWithFSType"]);
        let mut seen = Seen::default();
        for request in spec.at("tokenRequests").items() {
            let (audience, seconds) = (request.at("audience"), request.at("expirationSeconds"));
            if seen.again(audience.text()) {
                errors.add(FieldError::duplicate(&audience.path, audience.text()));
                continue;
            }
            if seconds.is_set() && seconds.int() < SECONDS_MIN {
                errors.add(seconds.invalid("may not specify a duration less than 10 minutes"));
            }
            if seconds.int() > 1 << 32 {
                errors.add(seconds.invalid("may not specify a duration larger than 2^32 seconds"));
            }
        }
        let modes = spec.at("volumeLifecycleModes");
        for mode in modes.items() {
            errors.one_of(&Field::new(mode.value, modes.path.clone()), &["Persistent", "Ephemeral"]);
        }
        let period = spec.at("nodeAllocatableUpdatePeriodSeconds");
        if period.is_set() && period.int() < 10 {
            errors.add(period.invalid("must be greater than or equal to 10 seconds"));
        }
        let in_secrets = spec.at("serviceAccountTokenInSecrets");
        if in_secrets.is_set() && spec.at("tokenRequests").is_zero() {
            errors.add(in_secrets.invalid("serviceAccountTokenInSecrets is set but no tokenRequests are specified"));
        }
    })
}

fn validate_node(node: &Value) -> Vec<FieldError> {
    let drivers = Field::root(node).at("spec").at("drivers");
    Errors::of(|errors| {
        let mut seen = Seen::default();
        for driver in drivers.items() {
            let (name, id) = (driver.at("name"), driver.at("nodeID"));
            validate_driver_name(&name, errors);
            errors.require(&id);
            if id.len() > NODE_ID_BYTES_MAX {
                errors.add(id.invalid(format!("must be {NODE_ID_BYTES_MAX} characters or less")));
            }
            errors.non_negative(&driver.at("allocatable").at("count"));
            if seen.again(name.text()) {
                errors.add(FieldError::duplicate(&name.path, name.text()));
            }
            let mut keys = Seen::default();
            for key in driver.at("topologyKeys").items() {
                // Upstream tells these at the driver.
                let key = Field::new(key.value, driver.path.clone());
                errors.require(&key);
                if keys.again(key.text()) {
                    errors.add(key.duplicate());
                }
                errors.qualified_name(&key);
            }
        }
    })
}

fn validate_node_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let without_count = |driver: &Value| {
        let mut driver = driver.clone();
        super::super::edit::remove(&mut driver, "allocatable");
        driver
    };
    let drivers = Field::root(new).at("spec").at("drivers");
    Errors::of(|errors| {
        for before in old["spec"]["drivers"].as_array().into_iter().flatten() {
            for driver in drivers.items().filter(|d| d.at("name").value == &before["name"]) {
                let now = without_count(driver.value);
                errors.immutable(&Field::new(&now, drivers.path.clone()), &without_count(before));
            }
        }
    })
}

fn validate_attachment(attachment: &Value) -> Vec<FieldError> {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let (spec, status) = (Field::root(attachment).at("spec"), Field::root(attachment).at("status"));
    let source = spec.at("source");
    let (inline, name) = (source.at("inlineVolumeSpec"), source.at("persistentVolumeName"));
    Errors::of(|errors| {
        validate_driver_name_in_any_case(&spec.at("attacher"), errors);
        match (inline.is_set(), name.is_set()) {
            (false, false) => errors.add(source.required(ONE)),
            (true, true) => errors.add(source.forbidden(ONE)),
            (false, true) if name.is_zero() => errors.add(name.required("must specify non empty persistentVolumeName")),
            _ => {}
        }
        errors.dns_subdomain(&spec.at("nodeName"));
        let size: usize = status.at("attachmentMetadata").entries().map(|(key, value)| key.len() + value.len()).sum();
        if size > ATTACHMENT_BYTES_MAX {
            errors.add(status.at("attachmentMetadata").too_long(ATTACHMENT_BYTES_MAX));
        }
        for error in [status.at("attachError"), status.at("detachError")] {
            if error.at("message").len() > ERROR_BYTES_MAX {
                errors.add(error.at("message").too_long(ERROR_BYTES_MAX));
            }
            if error.at("errorCode").int() < 0 {
                errors.add(error.at("errorCode").invalid(range(0, i32::MAX.into())));
            }
        }
        if name.is_set() {
            errors.dns_subdomain(&Field::new(name.value, FieldPath::new("spec.source.persistentVolumeName")));
        }
    })
}
