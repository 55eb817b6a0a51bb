//! The tables of service addresses.

use super::super::field::{Errors, Field, IMMUTABLE};
use super::super::{NameRule, Strategy, keep_all_but_status, keep_status};
use serde_json::Value;
use sublet_machinery::{FieldError, FieldPath, names};

/// Named by the address itself.
pub(crate) const IP_ADDRESS: Strategy = Strategy {
    validate: validate_address,
    validate_update: |new, old| {
        let parent = Field::root(new).at("spec").at("parentRef");
        Errors::of(|errors| errors.immutable_unshown(&parent, &old["spec"]["parentRef"]))
    },
    name_rule: NameRule::PathSegment,
    ..Strategy::PLAIN
};

pub(crate) const SERVICE_CIDR: Strategy = Strategy {
    prepare_create: super::super::status::empty_status,
    prepare_update: keep_status,
    prepare_status_update: keep_all_but_status,
    validate_create: |object| Errors::of(|errors| validate_ranges(&Field::root(object).at("spec"), errors)),
    validate_update: validate_range_changes,
    ..Strategy::PLAIN
};

fn validate_address(address: &Value) -> Vec<FieldError> {
    let parent = Field::root(address).at("spec").at("parentRef");
    Errors::of(|errors| {
        errors.own_name(address, |name| names::validate_ip(&FieldPath::root(), name).into_iter().map(|error| error.detail).collect());
        if !parent.is_set() {
            return errors.add(parent.required(""));
        }
        if !parent.at("group").is_zero() {
            errors.dns_subdomain(&parent.at("group"));
        }
        for part in [parent.at("resource"), parent.at("name")] {
            if errors.require(&part) {
                errors.words(&part, names::path_segment);
            }
        }
        if !parent.at("namespace").is_zero() {
            errors.words(&parent.at("namespace"), names::path_segment);
        }
    })
}

fn is_ipv6(cidr: &Field<'_>) -> Option<bool> {
    names::parse_cidr_sloppy(cidr.text()).map(|(ip, _)| ip.is_ipv6())
}

fn validate_ranges(spec: &Field<'_>, errors: &mut Errors) {
    let ranges = spec.at("cidrs");
    if ranges.is_zero() {
        return errors.add(ranges.required("at least one CIDR required"));
    }
    if ranges.len() > 2 {
        return errors.add(ranges.invalid_as(spec.value.clone(), "may only hold up to 2 values"));
    }
    for range in ranges.items() {
        errors.extend(names::validate_cidr(&range.path, range.text()));
    }
    let families: Vec<_> = ranges.items().map(|range| is_ipv6(&range)).collect();
    if let [Some(first), Some(second)] = families.as_slice()
        && first == second
    {
        errors.add(ranges.invalid("may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"));
    }
}

/// A second family may be added; nothing else changes.
fn validate_range_changes(new: &Value, old: &Value) -> Vec<FieldError> {
    let spec = Field::root(new).at("spec");
    let ranges = spec.at("cidrs");
    let before = old["spec"]["cidrs"].as_array().map_or(&[][..], Vec::as_slice);
    Errors::of(|errors| {
        let grows = before.len() == 1 && ranges.len() == 2;
        if !grows && before.len() != ranges.len() {
            return errors.add(ranges.invalid(IMMUTABLE));
        }
        for (range, _) in ranges.items().zip(before).filter(|(range, old)| range.value != *old) {
            errors.add(range.invalid(IMMUTABLE));
        }
        if grows {
            validate_ranges(&spec, errors);
        }
    })
}
