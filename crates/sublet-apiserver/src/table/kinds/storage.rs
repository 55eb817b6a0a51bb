//! The columns of volumes, claims, classes and CSI objects.

use crate::registry::Column;
use crate::table::columns::{NONE, UNSET, age, boolean, integer, joined, name, named, scalar_at, string, strings, text, wide};
use serde_json::Value;
use sublet_machinery::ObjectExt;

pub(in crate::table) fn columns(plural: &str) -> Option<Vec<Column>> {
    Some(match plural {
        "csidrivers" => csi_drivers(),
        "csinodes" => vec![name(), integer("Drivers", "CSI drivers on the node.", |o, _| o.array_at("/spec/drivers").len().into()), age()],
        "storageclasses" => storage_classes(),
        "volumeattachments" => vec![
            name(),
            Column { format: "name".into(), ..string("Attacher", "Who attaches the volume.", |o, _| text(o, "/spec/attacher").into()) },
            string("PV", "The volume.", |o, _| text(o, "/spec/source/persistentVolumeName").into()),
            string("Node", "The node it is attached to.", |o, _| text(o, "/spec/nodeName").into()),
            boolean("Attached", "Whether it is attached.", |o, _| flag(o, "/status/attached", false)),
            age(),
        ],
        "volumeattributesclasses" => {
            vec![name(), string("DriverName", "The driver of the class.", |o, _| text(o, "/driverName").into()), age()]
        }
        _ => return None,
    })
}

/// The class that is used when a claim names none: the newest with the mark, then the first by name.
pub(in crate::table) fn default_class<'a>(classes: &[&'a Value]) -> Option<&'a str> {
    let marks = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
    let marked = classes.iter().filter(|c| marks.iter().any(|mark| c.annotation(mark) == Some("true")));
    let created = |class: &Value| text(class, "/metadata/creationTimestamp").to_string();
    marked.max_by(|a, b| created(a).cmp(&created(b)).then_with(|| b.name().cmp(a.name()))).map(|c| c.name())
}

fn storage_classes() -> Vec<Column> {
    vec![
        named("Name", |o, p| {
            let default = p.default_class == Some(o.name());
            if default { format!("{} (default)", o.name()).into() } else { o.name().into() }
        }),
        string("Provisioner", "Who makes the volumes.", |o, _| text(o, "/provisioner").into()),
        string("ReclaimPolicy", "What becomes of volumes without claim.", |o, _| o.str_at("/reclaimPolicy").unwrap_or("Delete").into()),
        string("VolumeBindingMode", "When volumes are bound.", |o, _| o.str_at("/volumeBindingMode").unwrap_or("Immediate").into()),
        string("AllowVolumeExpansion", "Whether volumes can grow.", |o, _| flag(o, "/allowVolumeExpansion", false)),
        age(),
    ]
}

pub(super) fn volumes() -> Vec<Column> {
    vec![
        name(),
        string("Capacity", "The size of the volume.", |o, _| capacity(o, "/spec/capacity/storage").into()),
        string("Access Modes", "How the volume can be mounted.", |o, _| access_modes(o.array_at("/spec/accessModes")).into()),
        string("Reclaim Policy", "What becomes of the volume without claim.", |o, _| text(o, "/spec/persistentVolumeReclaimPolicy").into()),
        string("Status", "The phase of the volume.", |o, _| phase(o)),
        string("Claim", "The claim that has the volume.", |o, _| match o.pointer("/spec/claimRef").filter(|c| c.is_object()) {
            Some(claim) => format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")).into(),
            None => "".into(),
        }),
        string("StorageClass", "The class of the volume.", |o, _| class(o)),
        string("VolumeAttributesClass", "The attributes class of the volume.", |o, _| attributes_class(o)),
        string("Reason", "Why the volume is in its phase.", |o, _| text(o, "/status/reason").into()),
        age(),
        wide(string("VolumeMode", "Filesystem or Block.", |o, _| volume_mode(o))),
    ]
}

pub(super) fn claims() -> Vec<Column> {
    vec![
        name(),
        string("Status", "The phase of the claim.", |o, _| phase(o)),
        string("Volume", "The volume of the claim.", |o, _| text(o, "/spec/volumeName").into()),
        string("Capacity", "The size of the volume.", |o, _| bound(o, |o| capacity(o, "/status/capacity/storage")).into()),
        string("Access Modes", "How the volume can be mounted.", |o, _| {
            bound(o, |o| access_modes(o.array_at("/status/accessModes"))).into()
        }),
        string("StorageClass", "The class of the claim.", |o, _| class(o)),
        string("VolumeAttributesClass", "The attributes class of the claim.", |o, _| attributes_class(o)),
        age(),
        wide(string("VolumeMode", "Filesystem or Block.", |o, _| volume_mode(o))),
    ]
}

/// Empty until the claim has a volume.
fn bound(claim: &Value, value: impl Fn(&Value) -> String) -> String {
    if text(claim, "/spec/volumeName").is_empty() { String::new() } else { value(claim) }
}

fn capacity(object: &Value, pointer: &str) -> String {
    scalar_at(object, pointer).unwrap_or_else(|| "0".into())
}

fn phase(object: &Value) -> Value {
    if object.is_deleting() { "Terminating".into() } else { text(object, "/status/phase").into() }
}

fn class(object: &Value) -> Value {
    object.annotation("volume.beta.kubernetes.io/storage-class").unwrap_or_else(|| text(object, "/spec/storageClassName")).into()
}

fn attributes_class(object: &Value) -> Value {
    object.str_at("/spec/volumeAttributesClassName").unwrap_or(UNSET).into()
}

fn volume_mode(object: &Value) -> Value {
    object.str_at("/spec/volumeMode").unwrap_or(UNSET).into()
}

fn access_modes(modes: &[Value]) -> String {
    let short = [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let held = short.iter().filter(|(long, _)| strings(modes).any(|m| m == *long));
    held.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

fn csi_drivers() -> Vec<Column> {
    vec![
        name(),
        boolean("AttachRequired", "Whether volumes must be attached.", |o, _| flag(o, "/spec/attachRequired", true)),
        boolean("PodInfoOnMount", "Whether the driver is told about pods.", |o, _| flag(o, "/spec/podInfoOnMount", false)),
        boolean("StorageCapacity", "Whether capacity is published.", |o, _| flag(o, "/spec/storageCapacity", false)),
        string("TokenRequests", "Audiences of the tokens the driver gets.", |o, _| match o.pointer("/spec/tokenRequests") {
            Some(Value::Array(requests)) => requests.iter().map(|r| text(r, "/audience")).collect::<Vec<_>>().join(",").into(),
            _ => UNSET.into(),
        }),
        boolean("RequiresRepublish", "Whether volumes are mounted again and again.", |o, _| flag(o, "/spec/requiresRepublish", false)),
        string("Modes", "The life cycles of volumes.", |o, _| {
            let modes = joined(o.array_at("/spec/volumeLifecycleModes"), ",");
            if modes.is_empty() { NONE.into() } else { modes.into() }
        }),
        age(),
    ]
}

fn flag(object: &Value, pointer: &str, missing: bool) -> Value {
    object.bool_at(pointer).unwrap_or(missing).into()
}
