//! What works but is deprecated or probably not meant (as in api/pod/warnings.go, 1.37).

use super::super::field::{Field, Seen};
use super::validate::all_containers;
use serde_json::Value;
use sublet_machinery::{FieldPath, ObjectExt, names};

pub(crate) fn of_pod(pod: &Value) -> Vec<String> {
    let mut warnings = name_warning(pod, "the Pod's hostname");
    let root = Field::root(pod);
    collect(&root, pod, &mut warnings);
    for container in all_containers(&root.at("spec")) {
        let key = format!("{APP_ARMOR}{}", container.at("name").text());
        if pod.annotation(&key).is_some() {
            warnings.push(format!("metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"));
        }
    }
    warnings
}

pub(crate) fn of_template(template: &Field<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    collect(template, template.value, &mut warnings);
    for container in all_containers(&template.at("spec")) {
        let key = format!("{APP_ARMOR}{}", container.at("name").text());
        let own = container.at("securityContext").at("appArmorProfile").is_set();
        if template.value.annotation(&key).is_some() && !own {
            let path = template.path.child("metadata").child("annotations").key(&key);
            warnings.push(format!("{path}: deprecated since v1.30; use the \"appArmorProfile\" field instead"));
        }
    }
    warnings
}

/// Names that end up in host names should be DNS labels.
/// What an update of something with a pod template warns of: nothing unless it changes more than its metadata.
pub(crate) fn of_changed(new: &Value, old: &Value, path: &[&str]) -> Vec<String> {
    if new["metadata"]["generation"] == old["metadata"]["generation"] {
        return Vec::new();
    }
    of_template(&path.iter().fold(Field::root(new), |field, key| field.at(key)))
}

pub(crate) fn name_warning(object: &Value, used: &str) -> Vec<String> {
    let wrong = names::dns_label(object.name());
    if wrong.is_empty() {
        return Vec::new();
    }
    let list = wrong.join(" ");
    vec![format!("metadata.name: this is used in {used}, which can result in surprising behavior; a DNS label is recommended: [{list}]")]
}

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

const OLD_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    ("failure-domain.beta.kubernetes.io/region", "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

const OLD_ANNOTATIONS: [(&str, &str); 3] = [
    ("scheduler.alpha.kubernetes.io/critical-pod", "non-functional in v1.16+; use the \"priorityClassName\" field instead"),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];

/// (source, how upstream spells it, since when)
const OLD_VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

pub(crate) fn old_label(key: &str) -> Option<&'static str> {
    OLD_LABELS.iter().find(|(old, _)| *old == key).map(|(_, message)| *message)
}

/// Deprecated keys in a term of a node selector.
pub(crate) fn node_selector_term(term: &Field<'_>, warnings: &mut Vec<String>) {
    for expression in term.at("matchExpressions").items() {
        let key = expression.at("key");
        warnings.extend(old_label(key.text()).map(|message| format!("{}: {} is {message}", key.path, key.text())));
    }
}

/// Deprecated sources; persistent volumes warn of fewer.
pub(crate) fn volume_sources(volume: &Field<'_>, warnings: &mut Vec<String>) {
    for (key, shown, message) in OLD_VOLUMES {
        if volume.at(key).is_set() {
            warnings.push(format!("{}: {message}", volume.path.child(shown)));
        }
    }
}

fn collect(holder: &Field<'_>, object: &Value, warnings: &mut Vec<String>) {
    let spec = holder.at("spec");
    node_selection(&spec, warnings);
    spread(&spec, warnings);
    annotations(holder, object, warnings);
    for volume in spec.at("volumes").items() {
        volume_sources(&volume, warnings);
        claim_spec(&volume.at("ephemeral").at("volumeClaimTemplate").at("spec"), warnings);
    }
    repeats(&spec.at("hostAliases"), "ip", warnings);
    repeats(&spec.at("imagePullSecrets"), "name", warnings);
    for secret in spec.at("imagePullSecrets").items().filter(|s| s.at("name").is_zero()) {
        warnings.push(format!("{}: invalid empty name \"\"", secret.path.child("name")));
    }
    fractions(&spec.at("overhead"), warnings);
    seccomp(holder, object, warnings);
    for container in all_containers(&spec) {
        fractions(&container.at("resources").at("limits"), warnings);
        fractions(&container.at("resources").at("requests"), warnings);
        hidden_variables(&container, warnings);
    }
    ports(&spec, warnings);
    let grace = spec.at("terminationGracePeriodSeconds");
    if grace.int() < 0 {
        warnings.push(format!("{}: must be >= 0; negative values are invalid and will be treated as 1", grace.path));
    }
    empty_selectors(&spec, warnings);
    for server in spec.at("dnsConfig").at("nameservers").items() {
        warnings.extend(names::ip_warnings(&server.path, server.text()));
    }
    for alias in spec.at("hostAliases").items() {
        warnings.extend(names::ip_warnings(&alias.at("ip").path, alias.at("ip").text()));
    }
}

fn node_selection(spec: &Field<'_>, warnings: &mut Vec<String>) {
    for (key, entry) in spec.at("nodeSelector").entries() {
        warnings.extend(old_label(key).map(|message| format!("{}: {message}", entry.path)));
    }
    let affinity = spec.at("affinity").at("nodeAffinity");
    for term in affinity.at("requiredDuringSchedulingIgnoredDuringExecution").at("nodeSelectorTerms").items() {
        node_selector_term(&term, warnings);
    }
    for preferred in affinity.at("preferredDuringSchedulingIgnoredDuringExecution").items() {
        let term = preferred.at("preference");
        node_selector_term(&term, warnings);
        for value in term.at("matchExpressions").items().flat_map(|e| e.at("values").items().collect::<Vec<_>>()) {
            let wrong = names::label_value(value.text()).into_iter();
            warnings.extend(wrong.map(|message| format!("{}: {} is invalid, {message}", value.path, value.text())));
        }
    }
}

fn spread(spec: &Field<'_>, warnings: &mut Vec<String>) {
    for constraint in spec.at("topologySpreadConstraints").items() {
        let key = constraint.at("topologyKey");
        warnings.extend(old_label(key.text()).map(|message| format!("{}: {} is {message}", key.path, key.text())));
        null_selector(&constraint, warnings);
    }
}

fn null_selector(term: &Field<'_>, warnings: &mut Vec<String>) {
    if !term.at("labelSelector").is_set() {
        warnings.push(format!("{}: a null labelSelector results in matching no pod", term.path.child("labelSelector")));
    }
}

fn empty_selectors(spec: &Field<'_>, warnings: &mut Vec<String>) {
    for side in ["podAffinity", "podAntiAffinity"] {
        let side = spec.at("affinity").at(side);
        side.at("requiredDuringSchedulingIgnoredDuringExecution").items().for_each(|term| null_selector(&term, warnings));
        let preferred = side.at("preferredDuringSchedulingIgnoredDuringExecution");
        preferred.items().for_each(|p| null_selector(&p.at("podAffinityTerm"), warnings));
    }
}

fn annotations(holder: &Field<'_>, object: &Value, warnings: &mut Vec<String>) {
    for (key, message) in OLD_ANNOTATIONS {
        if object.annotation(key).is_some() {
            warnings.push(format!("{}: {message}", annotation_path(holder, key)));
        }
    }
}

fn annotation_path(holder: &Field<'_>, key: &str) -> FieldPath {
    holder.path.child("metadata").child("annotations").key(key)
}

fn seccomp(holder: &Field<'_>, object: &Value, warnings: &mut Vec<String>) {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    let spec = holder.at("spec");
    let mut warn = |key: &str, has_field: bool| {
        if !has_field && object.annotation(key).is_some() {
            let path = annotation_path(holder, key);
            warnings.push(format!("{path}: non-functional in v1.27+; use the \"seccompProfile\" field instead"));
        }
    };
    warn(POD, spec.at("securityContext").at("seccompProfile").is_set());
    for container in all_containers(&spec) {
        let key = format!("container.seccomp.security.alpha.kubernetes.io/{}", container.at("name").text());
        warn(&key, container.at("securityContext").at("seccompProfile").is_set());
    }
}

fn repeats(list: &Field<'_>, key: &str, warnings: &mut Vec<String>) {
    let mut seen = Seen::default();
    for item in list.items().map(|i| i.at(key)) {
        if seen.again(item.text()) {
            warnings.push(format!("{}: duplicate {key} {:?}", item.path, item.text()));
        }
    }
}

/// Parts of bytes.
fn fractions(list: &Field<'_>, warnings: &mut Vec<String>) {
    for name in ["memory", "ephemeral-storage"] {
        fraction(&Field::new(&list.value[name], list.path.key(name)), warnings);
    }
}

fn fraction(field: &Field<'_>, warnings: &mut Vec<String>) {
    let amount = field.quantity();
    if amount.milli_value() % 1000 != 0 {
        warnings.push(format!("{}: fractional byte value \"{amount}\" is invalid, must be an integer", field.path));
    }
}

pub(crate) fn claim_spec(spec: &Field<'_>, warnings: &mut Vec<String>) {
    for part in ["requests", "limits"] {
        let list = spec.at("resources").at(part);
        fraction(&Field::new(&list.value["storage"], list.path.key("storage")), warnings);
    }
}

/// A second definition hides the first, unless it refers to it.
fn hidden_variables(container: &Field<'_>, warnings: &mut Vec<String>) {
    let mut seen = Seen::default();
    for variable in container.at("env").items() {
        let (name, value) = (variable.at("name").text(), variable.at("value").text());
        let reference = format!("$({name})");
        let hides = variable.at("valueFrom").is_set() || value == reference || !value.contains(&reference);
        if seen.again(name) && hides {
            let path = &variable.path;
            warnings.push(format!("{path}: hides previous definition of {name:?}, which may be dropped when using apply"));
        }
    }
}

fn ports(spec: &Field<'_>, warnings: &mut Vec<String>) {
    let mut seen: Vec<Field<'_>> = Vec::new();
    let mut named: Vec<Field<'_>> = Vec::new();
    for port in all_containers(spec).iter().flat_map(|c| c.at("ports").items().collect::<Vec<_>>()) {
        let same = |other: &Field<'_>, key: &str| other.at(key).value == port.at(key).value;
        let (ip, host) = (port.at("hostIP").text(), port.at("hostPort").int());
        for other in seen.iter().filter(|o| same(o, "containerPort") && same(o, "protocol")) {
            let (other_ip, other_host) = (other.at("hostIP").text(), other.at("hostPort").int());
            let word = if ip == other_ip && host == other_host {
                "duplicate"
            } else if host == 0 || other_host == 0 {
                "overlapping"
            } else if host == other_host && ip.is_empty() != other_ip.is_empty() {
                "dangerously ambiguous"
            } else {
                continue;
            };
            warnings.push(format!("{}: {word} port definition with {}", port.path, other.path));
        }
        seen.push(port);
    }
    for port in seen.iter().filter(|p| !p.at("name").is_zero()) {
        let name = port.at("name").text();
        match named.iter().find(|o| o.at("name").text() == name) {
            Some(other) => warnings.push(format!(
                "{}: duplicate port name {name:?} with {}, services and probes that select ports by name will use {}",
                port.path, other.path, other.path
            )),
            None => named.push(port.clone()),
        }
    }
}
