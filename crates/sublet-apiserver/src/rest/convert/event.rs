//! Event in `v1` and `events.k8s.io/v1`: the same fields under other names.

use serde_json::Value;

const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

pub fn to_events_v1(event: &mut Value) {
    rename(event, |(core, new)| (core, new));
}

pub fn to_core_v1(event: &mut Value) {
    rename(event, |(core, new)| (new, core));
}

fn rename(event: &mut Value, direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    let Some(map) = event.as_object_mut() else { return };
    for (from, to) in NAMES.map(direction) {
        if let Some(value) = map.remove(from) {
            map.insert(to.into(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn there_and_back_is_the_same() {
        let core = json!({"involvedObject": {"name": "a"}, "message": "m", "count": 2, "reason": "r", "eventTime": null});
        let mut event = core.clone();
        super::to_events_v1(&mut event);
        assert_eq!(event, json!({"regarding": {"name": "a"}, "note": "m", "deprecatedCount": 2, "reason": "r", "eventTime": null}));
        super::to_core_v1(&mut event);
        assert_eq!(event, core);
    }
}
