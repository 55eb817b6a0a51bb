//! The chapters, in order, and the stage that they play on.

mod apis;
mod changes;
mod containers;
mod deletion;
mod dns;
mod names;
mod quota;
mod restart;
mod tenants;
mod ways;
mod workloads;

use crate::Cluster;
use anyhow::{Context as _, Result};
use async_trait::async_trait;
use futures::future::BoxFuture;
use std::time::Instant;

/// What differs between the places where the story is played.
#[async_trait]
pub trait Stage: Send + Sync {
    /// The kubeconfig of the host, again after a restart.
    async fn host(&self) -> Result<Cluster>;

    /// Stops and starts everything of Sublet's that runs; `false` when the stage cannot.
    async fn restart(&self) -> Result<bool>;

    /// Whether the host makes volumes for claims.
    fn has_volumes(&self) -> bool;

    /// Whether pods are real containers, with output and a shell, that reach the tenants' API servers.
    fn has_containers(&self) -> bool;

    /// How long containers may take to start, in seconds.
    fn patience_s(&self) -> u64;
}

/// Told what goes on, for people who watch.
pub trait Report: Send + Sync {
    fn chapter(&self, number: usize, title: &str);
    /// A fact that was seen to hold.
    fn fact(&self, text: &str);
    fn done(&self, seconds: f64);
}

/// The story at some point: who is there by now.
pub struct Story<'a> {
    pub stage: &'a dyn Stage,
    pub report: &'a dyn Report,
    pub host: Cluster,
    pub alpha: Option<Cluster>,
    pub beta: Option<Cluster>,
    /// Host namespaces that the story made, for those who clear up.
    made: Vec<&'static str>,
}

pub const ALPHA: (&str, &str) = ("team-a", "alpha");
pub const BETA: (&str, &str) = ("team-b", "beta");

type Play = for<'s, 'a> fn(&'s mut Story<'a>) -> BoxFuture<'s, Result<()>>;

pub struct Chapter {
    pub title: &'static str,
    play: Play,
}

/// All chapters, each building on those before it.
pub fn chapters() -> Vec<Chapter> {
    let chapter = |title, play: Play| Chapter { title, play };
    vec![
        chapter("Two teams get a cluster each", |s| Box::pin(tenants::create(s))),
        chapter("Each sees its own and nothing else", |s| Box::pin(tenants::are_apart(s))),
        chapter("The same CRD name, incompatible versions", |s| Box::pin(apis::definitions(s))),
        chapter("The same workloads in both, distinct on the host", |s| Box::pin(workloads::run(s))),
        chapter("Names lead to each tenant's own Services", |s| Box::pin(dns::leads_to_its_own(s))),
        chapter("Changes reach the host; the tenant stays the source of truth", |s| Box::pin(changes::follow(s))),
        chapter("Real containers: logs and exec reach them", |s| Box::pin(containers::are_reached(s))),
        chapter("Proxies, ports and figures lead to a tenant's own pods", |s| Box::pin(ways::lead_to_own_pods(s))),
        chapter("Long and colliding names", |s| Box::pin(names::hold(s))),
        chapter("A host quota refuses, and the tenant reads why", |s| Box::pin(quota::is_told(s))),
        chapter("A restart changes nothing", |s| Box::pin(restart::changes_nothing(s))),
        chapter("A deleted tenant leaves nothing behind", |s| Box::pin(deletion::leaves_nothing(s))),
    ]
}

impl<'a> Story<'a> {
    pub async fn begin(stage: &'a dyn Stage, report: &'a dyn Report) -> Result<Self> {
        Ok(Self { stage, report, host: stage.host().await?, alpha: None, beta: None, made: Vec::new() })
    }

    /// Plays all chapters; the first that fails ends the story.
    pub async fn run(&mut self) -> Result<()> {
        for (index, chapter) in chapters().into_iter().enumerate() {
            self.report.chapter(index + 1, chapter.title);
            let started = Instant::now();
            (chapter.play)(self).await.with_context(|| format!("chapter {}: {}", index + 1, chapter.title))?;
            self.report.done(started.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// Takes from the host what the story brought there: for hosts that outlive it.
    pub async fn clear_up(&mut self) -> Result<()> {
        self.host = self.stage.host().await?;
        for namespace in std::mem::take(&mut self.made) {
            deletion::clear(&self.host, namespace, self.stage.patience_s().max(90)).await?;
        }
        Ok(())
    }

    pub(crate) fn alpha(&self) -> Result<&Cluster> {
        self.alpha.as_ref().context("alpha is not there yet")
    }

    pub(crate) fn beta(&self) -> Result<&Cluster> {
        self.beta.as_ref().context("beta is not there yet")
    }

    pub(crate) fn both(&self) -> Result<[&Cluster; 2]> {
        Ok([self.alpha()?, self.beta()?])
    }

    /// Clients for the tenants as their kubeconfig Secrets have them now.
    pub(crate) async fn reconnect(&mut self) -> Result<()> {
        self.host = self.stage.host().await?;
        for ((namespace, name), cluster) in [(ALPHA, &mut self.alpha), (BETA, &mut self.beta)] {
            *cluster = Some(Cluster::from_secret(&self.host, namespace, &format!("{name}-kubeconfig")).await?);
        }
        Ok(())
    }
}
