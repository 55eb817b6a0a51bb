//! The real kubectl, where there is one: what people type.

use anyhow::{Context as _, Result, ensure};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

/// No command of the story takes longer.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// kubectl with a tenant's kubeconfig.
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: NamedTempFile,
}

impl Kubectl {
    /// `None` when there is none on the path. `$KUBECTL` names another.
    pub fn find(kubeconfig: &str) -> Result<Option<Self>> {
        let Some(program) = program() else { return Ok(None) };
        let mut file = NamedTempFile::new().context("no temporary file")?;
        file.write_all(kubeconfig.as_bytes())?;
        Ok(Some(Self { program, kubeconfig: file }))
    }

    /// Runs with this input and gives what it ended with.
    pub async fn run(&self, arguments: &[&str], input: &str) -> Result<Output> {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot run {}", self.program.display()))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes()).await?;
        }
        let ended = tokio::time::timeout(COMMAND_TIMEOUT, child.wait_with_output()).await;
        ended.with_context(|| format!("kubectl {arguments:?} does not end"))?.context("kubectl was lost")
    }

    /// Says a line and gives the line that is answered. Input stays open until then: whoever is attached
    /// hears no more once it ends.
    pub async fn converse(&self, arguments: &[&str], line: &str) -> Result<String> {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("cannot run {}", self.program.display()))?;
        let (mut stdin, stdout) = (child.stdin.take().context("no input")?, child.stdout.take().context("no output")?);
        stdin.write_all(format!("{line}\n").as_bytes()).await?;
        let mut answer = BufReader::new(stdout).lines();
        let answer = tokio::time::timeout(COMMAND_TIMEOUT, answer.next_line()).await;
        let answer = answer.with_context(|| format!("kubectl {arguments:?} does not answer"))??;
        drop(stdin);
        child.kill().await?;
        answer.with_context(|| format!("kubectl {arguments:?} ended without an answer"))
    }

    /// What it prints; a failure is an error.
    pub async fn text(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments, "").await?;
        ensure!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A command that ends with its handle.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(self.kubeconfig.path()).args(arguments).kill_on_drop(true);
        command
    }
}

fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("KUBECTL") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("kubectl")).find(|file| Path::is_file(file))
}
