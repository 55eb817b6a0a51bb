use super::*;

fn observe(pod: &Value, memory: &mut Memory, now: i64) -> Plan {
    observe_with(pod, memory, now, None, &|_| None)
}

fn observe_with(
    pod: &Value,
    memory: &mut Memory,
    now: i64,
    volume_trouble: Option<String>,
    config_trouble: &dyn Fn(&Value) -> Option<String>,
) -> Plan {
    let room = || Room { cpu: 4000, memory: 8_000_000, free_cpu: 1000, free_memory: 1_000_000 };
    step(
        &Observed {
            pod,
            node_address: "172.30.0.2".parse().unwrap(),
            address: Some("10.244.0.2".parse().unwrap()),
            volume_trouble,
            config_trouble,
            read: &|_, _| None,
            admit: &|| None,
            room: &room,
            timings: &Timings::default(),
            now,
        },
        memory,
    )
}

/// A pod on its way through steps at given seconds.
struct Life {
    pod: Value,
    memory: Memory,
    events: Vec<String>,
    wake_at: Option<i64>,
    gone: bool,
}

impl Life {
    fn new(spec: Value) -> Self {
        let pod =
            json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 1}, "spec": spec, "status": {"phase": "Pending"}});
        let mut life = Self { pod, memory: Memory::default(), events: Vec::new(), wake_at: None, gone: false };
        life.at(1000);
        life
    }

    fn at(&mut self, now: i64) -> &mut Self {
        let plan = observe(&self.pod, &mut self.memory, now);
        self.pod["status"] = plan.status;
        self.events.extend(plan.events.iter().map(|e| format!("{} {}", e.reason, e.message)));
        (self.wake_at, self.gone) = (plan.wake_at, plan.gone);
        self
    }

    fn phase(&self) -> &str {
        self.pod.str_at("/status/phase").unwrap()
    }

    fn state(&self, list: &str, index: usize) -> String {
        let state = &self.pod["status"][list][index]["state"];
        if state.get("running").is_some() {
            return "running".into();
        }
        let reason = |v: &Value| v["reason"].as_str().unwrap_or_default().to_string();
        state.get("waiting").map_or_else(|| format!("{} {}", reason(&state["terminated"]), state["terminated"]["exitCode"]), reason)
    }

    fn condition(&self, kind: &str) -> &str {
        self.pod.array_at("/status/conditions").iter().find(|c| c["type"] == kind).and_then(|c| c["status"].as_str()).unwrap_or("-")
    }
}

fn server() -> Value {
    json!({"name": "c", "image": "nginx"})
}

#[test]
fn a_server_is_created_then_runs_and_is_ready() {
    let mut life = Life::new(json!({"restartPolicy": "Always", "containers": [server()]}));
    assert_eq!((life.phase(), life.state("containerStatuses", 0).as_str()), ("Pending", "ContainerCreating"));
    assert_eq!((life.condition("Initialized"), life.condition("Ready"), life.condition("PodScheduled")), ("True", "False", "True"));
    assert_eq!(life.wake_at, Some(1000));
    life.at(1000);
    assert_eq!((life.phase(), life.condition("Ready"), life.condition("PodReadyToStartContainers")), ("Running", "True", "True"));
    assert_eq!(life.pod["status"]["podIPs"], json!([{"ip": "10.244.0.2"}]));
    assert_eq!(life.pod["status"]["observedGeneration"], 1);
    assert_eq!(life.events.len(), 3);
    let before = life.pod.clone();
    life.at(2000);
    assert_eq!(life.pod, before, "a quiet pod writes nothing");
    assert_eq!(life.wake_at, None);
}

#[test]
fn init_containers_run_in_order_and_sidecars_stay() {
    let mut life = Life::new(json!({"restartPolicy": "Never", "initContainers": [
        {"name": "one", "image": "busybox", "command": ["sleep", "5"]}, {"name": "side", "image": "proxy", "restartPolicy": "Always"},
        {"name": "two", "image": "busybox", "command": ["true"]}], "containers": [{"name": "c", "image": "busybox", "command": ["sleep", "9"]}]}));
    life.at(1000);
    assert_eq!(life.state("initContainerStatuses", 0), "running");
    assert_eq!(
        (life.state("initContainerStatuses", 1), life.state("containerStatuses", 0)),
        ("PodInitializing".into(), "PodInitializing".into())
    );
    assert_eq!((life.phase(), life.condition("Initialized"), life.wake_at), ("Pending", "False", Some(1005)));
    life.at(1005);
    assert_eq!(life.state("initContainerStatuses", 0), "Completed 0");
    assert_eq!((life.state("initContainerStatuses", 1), life.state("initContainerStatuses", 2)), ("running".into(), "Completed 0".into()));
    assert_eq!((life.phase(), life.condition("Initialized"), life.wake_at), ("Running", "True", Some(1014)));
    life.at(1014);
    assert_eq!((life.phase(), life.state("initContainerStatuses", 1).as_str()), ("Succeeded", "Error 143"));
    assert_eq!(life.pod["status"]["conditions"][2]["reason"], "PodCompleted");
}

#[test]
fn a_failing_init_container_fails_the_pod_or_backs_off() {
    let init = json!([{"name": "i", "image": "busybox", "command": ["false"]}]);
    let mut life = Life::new(json!({"restartPolicy": "Never", "initContainers": init, "containers": [server()]}));
    life.at(1000);
    assert_eq!((life.phase(), life.state("containerStatuses", 0).as_str()), ("Failed", "PodInitializing"));
    let mut life = Life::new(json!({"restartPolicy": "Always", "initContainers": init, "containers": [server()]}));
    life.at(1000);
    assert_eq!((life.phase(), life.state("initContainerStatuses", 0).as_str(), life.wake_at), ("Pending", "CrashLoopBackOff", Some(1010)));
}

#[test]
fn crash_loops_back_off_ever_longer() {
    let mut life =
        Life::new(json!({"restartPolicy": "Always", "containers": [{"name": "c", "image": "x", "command": ["sh", "-c", "exit 3"]}]}));
    let mut wakes = Vec::new();
    let mut now = 1000;
    for _ in 0..7 {
        life.at(now);
        wakes.push(life.wake_at.unwrap() - now);
        now = life.wake_at.unwrap();
    }
    assert_eq!(wakes, [10, 20, 40, 80, 160, 300, 300]);
    let status = &life.pod["status"]["containerStatuses"][0];
    assert_eq!(status["state"]["waiting"]["message"], "back-off 5m0s restarting failed container=c pod=p_n(u)");
    assert_eq!((&status["restartCount"], &status["lastState"]["terminated"]["exitCode"]), (&json!(7), &json!(3)));
    assert_eq!(life.phase(), "Running");
}

#[test]
fn jobs_end_with_the_code_of_their_command() {
    let run = |command: Value, policy: &str| {
        let mut life = Life::new(json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "busybox", "command": command}]}));
        life.at(1000);
        (life.phase().to_string(), life.state("containerStatuses", 0))
    };
    assert_eq!(run(json!(["exit 0"]), "Never"), ("Succeeded".into(), "Completed 0".into()));
    assert_eq!(run(json!([]), "OnFailure"), ("Succeeded".into(), "Completed 0".into()));
    assert_eq!(run(json!(["/bin/sh", "-c", "exit 1"]), "Never"), ("Failed".into(), "Error 1".into()));
}

#[test]
fn images_that_do_not_exist_back_off_until_fixed() {
    let mut life = Life::new(json!({"restartPolicy": "Always", "containers": [{"name": "c", "image": "nginx:nonexistent"}]}));
    life.at(1000);
    assert_eq!((life.phase(), life.state("containerStatuses", 0).as_str(), life.wake_at), ("Pending", "ErrImagePull", Some(1002)));
    life.at(1002);
    assert_eq!((life.state("containerStatuses", 0).as_str(), life.wake_at), ("ImagePullBackOff", None));
    life.pod["spec"]["containers"][0]["image"] = json!("nginx:1");
    life.at(1010);
    assert_eq!((life.phase(), life.condition("Ready")), ("Running", "True"));
    assert_eq!(life.pod["status"]["containerStatuses"][0]["restartCount"], 0);
}

#[test]
fn a_new_image_restarts_the_container() {
    let mut life = Life::new(json!({"restartPolicy": "Always", "containers": [server()]}));
    life.at(1000);
    life.pod["spec"]["containers"][0]["image"] = json!("nginx:2");
    life.pod["metadata"]["generation"] = json!(2);
    life.at(1100);
    let status = &life.pod["status"]["containerStatuses"][0];
    assert_eq!((&status["image"], &status["restartCount"], &status["ready"]), (&json!("nginx:2"), &json!(1), &json!(true)));
    assert_eq!(life.pod["status"]["observedGeneration"], 2);
    assert!(life.events.contains(&"Killing Container c definition changed, will be restarted".to_string()));
}

#[test]
fn deletion_stops_containers_within_the_grace() {
    let mut life = Life::new(json!({"restartPolicy": "Always", "containers": [
        {"name": "c", "image": "nginx", "lifecycle": {"preStop": {"sleep": {"seconds": 8}}}}]}));
    life.at(1000);
    life.pod["metadata"]["deletionTimestamp"] = json!(rfc3339(2030));
    life.pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    life.at(2000);
    assert_eq!((life.gone, life.wake_at, life.phase()), (false, Some(2008), "Running"));
    life.at(2008);
    assert_eq!((life.gone, life.phase(), life.state("containerStatuses", 0).as_str()), (true, "Failed", "Error 143"));
    assert_eq!(life.events.iter().filter(|e| e.starts_with("Killing")).count(), 1);
}

#[test]
fn a_pod_deleted_before_it_ran_counts_as_failed() {
    let mut life = Life::new(json!({"restartPolicy": "Always", "containers": [server()]}));
    life.pod["metadata"]["deletionTimestamp"] = json!(rfc3339(1000));
    life.pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    life.at(1000);
    assert_eq!((life.gone, life.phase(), life.state("containerStatuses", 0).as_str()), (true, "Failed", "ContainerStatusUnknown 137"));
}

#[test]
fn the_active_deadline_fails_the_pod() {
    let mut life = Life::new(json!({"restartPolicy": "Always", "activeDeadlineSeconds": 5, "containers": [server()]}));
    life.at(1000);
    assert_eq!(life.wake_at, Some(1005));
    life.at(1005);
    assert_eq!((life.phase(), life.pod["status"]["reason"].as_str()), ("Failed", Some("DeadlineExceeded")));
}

#[test]
fn missing_volumes_and_keys_hold_the_start() {
    let mut life = Life::new(json!({"restartPolicy": "Always", "containers": [server()]}));
    let plan = observe_with(&life.pod, &mut life.memory, 1000, Some("MountVolume.SetUp failed".into()), &|_| None);
    assert_eq!((plan.events[0].reason, plan.wake_at, plan.status["podIP"].as_str()), ("FailedMount", Some(1002), None));
    let plan = observe_with(&life.pod, &mut life.memory, 1000, None, &|_| Some("secret \"s\" not found".into()));
    let waiting = &plan.status["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(*waiting, json!({"reason": "CreateContainerConfigError", "message": "secret \"s\" not found"}));
    assert_eq!(plan.events[0].message, "Error: secret \"s\" not found");
}

#[test]
fn resizes_are_put_in_force_or_refused() {
    let resources = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let mut life =
        Life::new(json!({"restartPolicy": "Always", "containers": [{"name": "c", "image": "nginx", "resources": resources("1")}]}));
    life.at(1000);
    life.pod["spec"]["containers"][0]["resources"] = resources("1500m");
    life.at(1001);
    let status = &life.pod["status"]["containerStatuses"][0];
    assert_eq!((&status["resources"], &status["restartCount"]), (&resources("1500m"), &json!(0)));
    assert_eq!(status["allocatedResources"], json!({"cpu": "1500m"}));
    for (cpu, reason) in [("3", "Deferred"), ("9", "Infeasible")] {
        life.pod["spec"]["containers"][0]["resources"] = resources(cpu);
        life.at(1002);
        let pending = life.pod.array_at("/status/conditions").iter().find(|c| c["type"] == "PodResizePending").unwrap().clone();
        assert_eq!(pending["reason"], reason);
        assert_eq!(life.pod["status"]["containerStatuses"][0]["resources"], resources("1500m"));
    }
    life.pod["spec"]["containers"][0]["resources"] = resources("1");
    life.at(1003);
    assert_eq!(life.condition("PodResizePending"), "-");
}

#[test]
fn exec_probes_that_must_fail_do() {
    let probe = json!({"exec": {"command": ["/bin/false"]}, "periodSeconds": 5});
    let mut life = Life::new(json!({"restartPolicy": "Always", "containers": [{"name": "c", "image": "nginx", "readinessProbe": probe}]}));
    life.at(1000);
    assert_eq!((life.phase(), life.condition("Ready")), ("Running", "False"));
    let mut life = Life::new(json!({"restartPolicy": "Always", "containers": [{"name": "c", "image": "nginx", "livenessProbe": probe}]}));
    life.at(1000);
    assert_eq!((life.condition("Ready"), life.wake_at), ("True", Some(1015)));
    life.at(1015);
    assert_eq!(life.pod["status"]["containerStatuses"][0]["restartCount"], 1);
    assert!(life.events.contains(&"Killing Container c failed liveness probe, will be restarted".to_string()));
}

#[test]
fn readiness_comes_after_the_initial_delay() {
    let mut life = Life::new(json!({"restartPolicy": "Always", "containers": [
        {"name": "c", "image": "nginx", "readinessProbe": {"initialDelaySeconds": 4}}]}));
    life.at(1000);
    assert_eq!((life.phase(), life.condition("Ready"), life.wake_at), ("Running", "False", Some(1004)));
    life.at(1004);
    assert_eq!(life.condition("Ready"), "True");
}
