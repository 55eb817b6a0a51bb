//! The command line: what it prints, and how it ends.

use crate::harness::server::binary;
use crate::harness::{PATIENCE, Server};
use regex::Regex;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A run, with everything that differs from one to the next masked.
fn run(arguments: &[&str], kubeconfig: Option<&Path>) -> String {
    let home = TempDir::new().unwrap();
    let mut command = binary();
    command.args(arguments).env("HOME", home.path()).env("COLUMNS", "100").env_remove("KUBECONFIG").env_remove("SUBLET_LOG");
    if let Some(kubeconfig) = kubeconfig {
        command.env("KUBECONFIG", kubeconfig);
    }
    transcript(arguments, &mut command).replace(&home.path().display().to_string(), "<home>")
}

fn transcript(arguments: &[&str], command: &mut Command) -> String {
    let output = command.output().unwrap();
    let mut text = format!("$ sublet {}\n{}", arguments.join(" "), String::from_utf8_lossy(&output.stdout));
    if !output.stderr.is_empty() {
        text.push_str(&format!("(stderr)\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    text.push_str(&format!("(exit code {})\n", output.status.code().unwrap_or(-1)));
    let mask = |pattern: &str, stand_in: &str, text: &str| Regex::new(pattern).unwrap().replace_all(text, stand_in).into_owned();
    let text = mask(r"127\.0\.0\.1:\d+", "127.0.0.1:<port>", &text);
    let text = mask(r"\b\d+s\b *", "<age> ", &text);
    let text = mask(r"\d+ objects, \d+ KiB", "<n> objects, <n> KiB", &text);
    mask(env!("CARGO_PKG_VERSION"), "<version>", &text)
}

fn snapshot(name: &str, runs: &[String]) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_snapshot_path("cli_snapshots");
    settings.bind(|| insta::assert_snapshot!(name, runs.join("\n")));
}

#[test]
fn help() {
    let commands = [
        "demo",
        "dev",
        "apiserver",
        "operator",
        "check",
        "install",
        "uninstall",
        "create",
        "list",
        "describe",
        "delete",
        "kubeconfig",
        "connect",
        "completion",
        "version",
    ];
    let mut runs = vec![run(&["--help"], None), run(&["-h"], None)];
    runs.extend(commands.iter().map(|c| run(&[c, "--help"], None)));
    snapshot("help", &runs);
}

#[test]
fn version() {
    snapshot("version", &[run(&["version"], None), run(&["version", "-o", "json"], None), run(&["--version"], None)]);
}

#[test]
fn completion() {
    for shell in ["bash", "zsh", "fish"] {
        let output = binary().args(["completion", shell]).output().unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("kubeconfig") && script.len() > 1000, "{shell}: {script}");
    }
}

#[test]
fn the_second_name_is_the_same_program() {
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-sublet")).arg("version").output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("sublet "));
}

#[test]
fn without_a_host() {
    let runs = [
        run(&["list"], None),
        run(&["create", "alpha", "-n", "team-a", "--dry-run"], None),
        run(&["create", "alpha", "-n", "team-a", "--dry-run", "-o", "json"], None),
        run(&["create", "alpha", "-n", "team-a"], None),
        run(&["list", "--kubeconfig", "/nowhere/kubeconfig"], None),
        run(&["create"], None),
        run(&["lst"], None),
        run(&["apiserver"], None),
        run(&["apiserver", "--dir", "/proc/nowhere"], None),
        run(&["apiserver", "--dir", "/tmp", "--listen", "nowhere"], None),
        run(&["apiserver", "--dir", "/tmp", "--store", "floppy"], None),
        run(&["apiserver", "--dir", "/tmp", "--controllers", "*,-nonsense"], None),
        run(&["apiserver", "--dir", "/tmp", "--enable-admission-plugins", "Nonsense"], None),
    ];
    snapshot("without_a_host", &runs);
}

#[test]
fn on_a_host_without_the_operator() {
    let folder = TempDir::new().unwrap();
    let host = Server::start(folder.path(), &["apiserver", "--store", "memory", "--dir"]);
    let kubeconfig = Some(host.kubeconfig.as_path());
    let runs = [
        run(&["list"], kubeconfig),
        run(&["describe", "alpha", "-n", "team-a"], kubeconfig),
        run(&["create", "alpha", "-n", "team-a"], kubeconfig),
        run(&["delete", "alpha", "-n", "team-a"], kubeconfig),
    ];
    snapshot("on_a_host_without_the_operator", &runs);
}

#[test]
fn a_virtual_cluster_from_beginning_to_end() {
    let folder = TempDir::new().unwrap();
    let host = Server::start(folder.path(), &["dev", "--dir"]);
    let kubeconfig = Some(host.kubeconfig.as_path());
    let patience = PATIENCE.as_secs().to_string();
    let mut runs = vec![
        run(&["list"], kubeconfig),
        run(&["create", "alpha", "-n", "team-a", "--wait"], kubeconfig),
        run(&["create", "alpha", "-n", "team-a"], kubeconfig),
        run(&["list"], kubeconfig),
        run(&["ls", "-n", "nowhere"], kubeconfig),
        run(&["describe", "nothing", "-n", "team-a"], kubeconfig),
        run(&["kubeconfig", "nothing", "-n", "team-a"], kubeconfig),
        run(&["connect", "nothing", "-n", "team-a", "--", "true"], kubeconfig),
        run(&["connect", "alpha", "-n", "team-a", "--", "sh", "-c", "test -s \"$KUBECONFIG\" && exit 7"], kubeconfig),
        run(&["connect", "alpha", "-n", "team-a", "--", "/nowhere/program"], kubeconfig),
    ];
    let described = run(&["describe", "alpha", "-n", "team-a"], kubeconfig);
    for line in ["Name:        alpha", "Ready:       True", "Version:     1.37", "Secret alpha-kubeconfig", "ControlPlaneReady"] {
        assert!(described.contains(line), "{line}:\n{described}");
    }
    let printed = binary().args(["kubeconfig", "alpha", "-n", "team-a"]).env("KUBECONFIG", &host.kubeconfig).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("https://127.0.0.1:") && printed.contains("client-certificate-data:"), "{printed}");
    runs.push(run(&["delete", "nothing", "-n", "team-a"], kubeconfig));
    runs.push(run(&["delete", "alpha", "-n", "team-a", "--wait", "--timeout", &patience], kubeconfig));
    runs.push(run(&["list"], kubeconfig));
    snapshot("a_virtual_cluster_from_beginning_to_end", &runs);
    assert_eq!(host.terminate().code(), Some(0));
}
