//! Where the content of a volume comes from: a row per source, shared by pods and persistent volumes.

use super::super::super::field::{Errors, Field, range};
use super::paths::{descending, file_mode, no_backsteps};
use super::{projected, volumes};
use regex::Regex;
use std::sync::LazyLock;
use sublet_machinery::names;

/// Whose volume it is; a few sources ask for more in persistent volumes.
#[derive(Clone, Copy)]
pub(crate) enum VolumeKind<'a> {
    Pod { pod_name: &'a str },
    Persistent { name: &'a str },
}

struct Source {
    key: &'static str,
    /// The path of errors inside the source, where upstream spells it differently.
    inside: &'static str,
    /// The path of the error about a second source.
    second: &'static str,
    pod: bool,
    persistent: bool,
    check: fn(&Field<'_>, &Context<'_, '_>, &mut Errors),
}

struct Context<'a, 'v> {
    kind: VolumeKind<'a>,
    volume: &'a Field<'v>,
}

const fn row(key: &'static str, check: fn(&Field<'_>, &Context<'_, '_>, &mut Errors)) -> Source {
    Source { key, inside: key, second: key, pod: true, persistent: true, check }
}

const fn pod_row(key: &'static str, check: fn(&Field<'_>, &Context<'_, '_>, &mut Errors)) -> Source {
    Source { persistent: false, ..row(key, check) }
}

/// In the order in which upstream looks at them.
const SOURCES: &[Source] = &[
    pod_row("emptyDir", |s, _, e| empty_dir(s, e)),
    row("hostPath", |s, _, e| host_path(s, e)),
    pod_row("gitRepo", |s, _, e| {
        e.require(&s.at("repository"));
        descending(&s.at("directory"), e);
    }),
    Source { inside: "persistentDisk", ..row("gcePersistentDisk", |s, _, e| disk(s, "pdName", e)) },
    row("awsElasticBlockStore", |s, _, e| disk(s, "volumeID", e)),
    pod_row("secret", |s, _, e| keyed(s, "secretName", e)),
    row("nfs", |s, _, e| {
        e.require_all(s, &["server", "path"]);
        if !s.at("path").text().starts_with('/') {
            e.add(s.at("path").invalid_as(s.at("path").text(), "must be an absolute path"));
        }
    }),
    row("iscsi", iscsi),
    row("glusterfs", glusterfs),
    row("flocker", |s, _, e| flocker(s, e)),
    pod_row("persistentVolumeClaim", |s, _, e| e.require_all(s, &["claimName"])),
    row("rbd", |s, _, e| e.require_all(s, &["monitors", "image"])),
    row("cinder", |s, c, e| {
        e.require_all(s, &["volumeID"]);
        secret_reference(s, c, e);
    }),
    Source { second: "cephFS", ..row("cephfs", |s, _, e| e.require_all(s, &["monitors"])) },
    row("quobyte", |s, _, e| quobyte(s, e)),
    Source { second: "downwarAPI", ..pod_row("downwardAPI", |s, _, e| projected::validate_downward(s, e)) },
    row("fc", |s, _, e| fibre_channel(s, e)),
    row("flexVolume", |s, _, e| flex(s, e)),
    pod_row("configMap", |s, _, e| keyed(s, "name", e)),
    row("azureFile", |s, c, e| {
        e.require_all(s, &["secretName", "shareName"]);
        let namespace = s.at("secretNamespace");
        if matches!(c.kind, VolumeKind::Persistent { .. }) && namespace.is_set() {
            e.require(&namespace);
        }
    }),
    row("vsphereVolume", |s, _, e| e.require_all(s, &["volumePath"])),
    row("photonPersistentDisk", |s, _, e| e.require_all(s, &["pdID"])),
    row("portworxVolume", |s, _, e| e.require_all(s, &["volumeID"])),
    row("azureDisk", |s, _, e| azure_disk(s, e)),
    Source { persistent: false, ..row("storageos", storage_os) },
    pod_row("projected", |s, _, e| projected::validate(s, e)),
    row("scaleIO", |s, _, e| e.require_all(s, &["gateway", "system", "volumeName"])),
    Source { pod: false, ..row("local", local) },
    Source { pod: false, ..row("storageos", storage_os) },
    row("csi", csi),
    pod_row("ephemeral", |s, c, e| {
        if let VolumeKind::Pod { pod_name } = c.kind {
            volumes::validate_ephemeral(s, &c.volume.at("name"), pod_name, e);
        }
    }),
    pod_row("image", |s, _, e| {
        e.require(&s.at("reference"));
        e.required_one_of(&s.at("pullPolicy"), &["Always", "IfNotPresent", "Never"]);
    }),
];

/// Exactly one source, and that one well formed.
pub(crate) fn validate_sources(volume: &Field<'_>, kind: VolumeKind<'_>, errors: &mut Errors) {
    let persistent = matches!(kind, VolumeKind::Persistent { .. });
    let context = Context { kind, volume };
    let mut found = false;
    for source in SOURCES.iter().filter(|s| if persistent { s.persistent } else { s.pod }) {
        if !volume.at(source.key).is_set() {
            continue;
        }
        // Upstream has no such rule for this one.
        if found && !(persistent && source.key == "flexVolume") {
            errors.add(volume.at_as(source.key, source.second).forbidden("may not specify more than 1 volume type"));
        } else {
            (source.check)(&volume.at_as(source.key, source.inside), &context, errors);
        }
        found = true;
    }
    if !found {
        errors.add(volume.required("must specify a volume type"));
    }
}

fn empty_dir(source: &Field<'_>, errors: &mut Errors) {
    if source.at("sizeLimit").quantity().sign() < 0 {
        errors.add(source.at("sizeLimit").forbidden("SizeLimit field must be a valid resource quantity"));
    }
}

fn host_path(source: &Field<'_>, errors: &mut Errors) {
    const TYPES: [&str; 8] = ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if errors.require(&source.at("path")) {
        no_backsteps(&source.at("path"), errors);
        errors.one_of_if_set(&source.at("type"), &TYPES);
    }
}

/// A folder of a node: the volume says of which.
fn local(source: &Field<'_>, context: &Context<'_, '_>, errors: &mut Errors) {
    if errors.require(&source.at("path")) {
        no_backsteps(&source.at("path"), errors);
    }
    let affinity = context.volume.at("nodeAffinity");
    if !affinity.at("required").is_set() {
        errors.add(affinity.required("Local volume requires node affinity"));
    }
}

fn disk(source: &Field<'_>, name: &str, errors: &mut Errors) {
    errors.require(&source.at(name));
    if !(0..=255).contains(&source.at("partition").int()) {
        errors.add(source.at("partition").invalid(range(1, 255)));
    }
}

/// Secrets and config maps: a name and chosen keys.
fn keyed(source: &Field<'_>, name: &str, errors: &mut Errors) {
    errors.require(&source.at(name));
    file_mode(&source.at("defaultMode"), errors);
    source.at("items").items().for_each(|item| projected::validate_key_to_path(&item, errors));
}

fn iscsi(source: &Field<'_>, context: &Context<'_, '_>, errors: &mut Errors) {
    let persistent = matches!(context.kind, VolumeKind::Persistent { .. });
    let portal = source.at("targetPortal");
    errors.require(&portal);
    let (initiator, iqn) = (source.at_as("initiatorName", "initiatorname"), source.at("iqn"));
    const LENGTH: &str =
        "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
    if let VolumeKind::Persistent { name } = context.kind
        && initiator.is_set()
        && name.len() + 1 + portal.len() > 64
    {
        errors.add(source.at_as("targetPortal", "targetportal").invalid(LENGTH));
    }
    if errors.require(&iqn) {
        iscsi_name(&iqn, persistent, errors);
    }
    if !(0..=255).contains(&source.at("lun").int()) {
        errors.add(source.at("lun").invalid(range(0, 255)));
    }
    let authenticated = source.at("chapAuthDiscovery").flag() || source.at("chapAuthSession").flag();
    if authenticated && !source.at("secretRef").is_set() {
        errors.add(source.at("secretRef").required(""));
    }
    if persistent && source.at("secretRef").is_set() {
        errors.require(&source.at("secretRef").at("name"));
    }
    if initiator.is_set() {
        iscsi_name(&initiator, persistent, errors);
        let name = context.volume.at("name");
        if !persistent && name.len() + 1 + portal.len() > 64 {
            errors.add(name.invalid(LENGTH));
        }
    }
}

fn iscsi_name(field: &Field<'_>, persistent: bool, errors: &mut Errors) {
    static FORMATS: LazyLock<[(&str, Regex); 3]> = LazyLock::new(|| {
        let regex = |text: &str| Regex::new(text).expect("a fixed expression");
        [
            ("iqn", regex(r"iqn\.\d{4}-\d{2}\.([[:alnum:].-]+)(:[^,;*&$|\s]+)$")),
            ("eui", regex(r"^eui.[[:alnum:]]{16}$")),
            ("naa", regex(r"^naa.[[:alnum:]]{32}$")),
        ]
    });
    match FORMATS.iter().find(|(prefix, _)| field.text().starts_with(prefix)) {
        None if persistent => errors.add(field.invalid("must be valid format")),
        None => errors.add(field.invalid("must be valid format starting with iqn, eui, or naa")),
        Some((_, format)) if !format.is_match(field.text()) => errors.add(field.invalid("must be valid format")),
        Some(_) => {}
    }
}

fn glusterfs(source: &Field<'_>, context: &Context<'_, '_>, errors: &mut Errors) {
    errors.require_all(source, &["endpoints", "path"]);
    let namespace = source.at("endpointsNamespace");
    if matches!(context.kind, VolumeKind::Persistent { .. }) && namespace.is_set() {
        if namespace.is_zero() {
            errors.add(namespace.invalid("if the endpointnamespace is set, it must be a valid namespace name"));
        } else {
            errors.dns_label(&namespace);
        }
    }
}

fn flocker(source: &Field<'_>, errors: &mut Errors) {
    let (name, uuid) = (source.at("datasetName"), source.at("datasetUUID"));
    if name.is_zero() && uuid.is_zero() {
        errors.add(source.required("one of datasetName and datasetUUID is required"));
    }
    if !name.is_zero() && !uuid.is_zero() {
        errors.add(source.invalid_as("resource", "datasetName and datasetUUID can not be specified simultaneously"));
    }
    if name.text().contains('/') {
        errors.add(name.invalid("must not contain '/'"));
    }
}

fn quobyte(source: &Field<'_>, errors: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let (registry, tenant) = (source.at("registry"), source.at("tenant"));
    if registry.is_zero() {
        errors.add(registry.required(PAIRS));
    } else if tenant.len() >= 65 {
        errors.add(tenant.required("must be a UUID and may not exceed a length of 64 characters"));
    } else {
        let wrong = registry.text().split(',').filter(|pair| pair.matches(':').count() != 1);
        errors.extend(wrong.map(|_| registry.invalid(PAIRS)));
    }
    errors.require(&source.at("volume"));
}

fn fibre_channel(source: &Field<'_>, errors: &mut Errors) {
    let (names, ids, lun) = (source.at("targetWWNs"), source.at("wwids"), source.at("lun"));
    if names.is_zero() && ids.is_zero() {
        errors.add(names.required("must specify either targetWWNs or wwids, but not both"));
    }
    if !names.is_zero() && !ids.is_zero() {
        errors.add(names.invalid("targetWWNs and wwids can not be specified simultaneously"));
    }
    if !names.is_zero() {
        if lun.is_set() {
            errors.in_range(&lun, 0, 255);
        } else {
            errors.add(lun.required("lun is required if targetWWNs is specified"));
        }
    }
}

fn flex(source: &Field<'_>, errors: &mut Errors) {
    errors.require(&source.at("driver"));
    for (key, option) in source.at("options").entries() {
        let domain = format!(".{}", key.split('/').next().unwrap_or(key).to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            errors.add(option.invalid_as(key, "kubernetes.io and k8s.io namespaces are reserved"));
        }
    }
}

fn azure_disk(source: &Field<'_>, errors: &mut Errors) {
    errors.require_all(source, &["diskName", "diskURI"]);
    errors.one_of_if_set(&source.at("cachingMode"), &["None", "ReadOnly", "ReadWrite"]);
    errors.one_of_if_set(&source.at("kind"), &["Dedicated", "Managed", "Shared"]);
    let (kind, uri) = (source.at("kind"), source.at("diskURI"));
    if !kind.is_set() {
        return;
    }
    let managed = kind.text() == "Managed";
    if managed && !uri.text().starts_with("/subscriptions/") {
        errors.add(uri.unsupported(&["/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"]));
    }
    if !managed && !uri.text().starts_with("https://") {
        errors.add(uri.unsupported(&["https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"]));
    }
}

fn storage_os(source: &Field<'_>, context: &Context<'_, '_>, errors: &mut Errors) {
    if errors.require(&source.at("volumeName")) {
        errors.dns_label(&source.at("volumeName"));
    }
    if !source.at("volumeNamespace").is_zero() {
        errors.dns_label(&source.at("volumeNamespace"));
    }
    secret_reference(source, context, errors);
}

/// A persistent volume is in no namespace, so its secret needs one.
fn secret_reference(source: &Field<'_>, context: &Context<'_, '_>, errors: &mut Errors) {
    let secret = source.at("secretRef");
    if secret.is_set() {
        errors.require(&secret.at("name"));
        if matches!(context.kind, VolumeKind::Persistent { .. }) {
            errors.require(&secret.at("namespace"));
        }
    }
}

fn csi(source: &Field<'_>, context: &Context<'_, '_>, errors: &mut Errors) {
    validate_driver_name(&source.at("driver"), errors);
    let secret = source.at("nodePublishSecretRef");
    if let VolumeKind::Pod { .. } = context.kind {
        if secret.is_set() && errors.require(&secret.at("name")) {
            let name = secret.at("name");
            let shown = source.at("name");
            errors.extend(names::dns_subdomain(name.text()).into_iter().map(|m| shown.invalid_as(name.text(), m)));
        }
        return;
    }
    errors.require(&source.at("volumeHandle"));
    for key in ["controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"] {
        let secret = source.at(key);
        if secret.is_set() {
            if errors.require(&secret.at("name")) {
                errors.dns_subdomain(&secret.at("name"));
            }
            if errors.require(&secret.at("namespace")) {
                errors.dns_label(&secret.at("namespace"));
            }
        }
    }
}

/// The name of a CSI driver: a domain name in any case.
pub(crate) fn validate_driver_name(name: &Field<'_>, errors: &mut Errors) {
    if !errors.require(name) {
        return;
    }
    if name.len() > 63 {
        errors.add(name.too_long(63));
    }
    errors.extend(names::dns_subdomain(&name.text().to_lowercase()).into_iter().map(|m| name.invalid(m)));
}

/// The same rule where upstream's is generated, in other words.
pub(crate) fn validate_driver_name_in_any_case(name: &Field<'_>, errors: &mut Errors) {
    let mut found = Errors::default();
    validate_driver_name(name, &mut found);
    for mut error in found.0 {
        error.detail = error
            .detail
            .replace(
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric",
                "an RFC 1123 subdomain must consist of alphanumeric",
            )
            .replace("'example.com'", "'Example.com'");
        errors.add(error);
    }
}
