//! A server process in a folder of its own; it is killed when its owner goes.

use super::client::Client;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take until it answers.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Users whom every server of the API tests knows, upstream's too.
pub const TOKENS: &str = "admin-token,admin,admin,system:masters\nalice-token,alice,alice-uid,\"devs\"\n";

/// The folder of a real kube-apiserver to record answers from.
pub fn upstream() -> Option<PathBuf> {
    std::env::var_os("SUBLET_IT_UPSTREAM").map(PathBuf::from)
}

pub fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sublet"))
}

pub struct Server {
    /// `None` for upstream, which others run.
    process: Option<Process>,
    folder: PathBuf,
    pub kubeconfig: PathBuf,
    // Last, so that the folder goes after the process.
    _own: Option<TempDir>,
}

impl Server {
    /// An API server without controllers, in memory; upstream when answers are recorded.
    pub fn for_api() -> Self {
        if let Some(folder) = upstream() {
            return Self { process: None, kubeconfig: folder.join("admin.kubeconfig"), folder, _own: None };
        }
        let own = TempDir::new().unwrap();
        let tokens = own.path().join("tokens");
        std::fs::write(&tokens, TOKENS).unwrap();
        let tokens = tokens.display().to_string();
        let arguments = ["apiserver", "--store", "memory", "--controllers", "", "--token-auth-file", &tokens, "--dir"];
        let mut server = Self::start(own.path(), &arguments);
        server._own = Some(own);
        server
    }

    /// Runs `sublet ARGUMENTS... FOLDER` until it prints where its kubeconfig is.
    pub fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = binary();
        command.args(arguments).arg(folder);
        let mut process = Process::start(command);
        let kubeconfig = PathBuf::from(process.line().trim_end());
        Self { process: Some(process), folder: folder.to_path_buf(), kubeconfig, _own: None }
    }

    pub fn client(&self) -> Client {
        Client::from_kubeconfig(&self.kubeconfig)
    }

    /// Where `ca.crt` and `ca.key` are.
    pub fn pki_folder(&self) -> PathBuf {
        if self.process.is_some() { self.folder.join("pki") } else { self.folder.clone() }
    }

    /// As a power cut would.
    pub fn kill(mut self) {
        self.process.take().expect("only own servers are killed").kill();
    }

    /// SIGTERM, and how it ended.
    pub fn terminate(mut self) -> ExitStatus {
        self.process.take().expect("only own servers are stopped").terminate()
    }
}

/// A child whose output is read, and which does not outlive its owner.
pub struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
    log: std::thread::JoinHandle<String>,
}

impl Process {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut stderr = child.stderr.take().expect("stderr is piped");
        let log = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        Self { child, lines, log }
    }

    fn line(&mut self) -> String {
        match self.lines.recv_timeout(START_TIMEOUT) {
            Ok(line) => line,
            Err(error) => {
                self.kill_now();
                let log = std::mem::replace(&mut self.log, std::thread::spawn(String::new)).join().unwrap_or_default();
                panic!("the server did not start ({error}):\n{log}");
            }
        }
    }

    pub fn kill(mut self) {
        self.kill_now();
    }

    fn kill_now(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn terminate(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let deadline = Instant::now() + STOP_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_now();
    }
}
