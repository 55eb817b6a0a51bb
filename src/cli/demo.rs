//! `sublet demo`

use super::dev::{self, Dev};
use anyhow::{Context as _, Result};
use async_trait::async_trait;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use sublet_e2e::{Cluster, Report, STORY_LABEL, Stage, Story};
use tokio::sync::Mutex;

#[derive(Args)]
#[command(after_help = "Ends with 0 only when every step was seen to hold.")]
pub struct Arguments {
    /// Where state lives [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Stay up at the end and print how to go on
    #[arg(long)]
    keep: bool,
    /// Use this cluster as the host instead of the embedded one
    #[arg(long, value_name = "FILE")]
    host_kubeconfig: Option<PathBuf>,
    /// The address under which pods reach the tenants' API servers
    #[arg(long, value_name = "ADDRESS")]
    pods_reach: Option<String>,
}

pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    let temporary;
    let dir = match &arguments.dir {
        Some(dir) => dir.clone(),
        None => {
            temporary = tempfile::Builder::new().prefix("sublet-demo-").tempdir()?;
            temporary.path().to_path_buf()
        }
    };
    let of_others = arguments.host_kubeconfig.is_some();
    let options = dev::Arguments {
        dir: dir.clone(),
        nodes: 2,
        listen: if arguments.pods_reach.is_some() { [0, 0, 0, 0].into() } else { [127, 0, 0, 1].into() },
        host_kubeconfig: arguments.host_kubeconfig,
        pods_reach: arguments.pods_reach,
        service_cluster_ip_range: "10.96.0.0/16".parse()?,
        // Another's host may have virtual clusters that others care for.
        selector: if of_others { format!("{}={}", STORY_LABEL.0, STORY_LABEL.1) } else { String::new() },
    };
    match &options.host_kubeconfig {
        Some(path) => println!("Tenants in {}, on the host of {}", dir.display(), path.display()),
        None => println!("An embedded host and its tenants, in {}", dir.display()),
    }
    let stage = InProcess { running: Mutex::new(Some(Dev::start(&options).await?)), options };
    let mut story = Story::begin(&stage, &Printed).await?;
    let result = story.run().await;
    // An embedded host ends with its folder; another one is left as it was found.
    let clears = stage.options.host_kubeconfig.is_some() && !arguments.keep;
    let cleared = if clears { story.clear_up().await } else { Ok(()) };
    let result = result.and(cleared.context("the host is not left as it was found"));
    let running = stage.running.lock().await.take();
    if let Err(error) = result {
        eprintln!("\nFAILED: {error:#}");
        if let Some(running) = running {
            running.stop().await;
        }
        return Ok(ExitCode::FAILURE);
    }
    println!("\nEvery step was seen to hold.");
    if let Some(running) = running {
        if arguments.keep {
            println!("\nIt stays up until Ctrl-C. In another terminal:");
            println!("  export KUBECONFIG={}", running.host_kubeconfig.display());
            println!("  kubectl get vc -A");
            println!("  sublet connect beta -n team-b -- kubectl get pods -A");
            super::apiserver::terminated().await;
        }
        running.stop().await;
    }
    Ok(ExitCode::SUCCESS)
}

struct InProcess {
    options: dev::Arguments,
    running: Mutex<Option<Dev>>,
}

#[async_trait]
impl Stage for InProcess {
    async fn host(&self) -> Result<Cluster> {
        let running = self.running.lock().await;
        let path = &running.as_ref().context("the host is stopped")?.host_kubeconfig;
        Cluster::from_text(&tokio::fs::read_to_string(path).await?).await
    }

    async fn restart(&self) -> Result<bool> {
        let mut running = self.running.lock().await;
        if let Some(old) = running.take() {
            old.stop().await;
        }
        *running = Some(Dev::start(&self.options).await?);
        Ok(true)
    }

    fn has_volumes(&self) -> bool {
        self.options.host_kubeconfig.is_none()
    }

    fn has_containers(&self) -> bool {
        self.options.host_kubeconfig.is_some() && self.options.pods_reach.is_some()
    }

    fn patience_s(&self) -> u64 {
        if self.options.host_kubeconfig.is_none() { 30 } else { 180 }
    }
}

struct Printed;

impl Report for Printed {
    fn chapter(&self, number: usize, title: &str) {
        println!("\n{number}. {title}");
    }

    fn fact(&self, text: &str) {
        println!("   - {text}");
    }

    fn done(&self, seconds: f64) {
        println!("   ok ({seconds:.1}s)");
    }
}
