//! Resource claims, as quotas count them.

use crate::ObjectExt;
use serde_json::Value;
use std::collections::BTreeMap;

/// What a quota calls the devices of a class: `CLASS.deviceclass.resource.k8s.io/devices`.
pub const DEVICES_SUFFIX: &str = ".deviceclass.resource.k8s.io/devices";
/// The most devices that one claim can be given.
const DEVICES_MAX: i64 = 32;

/// How many devices of each class a ResourceClaim may come to have.
pub fn devices_by_class(claim: &Value) -> BTreeMap<String, i64> {
    let mut devices = BTreeMap::new();
    for request in claim.array_at("/spec/devices/requests") {
        // Of alternatives only one comes true: the worst of each class counts.
        let mut worst: BTreeMap<&str, i64> = BTreeMap::new();
        let alternatives = request.array_at("/firstAvailable");
        let exactly = request.get("exactly").filter(|e| alternatives.is_empty() && e.is_object());
        for asked in alternatives.iter().chain(exactly) {
            let count = match asked.str_at("/allocationMode") {
                Some("ExactCount") => asked.i64_at("/count").unwrap_or_default(),
                Some("All") => DEVICES_MAX,
                _ => 0,
            };
            let most = worst.entry(asked.str_at("/deviceClassName").unwrap_or_default()).or_default();
            *most = count.max(*most);
        }
        for (class, count) in worst {
            let sum: &mut i64 = devices.entry(class.to_string()).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_worst_alternative_counts() {
        let asked = |class: &str, count: i64| json!({"deviceClassName": class, "allocationMode": "ExactCount", "count": count});
        let claim = json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": asked("gold", 2)},
            {"name": "b", "firstAvailable": [asked("gold", 1), asked("gold", 4), asked("tin", 3)]},
            {"name": "c", "exactly": {"deviceClassName": "tin", "allocationMode": "All"}},
            {"name": "d", "exactly": {"deviceClassName": "tin", "allocationMode": "Tomorrow"}},
        ]}}});
        assert_eq!(devices_by_class(&claim), BTreeMap::from([("gold".into(), 6), ("tin".into(), 35)]));
        assert!(devices_by_class(&json!({})).is_empty());
    }
}
