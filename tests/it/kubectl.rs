//! A tenant as its users see it: through the real kubectl. Without one, these tests say so and pass.

use crate::harness::server::binary;
use crate::harness::{PATIENCE, Server};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// kubectl, if there is one: `$SUBLET_KUBECTL`, or in `PATH`.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("SUBLET_KUBECTL").map(PathBuf::from);
    let in_path = || std::env::split_paths(&std::env::var_os("PATH")?).map(|p| p.join("kubectl")).find(|p| p.is_file());
    let found = named.or_else(in_path);
    if found.is_none() {
        // Past the capture of output, so that nobody takes a skipped test for a passed one.
        let _ = writeln!(std::io::stderr(), "\n*** SKIPPED: there is no kubectl in PATH, and $SUBLET_KUBECTL names none ***");
    }
    found
}

/// A tenant of an embedded host, and kubectl for it.
struct Tenant {
    program: PathBuf,
    kubeconfig: PathBuf,
    folder: TempDir,
    _host: Server,
}

impl Tenant {
    fn start() -> Option<Self> {
        let program = program()?;
        let folder = TempDir::new().unwrap();
        let host = Server::start(&folder.path().join("dev"), &["dev", "--dir"]);
        let sublet = |arguments: &[&str]| {
            let output = binary().args(arguments).env("KUBECONFIG", &host.kubeconfig).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        sublet(&["create", "alpha", "-n", "team-a", "--wait"]);
        let kubeconfig = folder.path().join("alpha.kubeconfig");
        std::fs::write(&kubeconfig, sublet(&["kubeconfig", "alpha", "-n", "team-a"])).unwrap();
        Some(Self { program, kubeconfig, folder, _host: host })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        // The cache of discovery is this test's own.
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).env("HOME", self.folder.path()).env("KUBECTL_COMMAND_HEADERS", "false");
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs kubectl, which must succeed.
    fn run(&self, line: &str) -> String {
        let arguments: Vec<&str> = line.split(' ').collect();
        self.run_with(&arguments)
    }

    fn run_with(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "kubectl {arguments:?}\n{stdout}{}", String::from_utf8_lossy(&output.stderr));
        stdout
    }

    /// Runs kubectl, which must fail; what it says on stderr.
    fn fail(&self, line: &str) -> String {
        let output = self.output(&line.split(' ').collect::<Vec<_>>());
        assert!(!output.status.success(), "kubectl {line}\n{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn eventually(&self, line: &str, is_true: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let output = self.output(&line.split(' ').collect::<Vec<_>>());
            let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
            if output.status.success() && is_true(&stdout) {
                return;
            }
            assert!(Instant::now() < deadline, "kubectl {line}:\n{stdout}{}", String::from_utf8_lossy(&output.stderr));
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

#[track_caller]
fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

const WEB: &str = r"apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: busybox:1, command: [sleep, '100000'], ports: [{containerPort: 80}]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {greeting: hello}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
";

#[test]
fn a_tenant_works_with_kubectl() {
    let Some(tenant) = Tenant::start() else { return };
    looking_around(&tenant);
    applying(&tenant);
    rolling_out(&tenant);
    reaching_in(&tenant);
    changing(&tenant);
    watching(&tenant);
    accounts(&tenant);
    deleting(&tenant);
}

fn looking_around(tenant: &Tenant) {
    let namespaces = tenant.run("get ns -o name");
    let mut names: Vec<&str> = namespaces.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["namespace/default", "namespace/kube-node-lease", "namespace/kube-public", "namespace/kube-system"]);
    contains(&tenant.run("version"), &["Server Version: v1.37"]);
    contains(&tenant.run("api-resources"), &["deployments", "deploy", "apps/v1", "customresourcedefinitions", "poddisruptionbudgets"]);
    contains(&tenant.run("api-resources --api-group=batch -o name"), &["cronjobs.batch", "jobs.batch"]);
    contains(&tenant.run("api-versions"), &["rbac.authorization.k8s.io/v1", "storage.k8s.io/v1"]);
    contains(&tenant.run("explain deployment.spec.strategy"), &["GROUP:      apps", "rollingUpdate", "FIELD: strategy"]);
    contains(&tenant.run("explain pod --recursive"), &["ephemeralContainers", "hostAliases"]);
    contains(&tenant.fail("explain deployment.spec.nothing"), &["nothing"]);
    assert_eq!(tenant.run("auth can-i create pods"), "yes\n");
    contains(&tenant.fail("auth can-i create pods --as=nobody-known -q --dry-run"), &["unknown flag"]);
    let refused = tenant.output(&["auth", "can-i", "create", "pods", "--as=somebody"]);
    assert_eq!((refused.status.code(), String::from_utf8_lossy(&refused.stdout).trim()), (Some(1), "no"));
    contains(&tenant.run("auth whoami"), &["admin", "system:masters"]);
    contains(&tenant.run("cluster-info"), &["Kubernetes control plane", "is running at"]);
    contains(&tenant.fail("get nothings"), &["the server doesn't have a resource type \"nothings\""]);
    contains(&tenant.fail("get pod absent"), &["Error from server (NotFound): pods \"absent\" not found"]);
}

fn applying(tenant: &Tenant) {
    let file = tenant.file("web.yaml", WEB);
    let created = tenant.run(&format!("apply -f {file}"));
    assert_eq!(created, "deployment.apps/web created\nconfigmap/settings created\nservice/web created\n");
    contains(
        &tenant.run(&format!("apply -f {file}")),
        &["deployment.apps/web unchanged", "configmap/settings unchanged", "service/web unchanged"],
    );
    assert_eq!(tenant.run(&format!("diff -f {file}")), "");
    let changed = tenant.file("changed.yaml", &WEB.replace("greeting: hello", "greeting: good day"));
    let difference = tenant.output(&["diff", "-f", &changed]);
    assert_eq!(difference.status.code(), Some(1));
    contains(&String::from_utf8_lossy(&difference.stdout), &["-  greeting: hello", "+  greeting: good day"]);
    contains(&tenant.run(&format!("apply -f {changed}")), &["configmap/settings configured", "deployment.apps/web unchanged"]);
    contains(
        &tenant.run(&format!("apply --server-side --field-manager=it -f {file} --force-conflicts")),
        &["configmap/settings serverside-applied"],
    );
    assert_eq!(tenant.run("get cm settings -o jsonpath={.data.greeting}"), "hello");
    let wrong = tenant.file("wrong.yaml", &WEB.replace("replicas: 2", "replica: 2"));
    contains(&tenant.fail(&format!("apply -f {wrong}")), &["unknown field \"spec.replica\""]);
    contains(&tenant.run(&format!("create -f {file} --dry-run=client -o name")), &["deployment.apps/web"]);
    contains(&tenant.fail(&format!("create -f {file}")), &["(AlreadyExists)", "deployments.apps \"web\" already exists"]);
}

fn rolling_out(tenant: &Tenant) {
    contains(&tenant.run("rollout status deployment/web --timeout=60s"), &["successfully rolled out"]);
    contains(&tenant.run("get deployment web"), &["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE", "2/2"]);
    contains(&tenant.run("get pods -l app=web -o wide"), &["Running", "NODE", "READINESS GATES"]);
    assert_eq!(tenant.run("scale deployment/web --replicas=3"), "deployment.apps/web scaled\n");
    tenant.eventually("get deployment web -o jsonpath={.status.readyReplicas}", |ready| ready == "3");
    assert_eq!(tenant.run("set image deployment/web main=busybox:2"), "deployment.apps/web image updated\n");
    contains(&tenant.run("rollout status deployment/web --timeout=60s"), &["successfully rolled out"]);
    let history = tenant.run("rollout history deployment/web");
    contains(&history, &["REVISION", "1 ", "2 "]);
    contains(&tenant.run("rollout history deployment/web --revision=2"), &["busybox:2"]);
    contains(&tenant.run("rollout undo deployment/web"), &["rolled back"]);
    contains(&tenant.run("rollout status deployment/web --timeout=60s"), &["successfully rolled out"]);
    let image = "get deployment web -o jsonpath={.spec.template.spec.containers[0].image}";
    assert_eq!(tenant.run(image), "busybox:1");
    assert_eq!(tenant.run("rollout restart deployment/web"), "deployment.apps/web restarted\n");
    contains(&tenant.run("rollout status deployment/web --timeout=60s"), &["successfully rolled out"]);
    contains(&tenant.run("describe deployment web"), &["Replicas:", "3 desired", "ScalingReplicaSet", "RollingUpdateStrategy"]);
    contains(&tenant.run("describe pods -l app=web"), &["Status:", "Running", "Conditions:", "Scheduled"]);
    contains(&tenant.run("describe service web"), &["Endpoints:", "10."]);
    contains(&tenant.run("wait --for=condition=Available deployment/web --timeout=60s"), &["condition met"]);
}

fn reaching_in(tenant: &Tenant) {
    let pod = tenant.run("get pods -l app=web -o jsonpath={.items[0].metadata.name}");
    tenant.run(&format!("logs {pod}"));
    assert_eq!(tenant.run(&format!("exec {pod} -- echo hello")), "hello\n");
    assert_eq!(tenant.run(&format!("exec {pod} -c main -- hostname")).trim(), pod);
    contains(&tenant.fail(&format!("exec {pod} -c absent -- true")), &["container absent is not valid for pod"]);
    contains(&tenant.fail("logs absent"), &["pods \"absent\" not found"]);
    contains(&tenant.fail(&format!("logs {pod} -c absent")), &["container absent is not valid for pod"]);
    for websocket in ["true", "false"] {
        streaming(tenant, &pod, websocket);
    }
    assert_eq!(tenant.run(&format!("get --raw /api/v1/namespaces/default/pods/http:{pod}:80/proxy/hostname")), pod);
    contains(&tenant.run("get --raw /api/v1/namespaces/default/services/web:80/proxy/hostname"), &["web-"]);
    contains(
        &tenant.fail("get --raw /api/v1/namespaces/default/services/web:81/proxy/"),
        &["no service port 81 found for service \"web\""],
    );
    contains(&tenant.fail("get --raw /api/v1/namespaces/default/services/absent:80/proxy/"), &["services \"absent\" not found"]);
    let node = tenant.run(&format!("get pod {pod} -o jsonpath={{.spec.nodeName}}"));
    contains(&tenant.fail(&format!("get --raw /api/v1/nodes/{node}/proxy/pods")), &["is not offered to virtual clusters"]);
    // What a Service points at beside the tenant's pods is not reached.
    tenant.run(&format!("apply -f {}", tenant.file("outside.yaml", OUTSIDE)));
    contains(&tenant.fail("get --raw /api/v1/namespaces/default/services/outside:http/proxy/"), &["no endpoints available for service"]);
    tenant.run("delete service,endpointslice outside");
    tenant.eventually("top pods", |text| text.contains(&pod));
    assert_eq!(tenant.run("top pods -l app=web --no-headers").lines().count(), tenant.run("get pods -l app=web -o name").lines().count());
    contains(&tenant.run("top nodes"), &["CPU(cores)", "node-"]);
}

/// A Service of an address that is no pod's.
const OUTSIDE: &str = r"apiVersion: v1
kind: Service
metadata: {name: outside}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: outside, labels: {kubernetes.io/service-name: outside}}
addressType: IPv4
ports: [{name: http, port: 80}]
endpoints: [{addresses: [10.96.0.1]}]
";

/// The same over WebSocket and SPDY.
fn streaming(tenant: &Tenant, pod: &str, websocket: &str) {
    let command = |arguments: &[&str]| {
        let mut command = tenant.command(arguments);
        command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websocket).env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websocket);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut exec = command(&["exec", "-i", pod, "--", "sh", "-c", "cat; echo err >&2; exit 3"]).spawn().unwrap();
    exec.stdin.take().unwrap().write_all(b"in and out").unwrap();
    let ended = exec.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(3), b"in and out".as_slice()), "WebSocket: {websocket}");
    assert!(ended.stderr.starts_with(b"err\n"), "WebSocket: {websocket}: {ended:?}");
    let mut forward = command(&["port-forward", pod, ":80"]).spawn().unwrap();
    let mut told = BufReader::new(forward.stdout.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    let address = line.split_whitespace().nth(2).unwrap_or_default();
    let mut stream = TcpStream::connect(address).unwrap_or_else(|e| panic!("WebSocket: {websocket}: {line:?}: {e}"));
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /hostname HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    forward.kill().unwrap();
    forward.wait().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with(pod), "WebSocket: {websocket}: {answer:?}");
}

fn changing(tenant: &Tenant) {
    let patch = |kind: &str, patch: &str| tenant.run_with(&["patch", "deployment", "web", "--type", kind, "-p", patch]);
    contains(&patch("merge", r#"{"metadata":{"annotations":{"a":"merge"}}}"#), &["patched"]);
    contains(
        &patch("strategic", r#"{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"A","value":"b"}]}]}}}}"#),
        &["patched"],
    );
    contains(&patch("json", r#"[{"op":"add","path":"/metadata/annotations/b","value":"json"}]"#), &["patched"]);
    contains(&tenant.run("get deployment web -o yaml"), &["a: merge", "b: json", "name: A"]);
    let same = r#"[{"op":"test","path":"/data/greeting","value":"hello"}]"#;
    assert_eq!(tenant.run_with(&["patch", "cm", "settings", "--type=json", "-p", same]), "configmap/settings patched (no change)\n");
    assert_eq!(tenant.run("label cm settings tier=back"), "configmap/settings labeled\n");
    contains(&tenant.fail("label cm settings tier=front"), &["'tier' already has a value (back), and --overwrite is false"]);
    assert_eq!(tenant.run("label cm settings tier-"), "configmap/settings unlabeled\n");
    assert_eq!(tenant.run("annotate cm settings note=yes"), "configmap/settings annotated\n");
    contains(&tenant.run("get cm settings -o yaml"), &["note: \"yes\""]);
    // As `kubectl edit` does it: get, change, replace.
    let edited = tenant.run("get cm settings -o yaml").replace("greeting: hello", "greeting: edited");
    let edited = tenant.file("edited.yaml", &edited);
    assert_eq!(tenant.run(&format!("replace -f {edited}")), "configmap/settings replaced\n");
    contains(&tenant.fail(&format!("replace -f {edited}")), &["(Conflict)", "the object has been modified"]);
    contains(&tenant.run("create configmap typed --from-literal=a=b"), &["configmap/typed created"]);
    contains(&tenant.run("create deployment typed --image=busybox --replicas=0"), &["deployment.apps/typed created"]);
    contains(&tenant.run("create job typed --image=busybox -- true"), &["job.batch/typed created"]);
    contains(&tenant.run("wait --for=condition=Complete job/typed --timeout=60s"), &["condition met"]);
    contains(&tenant.run("get events"), &["LAST SEEN", "Scheduled"]);
}

fn watching(tenant: &Tenant) {
    let mut watch = tenant
        .command(&["get", "cm", "-w", "--output-watch-events"])
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(tenant.folder.path().join("watched")).unwrap())
        .spawn()
        .unwrap();
    let watched = || std::fs::read_to_string(tenant.folder.path().join("watched")).unwrap();
    let wait = |what: &str| {
        let deadline = Instant::now() + PATIENCE;
        while !watched().contains(what) {
            assert!(Instant::now() < deadline, "{what:?} is missing in:\n{}", watched());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    wait("settings");
    tenant.run("create configmap seen --from-literal=a=b");
    tenant.run("label cm seen x=y");
    tenant.run("delete cm seen");
    wait("DELETED");
    let _ = watch.kill();
    let _ = watch.wait();
    let seen: Vec<String> =
        watched().lines().filter(|l| l.contains("seen")).map(|l| l.split_whitespace().next().unwrap_or_default().to_string()).collect();
    assert_eq!(seen, ["ADDED", "MODIFIED", "DELETED"]);
}

fn accounts(tenant: &Tenant) {
    contains(&tenant.run("create serviceaccount robot"), &["serviceaccount/robot created"]);
    let token = tenant.run("create token robot --duration=20m");
    assert_eq!(token.trim().split('.').count(), 3, "{token}");
    let robot = |line: &str| {
        let token = format!("--token={}", token.trim());
        let mut arguments: Vec<&str> = line.split(' ').collect();
        arguments.push(&token);
        // A client certificate would be preferred to the token.
        let config = tenant.folder.path().join("bare.kubeconfig");
        bare(&tenant.kubeconfig, &config);
        tenant.command(&arguments).env("KUBECONFIG", config).output().unwrap()
    };
    let who = robot("auth whoami -o jsonpath={.status.userInfo.username}");
    assert_eq!(String::from_utf8_lossy(&who.stdout), "system:serviceaccount:default:robot", "{}", String::from_utf8_lossy(&who.stderr));
    let refused = robot("get pods");
    contains(
        &String::from_utf8_lossy(&refused.stderr),
        &[
            "pods is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"",
        ],
    );
    tenant.run("create rolebinding robot --clusterrole=view --serviceaccount=default:robot");
    let deadline = Instant::now() + PATIENCE;
    while !robot("get pods").status.success() {
        assert!(Instant::now() < deadline, "the binding has no effect");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(tenant.run("auth can-i list pods --as=system:serviceaccount:default:robot"), "yes\n");
}

/// The kubeconfig without its user's certificate.
fn bare(from: &Path, to: &Path) {
    let text = std::fs::read_to_string(from).unwrap();
    let is_certificate = |l: &&str| !l.contains("client-certificate-data") && !l.contains("client-key-data");
    let mut kept: Vec<&str> = text.lines().filter(is_certificate).collect();
    for line in &mut kept {
        // A mapping with nothing in it.
        if line.trim_end().ends_with("user:") {
            *line = "  user: {}";
        }
    }
    std::fs::write(to, kept.join("\n") + "\n").unwrap();
}

fn deleting(tenant: &Tenant) {
    let pod = tenant.run("get pods -l app=web -o name").lines().next().unwrap().to_string();
    contains(&tenant.run(&format!("delete {pod} --wait=true")), &["deleted"]);
    tenant.eventually("get deployment web -o jsonpath={.status.readyReplicas}", |ready| ready == "3");
    contains(&tenant.run("delete deployment web typed --wait=true"), &["deployment.apps \"web\" deleted"]);
    tenant.eventually("get pods -l app=web -o name", str::is_empty);
    contains(&tenant.run("delete cm,svc --all"), &["configmap \"settings\" deleted", "service \"web\" deleted"]);
    contains(&tenant.run("create namespace scratch"), &["namespace/scratch created"]);
    tenant.run("create configmap inside -n scratch --from-literal=a=b");
    contains(&tenant.run("delete namespace scratch --timeout=60s"), &["namespace \"scratch\" deleted"]);
    contains(&tenant.fail("get namespace scratch"), &["(NotFound)"]);
}
