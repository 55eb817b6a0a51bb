//! Strategic merge patch against the results of upstream's own test table (apimachinery 1.37, `strategicpatch`).

use serde_json::Value;
use sublet_machinery::patch::strategic;
use sublet_machinery::{Node, NodeId, PatchStrategy, Schema, Table, ValueType};

/// The type that upstream's table is about: a map with lists of every strategy.
fn merge_item() -> Schema {
    let mut table = Table::new();
    let item = table.push(Node::default());
    let retained = table.push(Node::default());
    let mut scalar = |value_type| table.push(Node { value_type, ..Node::default() });
    let (text, int) = (scalar(ValueType::String), scalar(ValueType::Integer));
    let simple_map = table.push(Node { value_type: ValueType::Object, additional: Some(text), ..Node::default() });
    let mut list = |items: NodeId, patch_strategy, key: Option<&str>| {
        let patch_merge_key = key.map(Into::into);
        table.push(Node { value_type: ValueType::Array, items: Some(items), patch_strategy, patch_merge_key, ..Node::default() })
    };
    let merging_list = list(item, PatchStrategy::Merge, Some("name"));
    let plain_list = list(item, PatchStrategy::Replace, None);
    let merging_ints = list(int, PatchStrategy::Merge, None);
    let plain_ints = list(int, PatchStrategy::Replace, None);
    let retaining_list = list(item, PatchStrategy::MergeRetainKeys, Some("name"));
    let replaced = table.push(Node {
        value_type: ValueType::Object,
        preserve_unknown: true,
        patch_strategy: PatchStrategy::ReplaceMap,
        ..Node::default()
    });
    // In upstream's table this field holds now a map, now a list.
    let pointer = table.push(Node::default());
    let mut object = |id, properties: &[(&str, NodeId)]| {
        let properties = properties.iter().map(|(name, node)| ((*name).into(), *node)).collect();
        let mut node = Node { properties, ..Node::default() };
        if id == pointer {
            node.items = Some(item);
            (node.patch_strategy, node.patch_merge_key) = (PatchStrategy::Merge, Some("name".into()));
        }
        table.set(id, node);
    };
    let common = [("name", text), ("value", text), ("other", text), ("simpleMap", simple_map), ("mergingIntList", merging_ints)];
    let lists = [("mergingList", merging_list), ("nonMergingList", plain_list)];
    object(retained, &[&common[..], &lists].concat());
    let more = [
        ("nonMergingIntList", plain_ints),
        ("mergeItemPtr", pointer),
        ("replacingItem", replaced),
        ("retainKeysMap", retained),
        ("retainKeysMergingList", retaining_list),
    ];
    let all = [&common[..], &lists, &more].concat();
    object(item, &all);
    object(pointer, &all);
    Schema { table: table.into(), root: item }
}

#[test]
fn results_equal_those_of_upstream() {
    let schema = merge_item();
    let cases: Vec<Value> = serde_json::from_str(include_str!("cases/strategic.json")).unwrap();
    assert!(cases.len() > 200);
    let mut wrong = Vec::new();
    for case in &cases {
        let result = strategic::merge(&case["current"], &case["patch"], schema.node());
        let fits = match (&result, case.get("error")) {
            (Ok(result), None) => *result == case["result"],
            (Err(_), Some(_)) => true,
            _ => false,
        };
        if !fits {
            wrong.push(format!("{case}\n  got {result:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
