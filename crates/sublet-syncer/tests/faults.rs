//! The table of others' faults names tests that exist.

use std::path::Path;

#[test]
fn every_test_that_the_table_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let table = std::fs::read_to_string(root.join("docs/faults-of-peers.md")).expect("the table");
    let mut missing = Vec::new();
    let mut seen = 0;
    for reference in table.split('`').skip(1).step_by(2).filter(|text| text.contains(".rs")) {
        let path = reference.replacen("S/", "crates/sublet-syncer/tests/", 1);
        let (file, test) = path.split_once('#').unwrap_or((&path, ""));
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        seen += 1;
        if text.is_empty() || !test.is_empty() && !text.contains(&format!("fn {test}(")) {
            missing.push(reference);
        }
    }
    assert!(seen > 50 && missing.is_empty(), "{seen} names, and these lead nowhere: {missing:#?}");
}
