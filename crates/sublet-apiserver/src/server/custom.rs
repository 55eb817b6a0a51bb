//! Custom resource definitions in force: rows of the registry follow the stored definitions.

use super::Server;
use crate::crd::{self, Cleanup};
use crate::reader::{Reader, Writer};
use crate::rest::delete::DeleteOptions;
use futures::future::BoxFuture;
use serde_json::Value;
use sublet_machinery::{ApiError, ObjectExt, Reason};

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const TRIES_MAX: usize = 8;

impl Server {
    /// Serves what the stored definitions say, at start.
    pub(crate) fn load_custom_resources(&self) {
        let definitions = self.list(DEFINITIONS, None);
        self.registry().add_custom(definitions.iter().flat_map(|definition| crd::rows(definition)));
        for definition in definitions.iter().filter(|d| d.is_deleting()) {
            self.clean_up(definition.name());
        }
    }

    /// A definition was written: its names are accepted or not, and its resources served, before the
    /// writer gets the answer.
    pub(crate) fn definition_changed<'a>(&'a self, definition: &Value) -> BoxFuture<'a, ()> {
        // Boxed: deleting instances leads back here through the writes it makes.
        Box::pin(self.follow_definition(definition.name().to_string()))
    }

    async fn follow_definition(&self, name: String) {
        for _ in 0..TRIES_MAX {
            let Some(live) = self.get(DEFINITIONS, "", &name) else { return };
            let all = self.known_names().of(&self.store().list(DEFINITIONS, None).entries);
            let Some(status) = crd::accept(&live, all.iter().map(|names| &**names), &self.now()) else {
                self.registry().set_custom(&name, crd::rows(&live));
                break;
            };
            let mut updated = Value::clone(&live);
            updated["status"] = status;
            match Writer::update(self, DEFINITIONS, updated).await {
                Ok(stored) => {
                    self.registry().set_custom(&name, crd::rows(&stored));
                    break;
                }
                Err(error) if error.is(Reason::Conflict) => {}
                Err(error) => {
                    tracing::error!(server = self.name(), name, %error, "definition not established");
                    return;
                }
            }
        }
        if self.get(DEFINITIONS, "", &name).is_some_and(|d| d.is_deleting()) {
            self.clean_up(&name);
        }
    }

    pub(crate) fn definition_gone(&self, definition: &Value) {
        self.registry().set_custom(definition.name(), Vec::new());
        // Names that it held may now be free for others.
        let server = self.clone();
        tokio::spawn(async move {
            for other in server.list(DEFINITIONS, None) {
                if !other.is_condition_true("NamesAccepted") {
                    server.definition_changed(&other).await;
                }
            }
        });
    }

    fn clean_up(&self, name: &str) {
        let (server, name) = (self.clone(), name.to_string());
        tokio::spawn(async move {
            if let Err(error) = server.remove_instances(&name).await {
                tracing::warn!(server = server.name(), name, %error, "instances of a deleted definition remain");
                if let Some(live) = server.get(DEFINITIONS, "", &name) {
                    let failed = crd::cleanup_failed(&live, &error.message, &server.now());
                    // Best effort: the next write of the definition starts the cleanup again.
                    let _ = Writer::update(&server, DEFINITIONS, failed).await;
                }
            }
        });
    }

    /// Takes the steps of a definition's deletion until it is gone.
    async fn remove_instances(&self, name: &str) -> Result<(), ApiError> {
        loop {
            let Some(live) = self.get(DEFINITIONS, "", name) else { return Ok(()) };
            let row = self.registry().snapshot().resources.values().find(|r| r.custom.as_ref().is_some_and(|c| c.crd == name)).cloned();
            let bucket = row.as_ref().map(|r| r.group_resource()).unwrap_or_default();
            match crd::cleanup_plan(&live, self.store().count(&bucket), &self.now()) {
                Cleanup::Nothing => return Ok(()),
                Cleanup::Announce(object) | Cleanup::Finish(object) => match Writer::update(self, DEFINITIONS, object).await {
                    Err(error) if !error.is(Reason::Conflict) && !error.is(Reason::NotFound) => return Err(error),
                    _ => {}
                },
                Cleanup::DeleteInstances => {
                    let mut changes = self.store().changes(&bucket);
                    for entry in self.store().list(&bucket, None).entries.iter().filter(|e| !e.is_deleting()) {
                        let (namespace, name) = entry.namespace_and_name();
                        let options = DeleteOptions { propagation_policy: Some("Background".into()), ..DeleteOptions::default() };
                        if let Some(row) = &row {
                            self.delete_as_system(row, namespace, name, &options).await?;
                        }
                    }
                    if self.store().count(&bucket) > 0 {
                        tokio::select! {
                            _ = changes.changed() => {}
                            () = self.stop_token().cancelled() => return Ok(()),
                        }
                    }
                }
            }
        }
    }
}
