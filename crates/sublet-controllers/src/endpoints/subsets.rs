//! Endpoints subsets in their canonical form: addresses with the same ports share a subset.

use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use sublet_machinery::ObjectExt;

/// Addresses that Endpoints hold at most; the rest is cut off.
const ADDRESSES_MAX: usize = 1000;

/// Canonical writing of a value, which also sorts.
type Text = String;

/// Merges subsets into the fewest, in a fixed order.
pub(super) fn repack(subsets: &[Value]) -> Vec<Value> {
    // Address (with its readiness) to its ports.
    let mut ports_of: BTreeMap<(Text, bool), BTreeSet<Text>> = BTreeMap::new();
    for subset in subsets {
        for (list, ready) in [("/addresses", true), ("/notReadyAddresses", false)] {
            for address in subset.array_at(list) {
                let ports = ports_of.entry((address.to_string(), ready)).or_default();
                ports.extend(subset.array_at("/ports").iter().map(Value::to_string));
            }
        }
    }
    let mut grouped: BTreeMap<Vec<Text>, (Vec<Value>, Vec<Value>)> = BTreeMap::new();
    for ((address, ready), ports) in ports_of {
        let (ready_list, rest) = grouped.entry(ports.into_iter().collect()).or_default();
        let list = if ready { ready_list } else { rest };
        list.push(read(&address));
    }
    grouped.into_iter().map(|(ports, (ready, not_ready))| subset(ready, not_ready, &ports)).collect()
}

fn subset(ready: Vec<Value>, not_ready: Vec<Value>, ports: &[Text]) -> Value {
    let mut subset = Map::new();
    for (key, mut list) in [("addresses", ready), ("notReadyAddresses", not_ready)] {
        if !list.is_empty() {
            list.sort_by_key(|a| (a["ip"].to_string(), a.str_at("/targetRef/uid").unwrap_or_default().to_string()));
            subset.insert(key.into(), Value::Array(list));
        }
    }
    if !ports.is_empty() {
        subset.insert("ports".into(), ports.iter().map(|p| read(p)).collect());
    }
    Value::Object(subset)
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).expect("was written from a value")
}

/// Cuts addresses beyond the limit off, those that are not ready first, in proportion to the size of
/// each subset. Answers whether it cut.
pub(super) fn truncate(subsets: &mut [Value]) -> bool {
    let count = |subsets: &[Value], list: &str| subsets.iter().map(|s| s.array_at(list).len()).sum::<usize>();
    let (ready, not_ready) = (count(subsets, "/addresses"), count(subsets, "/notReadyAddresses"));
    if ready + not_ready <= ADDRESSES_MAX {
        return false;
    }
    let (list, total, room) =
        if ready > ADDRESSES_MAX { ("addresses", ready, ADDRESSES_MAX) } else { ("notReadyAddresses", not_ready, ADDRESSES_MAX - ready) };
    let mut left = room;
    for subset in subsets {
        if let Some(addresses) = subset.get_mut(list).and_then(Value::as_array_mut) {
            let share = (addresses.len() * room).div_ceil(total).min(left);
            addresses.truncate(share);
            left -= addresses.len();
        }
        if list == "addresses" {
            subset["notReadyAddresses"] = json!([]);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_the_same_ports_share_a_subset() {
        let one = |ip: &str, port: i64, ready: bool| {
            let list = if ready { "addresses" } else { "notReadyAddresses" };
            json!({list: [{"ip": ip}], "ports": [{"port": port}]})
        };
        let packed = repack(&[
            one("1.2.3.5", 80, true),
            one("1.2.3.4", 80, true),
            one("1.2.3.4", 81, true),
            one("1.2.3.5", 81, true),
            one("1.2.3.6", 80, false),
        ]);
        assert_eq!(
            packed,
            [
                json!({"notReadyAddresses": [{"ip": "1.2.3.6"}], "ports": [{"port": 80}]}),
                json!({"addresses": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}], "ports": [{"port": 80}, {"port": 81}]}),
            ]
        );
        assert_eq!(repack(&packed), packed);
    }

    #[test]
    fn what_is_not_ready_is_cut_first() {
        let addresses = |n: usize| (0..n).map(|i| json!({"ip": i})).collect::<Vec<_>>();
        let mut subsets =
            [json!({"addresses": addresses(900), "notReadyAddresses": addresses(150)}), json!({"notReadyAddresses": addresses(50)})];
        assert!(truncate(&mut subsets));
        let sizes = subsets.each_ref().map(|s| (s.array_at("/addresses").len(), s.array_at("/notReadyAddresses").len()));
        assert_eq!(sizes, [(900, 75), (0, 25)]);
    }
}
