//! What a simulated program answers to whoever calls its port.

use serde_json::Value;
use sublet_machinery::ObjectExt;

/// The page at a path; `None` when the pod does not run, or no container of it declares the port.
pub fn simulated_page(pod: &Value, port: u16, path: &str) -> Option<String> {
    if pod.str_at("/status/phase") != Some("Running") {
        return None;
    }
    let declares = |container: &&Value| container.array_at("/ports").iter().any(|p| p["containerPort"].as_u64() == Some(port.into()));
    let container = pod.array_at("/spec/containers").iter().find(declares)?;
    let host_name = pod.str_at("/spec/hostname").filter(|name| !name.is_empty()).unwrap_or(pod.name());
    // Test programs are asked who they are in this way.
    if path.split('?').next() == Some("/hostname") {
        return Some(host_name.to_string());
    }
    let image = container["image"].as_str().unwrap_or_default();
    Some(format!("{host_name}, port {port}: a simulated {image} runs no process here\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn declared_ports_of_running_pods_answer() {
        let pod = |phase: &str| {
            json!({
                "metadata": {"name": "web-1"}, "status": {"phase": phase},
                "spec": {"containers": [{"image": "a"}, {"image": "nginx", "ports": [{"containerPort": 80}]}]},
            })
        };
        assert_eq!(simulated_page(&pod("Running"), 80, "/").as_deref(), Some("web-1, port 80: a simulated nginx runs no process here\n"));
        assert_eq!(simulated_page(&pod("Running"), 80, "/hostname?a").as_deref(), Some("web-1"));
        // A pod does not know under which name it is kept.
        let mut named = pod("Running");
        named["spec"]["hostname"] = json!("web");
        assert_eq!(simulated_page(&named, 80, "/hostname").as_deref(), Some("web"));
        assert_eq!([simulated_page(&pod("Running"), 81, "/"), simulated_page(&pod("Pending"), 80, "/")], [None, None]);
    }
}
