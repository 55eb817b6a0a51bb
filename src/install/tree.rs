//! The files under `manifests/`: a kustomize base, what can be added to it, samples, and a chart.

use super::{HEALTH_PORT, Options, Parts, SHARD, Storage, labels, parts, samples};
use anyhow::Result;
use serde_json::{Value, json};
use std::fmt::Write as _;
use sublet_machinery::ObjectExt;
use sublet_syncer::HostCache;

const HEADER: &str = "# Rendered by `sublet manifests`; edit src/install/ instead.\n";

/// One file, by its path below `manifests/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub path: String,
    pub text: String,
}

/// Objects as YAML documents.
pub fn yaml<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Result<String> {
    let mut text = String::new();
    for object in objects {
        if !text.is_empty() {
            text.push_str("---\n");
        }
        text.push_str(&serde_saphyr::to_string(object)?);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

/// All files.
pub fn tree() -> Result<Vec<File>> {
    let parts = parts(&Options::default());
    let mut files = Files::default();
    let folders = [("crds", &parts.definitions), ("rbac", &parts.rights), ("install", &parts.workloads)];
    for (folder, objects) in folders {
        let mut names = Vec::new();
        for object in objects {
            let name = file_name(object);
            files.add(&format!("{folder}/{name}"), HEADER, &yaml([object])?);
            names.push(name);
        }
        files.kustomization(folder, "", json!({"resources": names}))?;
    }
    files.kustomization("", "kubectl apply -k manifests", json!({"resources": folders.map(|(folder, _)| folder)}))?;
    trial(&mut files)?;
    monitoring(&mut files)?;
    wide_reads(&mut files)?;
    volume_edits(&mut files)?;
    for (name, what, objects) in samples::samples() {
        files.add(&format!("samples/{name}"), &format!("{HEADER}# {what}\n"), &yaml(&objects)?);
    }
    chart(&mut files)?;
    files.0.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files.0)
}

#[derive(Default)]
struct Files(Vec<File>);

impl Files {
    fn add(&mut self, path: &str, header: &str, text: &str) {
        self.0.push(File { path: path.to_string(), text: format!("{header}{text}") });
    }

    fn kustomization(&mut self, folder: &str, what: &str, body: Value) -> Result<()> {
        let mut object = body;
        if object["kind"].is_null() {
            object["apiVersion"] = json!("kustomize.config.k8s.io/v1beta1");
            object["kind"] = json!("Kustomization");
        }
        let path = if folder.is_empty() { "kustomization.yaml".into() } else { format!("{folder}/kustomization.yaml") };
        let header = if what.is_empty() { HEADER.to_string() } else { format!("{HEADER}# {what}\n") };
        self.add(&path, &header, &yaml([&object])?);
        Ok(())
    }

    fn component(&mut self, name: &str, what: &str, mut body: Value) -> Result<()> {
        body["apiVersion"] = json!("kustomize.config.k8s.io/v1alpha1");
        body["kind"] = json!("Component");
        self.kustomization(&format!("components/{name}"), what, body)
    }
}

fn file_name(object: &Value) -> String {
    format!("{}-{}.yaml", object.kind().to_lowercase(), object.name())
}

/// Without volumes, for hosts that provision none.
fn trial(files: &mut Files) -> Result<()> {
    let patch = json!([
        {"op": "remove", "path": "/spec/volumeClaimTemplates"},
        {"op": "add", "path": "/spec/template/spec/volumes", "value": [{"name": "stores", "emptyDir": {}}]},
    ]);
    let body = json!({
        // Not the base as a whole: it is around this folder, and kustomize takes that for a cycle.
        "resources": ["../../crds", "../../rbac", "../../install"],
        "patches": [{"target": {"kind": "StatefulSet", "name": SHARD}, "patch": patch.to_string()}],
    });
    files.kustomization("overlays/trial", "Stores are gone with the pod of their shard: for trials alone.", body)
}

fn pod_monitor() -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor",
        "metadata": {"name": "sublet", "namespace": Options::default().namespace, "labels": labels("monitoring")},
        "spec": {
            "selector": {"matchLabels": {"app.kubernetes.io/name": "sublet"}},
            "podMetricsEndpoints": [{"port": "health", "path": "/metrics"}],
        },
    })
}

fn monitoring(files: &mut Files) -> Result<()> {
    files.add("components/monitoring/podmonitor.yaml", HEADER, &yaml([&pod_monitor()])?);
    let what =
        format!("For the Prometheus operator; its namespace needs the label `sublet.dev/metrics: allowed` to reach port {HEALTH_PORT}.");
    files.component("monitoring", &what, json!({"resources": ["podmonitor.yaml"]}))
}

/// One watch for all tenants needs the right to read their kinds everywhere.
pub fn wide_reads_role() -> Vec<Value> {
    let mut rules = Vec::new();
    for gvr in HostCache::copied_kinds() {
        rules.push(json!({"apiGroups": [gvr.group], "resources": [gvr.resource], "verbs": ["get", "list", "watch"]}));
    }
    shard_role("wide-reads", rules)
}

/// Volumes are no namespaced kind: the right to change one is the right to change all.
pub fn volume_edits_role() -> Vec<Value> {
    shard_role("volume-edits", vec![json!({"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["patch"]})])
}

fn shard_role(purpose: &str, rules: Vec<Value>) -> Vec<Value> {
    let name = format!("{SHARD}-{purpose}");
    let rbac = "rbac.authorization.k8s.io";
    vec![
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": name, "labels": labels("shard")}, "rules": rules}),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": labels("shard")},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": SHARD, "namespace": Options::default().namespace}],
        }),
    ]
}

fn wide_reads(files: &mut Files) -> Result<()> {
    files.add("components/wide-reads/role.yaml", HEADER, &yaml(&wide_reads_role())?);
    let what =
        "For hundreds of tenants: shards watch each kind once instead of once a tenant. They can read Secrets of all namespaces then.";
    files.component("wide-reads", what, json!({"resources": ["role.yaml"]}))
}

fn volume_edits(files: &mut Files) -> Result<()> {
    files.add("components/volume-edits/role.yaml", HEADER, &yaml(&volume_edits_role())?);
    let what = "Lets tenants change the reclaim policy of their volumes and use released ones again. Shards may patch all volumes of the host then.";
    files.component("volume-edits", what, json!({"resources": ["role.yaml"]}))
}

/// What stands in the objects where a value of the chart goes, and how the chart writes it.
const VALUES: [(&str, &str); 6] = [
    ("xxNamespacexx", "{{ .Release.Namespace }}"),
    ("xxImagexx", "{{ .Values.image | quote }}"),
    ("xxOperatorsxx", "{{ .Values.operator.replicas }}"),
    ("xxShardsxx", "{{ .Values.shard.replicas }}"),
    ("xxSizexx", "{{ .Values.storage.size | quote }}"),
    ("xxVerbosityxx", "{{ .Values.verbosity }}"),
];
const CLASS: &str = "storageClassName: xxClassxx";

fn chart(files: &mut Files) -> Result<()> {
    let defaults = Options::default();
    let Storage::Claim { size, .. } = &defaults.storage else { unreachable!("the default keeps stores") };
    let version = env!("CARGO_PKG_VERSION");
    files.add(
        "chart/Chart.yaml",
        HEADER,
        &format!("apiVersion: v2\nname: sublet\ndescription: Virtual clusters for Kubernetes\ntype: application\nversion: {version}\nappVersion: {version}\n"),
    );
    let mut values = String::new();
    writeln!(values, "image: {}", defaults.image)?;
    writeln!(values, "# Two, so that one takes over when the other is gone.\noperator:\n  replicas: {}", defaults.operators)?;
    writeln!(values, "# Processes that serve the API servers of packed tenants.\nshard:\n  replicas: {}", defaults.shards)?;
    writeln!(
        values,
        "# Of the stores of tenants, for each shard; an empty class is the default of the cluster.\nstorage:\n  size: {size}\n  className: \"\""
    )?;
    writeln!(values, "# 0 warnings, 2 what happens, 4 requests.\nverbosity: {}", defaults.verbosity)?;
    writeln!(values, "# A PodMonitor for the Prometheus operator.\nmonitoring: false")?;
    writeln!(
        values,
        "# One watch for all tenants: less memory with hundreds of them, and the right to read Secrets everywhere.\nwideReads: false"
    )?;
    writeln!(
        values,
        "# Tenants may change the reclaim policy of their volumes and use released ones again; shards may patch all volumes of the host.\nvolumeEdits: false"
    )?;
    files.add("chart/values.yaml", HEADER, &values);
    let token = |name: &str| format!("xx{name}xx");
    let options = Options {
        namespace: token("Namespace"),
        image: token("Image"),
        operators: json!(token("Operators")),
        shards: json!(token("Shards")),
        storage: Storage::Claim { class: token("Class"), size: token("Size") },
        verbosity: json!(token("Verbosity")),
    };
    let Parts { definitions, rights, workloads } = parts(&options);
    files.add("chart/crds/virtualclusters.yaml", HEADER, &yaml(&definitions)?);
    files.add("chart/templates/rbac.yaml", HEADER, &template(&yaml(&rights)?));
    // A chart is installed into a namespace that is there: `helm install --create-namespace`.
    files.add("chart/templates/workloads.yaml", HEADER, &template(&yaml(workloads.iter().skip(1))?));
    let when = |value: &str, text: &str| format!("{{{{- if .Values.{value} }}}}\n{text}{{{{- end }}}}\n");
    let namespaced = |text: &str| text.replace(&Options::default().namespace, "{{ .Release.Namespace }}");
    files.add("chart/templates/monitoring.yaml", HEADER, &when("monitoring", &namespaced(&yaml([&pod_monitor()])?)));
    files.add("chart/templates/wide-reads.yaml", HEADER, &when("wideReads", &namespaced(&yaml(&wide_reads_role())?)));
    files.add("chart/templates/volume-edits.yaml", HEADER, &when("volumeEdits", &namespaced(&yaml(&volume_edits_role())?)));
    Ok(())
}

/// Puts the chart's values where they belong.
fn template(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if let Some(at) = line.find(CLASS) {
            let indent = &line[..at];
            let _ = writeln!(
                out,
                "{indent}{{{{- with .Values.storage.className }}}}\n{indent}storageClassName: {{{{ . | quote }}}}\n{indent}{{{{- end }}}}"
            );
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    for (token, value) in VALUES {
        out = out.replace(token, value);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_chart_is_left_to_guess() {
        let files = tree().unwrap();
        assert!(files.iter().all(|f| !f.text.contains("xx")), "a token is left");
        let workloads = files.iter().find(|f| f.path == "chart/templates/workloads.yaml").unwrap();
        for (token, value) in VALUES.into_iter().filter(|(token, _)| *token != "xxNamespacexx") {
            assert!(workloads.text.contains(value), "{token}");
        }
        assert!(workloads.text.contains("{{- with .Values.storage.className }}"));
    }

    #[test]
    fn what_is_committed_is_what_is_rendered() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
        for file in tree().unwrap() {
            let committed = std::fs::read_to_string(root.join(&file.path)).unwrap_or_default();
            assert!(committed == file.text, "manifests/{} is out of date: `cargo run -- manifests` writes it anew", file.path);
        }
    }
}
