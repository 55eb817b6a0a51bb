//! Objects with every field set, as upstream writes them in JSON and in protobuf. The files come from the test data of
//! the Go module k8s.io/api; `e2e/conformance/round-trip` compares all of them.

use serde_json::Value;
use std::path::Path;
use sublet_apiserver::protobuf;

#[test]
fn upstream_objects_read_and_write_alike() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protobuf");
    let mut checked = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "pb") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let json: Value = serde_json::from_slice(&std::fs::read(path.with_extension("json")).unwrap()).unwrap();
        assert_eq!(protobuf::decode(&bytes, None).unwrap(), json, "{}", path.display());
        let encoded = protobuf::encode(&json).unwrap();
        // The order of fields is ours, their number and size are not.
        assert_eq!(encoded.len(), bytes.len(), "{}", path.display());
        assert_eq!(protobuf::decode(&encoded, None).unwrap(), json, "{}", path.display());
        checked += 1;
    }
    assert_eq!(checked, 6);
}
