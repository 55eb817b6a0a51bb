//! Objects through the wire and back.

use super::wire::{close, open, put_bytes, put_int};
use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

fn round_trip(object: &Value) -> Value {
    decode(&encode(object).unwrap(), None).unwrap()
}

#[test]
fn a_pod_reads_back_as_go_shows_it() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "labels": {"x": "y"}, "creationTimestamp": "2026-01-02T03:04:05Z", "managedFields": [{
            "manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {}}}]},
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "500m"}}, "env": [{"name": "E"}],
                "livenessProbe": {"httpGet": {"port": "web"}, "periodSeconds": 5}, "ports": [{"containerPort": 80}]}],
            "volumes": [{"name": "v", "configMap": {"name": "cm", "defaultMode": 420}}],
            "hostNetwork": true, "priority": -7, "enableServiceLinks": false,
        },
        "status": {},
    });
    assert_eq!(round_trip(&pod), pod);
}

#[test]
fn structs_are_shown_where_go_shows_them() {
    let mut deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "a"}]}}, "replicas": 0}});
    let shown = round_trip(&deployment);
    deployment["spec"]["strategy"] = json!({});
    deployment["spec"]["template"]["metadata"] = json!({});
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
    deployment["status"] = json!({});
    assert_eq!(shown, deployment);
}

#[test]
fn raw_json_keeps_its_text() {
    let revision =
        json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {}, "data": {"spec": [1, null]}, "revision": 3});
    assert_eq!(round_trip(&revision), revision);
    let schema = json!({"type": "object", "items": {"type": "string"}, "additionalProperties": false, "default": {"a": null},
        "properties": {"x": {"additionalProperties": {"type": "integer", "maximum": 2.5}, "enum": [1, "b", {}]}}});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a"},
        "spec": {"group": "g", "scope": "Cluster", "names": {"plural": "p", "kind": "K"}, "versions": [
            {"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema}}]},
        "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null}});
    assert_eq!(round_trip(&crd), crd);
}

#[test]
fn a_list_is_its_items() {
    let items = [json!({"metadata": {"name": "a"}, "data": {"k": "v"}}), json!({"metadata": {"name": "b"}})];
    let metadata = json!({"resourceVersion": "7", "remainingItemCount": 2});
    let list = ListEncoder::new("v1", "ConfigMapList").unwrap();
    let mut out = Vec::new();
    for item in &items {
        // Stored objects carry their type, which a list of one kind leaves out.
        let mut stored = item.clone();
        stored["kind"] = json!("ConfigMap");
        list.item(&mut out, stored.to_string().as_bytes()).unwrap();
    }
    let (head, tail) = list.around(&metadata, out.len()).unwrap();
    let list = decode(&[head, out, tail].concat(), None).unwrap();
    assert_eq!(list, json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items}));
    assert!(ListEncoder::new("v1", "ConfigMap").is_err());
}

#[test]
fn an_event_of_a_watch_has_its_length_in_front() {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"k": "AP8="}});
    let frame = watch_event("ADDED", &object).unwrap();
    assert_eq!(frame, watch_event_json("ADDED", "v1", "Secret", object.to_string().as_bytes()).unwrap());
    assert_eq!(frame[..4], u32::try_from(frame.len() - 4).unwrap().to_be_bytes());
    let mut enveloped = b"k8s\0\x0a\x10\x0a\x02v1\x12\x0aWatchEvent".to_vec();
    put_bytes(&mut enveloped, 2, &frame[4..]);
    let event = decode(&enveloped, None).unwrap();
    assert_eq!((&event["type"], &event["object"]), (&json!("ADDED"), &object));
}

#[test]
fn a_body_without_type_is_what_is_expected() {
    let body = b"k8s\0\x12\x05\x0a\x03\x0a\x01a";
    let object = decode(body, Some(("v1", "ConfigMap"))).unwrap();
    assert_eq!(object, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}));
    assert!(decode(body, None).is_err());
}

#[test]
fn json_in_an_envelope_is_read() {
    let mut body = b"k8s\0".to_vec();
    put_bytes(&mut body, 2, br#"{"metadata":{"name":"a"}}"#);
    put_bytes(&mut body, 4, b"application/json");
    assert_eq!(decode(&body, Some(("example.com/v1", "Thing"))).unwrap()["metadata"]["name"], "a");
}

#[test]
fn what_is_no_object_is_refused() {
    let check = |body: &[u8], expected: &str| assert_eq!(decode(body, None).unwrap_err().why, expected);
    check(b"", "empty data");
    check(b"k8s\0", "empty body");
    check(b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]");
    check(b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x03\x0a\x09a", "unexpected EOF");
    check(b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x02\x08\x01", "proto: wrong wireType = 0 for field Metadata");
    check(b"k8s\0\x0a\x0b\x0a\x02v1\x12\x05Nobod\x12\x00", "no kind \"Nobod\" is registered for version \"v1\"");
}

/// An object of a kind, from the inside of its envelope.
fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = b"k8s\0".to_vec();
    let type_meta = open(&mut out, 1);
    put_bytes(&mut out, 1, api_version.as_bytes());
    put_bytes(&mut out, 2, kind.as_bytes());
    close(&mut out, type_meta);
    put_bytes(&mut out, 2, raw);
    out
}

#[test]
fn depth_and_number_of_values_are_bounded() {
    // JSONSchemaProps.not is field 28, in CRD spec.versions[].schema.openAPIV3Schema.
    let mut nested = Vec::new();
    for _ in 0..200 {
        let mut outer = Vec::new();
        put_bytes(&mut outer, 28, &nested);
        nested = outer;
    }
    for number in [1, 4, 7, 2] {
        let mut outer = Vec::new();
        put_bytes(&mut outer, number, &nested);
        nested = outer;
    }
    let error = decode(&body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &nested), None).unwrap_err();
    assert_eq!(error.why, "the message is nested too deeply");
    // Empty items, two bytes each.
    let items: Vec<u8> = [0x12, 0x00].repeat(200_000);
    let error = decode(&body("v1", "PodList", &items), None).unwrap_err();
    assert_eq!(error.why, "the message has more than 500000 values");
}

#[test]
fn fields_of_other_releases_are_passed_over() {
    let mut raw = Vec::new();
    put_int(&mut raw, 9999, 5);
    put_bytes(&mut raw, 500, b"what");
    let object = decode(&body("v1", "ConfigMap", &raw), None).unwrap();
    assert_eq!(object, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}));
}

#[test]
fn broken_bodies_never_panic() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "creationTimestamp": "2026-01-02T03:04:05Z",
        "annotations": {"a": "b"}, "managedFields": [{"fieldsV1": {"f:a": {}}}]},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}, "ports": [{"containerPort": 80}],
            "livenessProbe": {"httpGet": {"port": 80}}}], "securityContext": {"supplementalGroups": [1, 2]}}});
    let whole = encode(&pod).unwrap();
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..5_000 {
        let mut bytes = whole.to_vec();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(4..bytes.len().max(5));
            match random.random_range(0..3) {
                _ if at >= bytes.len() => {}
                0 => bytes[at] = random.random(),
                1 => bytes.truncate(at),
                _ => drop(bytes.remove(at)),
            }
        }
        // What can be read can be written.
        if let Ok(object) = decode(&bytes, None)
            && knows(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap())
        {
            encode(&object).unwrap();
        }
    }
}
