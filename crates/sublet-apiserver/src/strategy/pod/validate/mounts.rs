//! Mounts and block devices of a container.

use super::super::super::field::{Errors, Field, Seen};
use super::paths::{descending, no_backsteps};
use super::volumes::Volumes;

pub(super) fn validate_mounts(container: &Field<'_>, volumes: &Volumes<'_>, errors: &mut Errors) {
    let mounts = container.at("volumeMounts");
    let devices = container.at("volumeDevices");
    let has_device = |key: &str, text: &str| devices.list().iter().any(|d| d[key].as_str().unwrap_or_default() == text);
    let mut points = Seen::default();
    for mount in mounts.items() {
        let (name, point) = (mount.at("name"), mount.at("mountPath"));
        errors.require(&name);
        if volumes.get(name.text()).is_none() {
            errors.add(name.not_found());
        }
        errors.require(&point);
        if points.again(point.text()) {
            errors.add(point.invalid_as(point.text(), "must be unique"));
        }
        if has_device("name", name.text()) {
            errors.add(name.invalid("must not already exist in volumeDevices"));
        }
        if has_device("devicePath", point.text()) {
            errors.add(point.invalid("must not already exist as a path in volumeDevices"));
        }
        // Upstream tells the next few at the list.
        let at_list = |key: &str| Field::new(mount.at(key).value, mounts.path.child(key));
        if !mount.at("subPath").is_zero() {
            descending(&at_list("subPath"), errors);
        }
        if !mount.at("subPathExpr").is_zero() {
            if !mount.at("subPath").is_zero() {
                errors.add(mount.at("subPathExpr").invalid("subPathExpr and subPath are mutually exclusive"));
            }
            descending(&at_list("subPathExpr"), errors);
        }
        validate_propagation(&at_list("mountPropagation"), container, errors);
        validate_read_only(&mount, &at_list("recursiveReadOnly"), errors);
    }
}

fn validate_propagation(propagation: &Field<'_>, container: &Field<'_>, errors: &mut Errors) {
    errors.one_of_if_set(propagation, &["Bidirectional", "HostToContainer", "None"]);
    let privileged = container.at("securityContext").at("privileged").flag();
    if propagation.text() == "Bidirectional" && !privileged {
        errors.add(propagation.forbidden("Bidirectional mount propagation is available only to privileged containers"));
    }
}

fn validate_read_only(mount: &Field<'_>, recursive: &Field<'_>, errors: &mut Errors) {
    match recursive.text() {
        "Enabled" | "IfPossible" => {
            if !mount.at("readOnly").flag() {
                errors.add(recursive.forbidden("may only be specified when readOnly is true"));
            }
            if mount.at("mountPropagation").is_set() && mount.at("mountPropagation").text() != "None" {
                errors.add(recursive.forbidden("may only be specified when mountPropagation is None or not specified"));
            }
        }
        _ => errors.one_of_if_set(recursive, &["Disabled", "Enabled", "IfPossible"]),
    }
}

pub(super) fn validate_devices(container: &Field<'_>, volumes: &Volumes<'_>, errors: &mut Errors) {
    let mounts = container.at("volumeMounts");
    let has_mount = |key: &str, text: &str| mounts.list().iter().any(|m| m[key].as_str().unwrap_or_default() == text);
    let (mut names, mut paths) = (Seen::default(), Seen::default());
    for device in container.at("volumeDevices").items() {
        let (name, path) = (device.at("name"), device.at("devicePath"));
        errors.require(&name);
        if names.has(name.text()) {
            errors.add(name.invalid("must be unique"));
        }
        match volumes.get(name.text()) {
            None => errors.add(name.not_found()),
            Some(volume) if volume["persistentVolumeClaim"].is_null() && volume["ephemeral"].is_null() => {
                errors.add(name.invalid("can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"));
            }
            Some(_) => {}
        }
        errors.require(&path);
        if paths.has(path.text()) {
            errors.add(path.invalid("must be unique"));
        }
        let mut backsteps = Errors::default();
        no_backsteps(&path, &mut backsteps);
        if backsteps.0.is_empty() {
            paths.again(path.text());
        } else {
            errors.add(path.invalid("can not contain backsteps ('..')"));
        }
        if has_mount("name", name.text()) {
            errors.add(name.invalid("must not already exist in volumeMounts"));
        }
        if has_mount("mountPath", path.text()) {
            errors.add(path.invalid("must not already exist as a path in volumeMounts"));
        }
        if !name.is_zero() {
            names.again(name.text());
        }
    }
}
