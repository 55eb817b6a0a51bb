//! Custom resource definitions in force: rows of the registry follow the stored definitions.

use super::Server;
use crate::crd;
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
        for definition in self.list(DEFINITIONS, None) {
            self.serve(&definition);
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
            let mut updated = Value::clone(&live);
            updated["status"] = crd::accept(&live, &self.registry().snapshot(), &self.now());
            if updated["status"] == live["status"] {
                self.serve(&live);
                break;
            }
            match Writer::update(self, DEFINITIONS, updated).await {
                Ok(stored) => {
                    self.serve(&stored);
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
            let server = self.clone();
            tokio::spawn(async move {
                if let Err(error) = server.remove_instances(&name).await {
                    tracing::warn!(server = server.name(), name, %error, "instances of a deleted definition remain");
                }
            });
        }
    }

    pub(crate) fn definition_gone(&self, definition: &Value) {
        self.registry().set_custom(definition.name(), Vec::new());
        // Names that it held may now be free for others.
        let server = self.clone();
        tokio::spawn(async move {
            for other in server.list(DEFINITIONS, None) {
                if !crd::is_established(&other) {
                    server.definition_changed(&other).await;
                }
            }
        });
    }

    fn serve(&self, definition: &Value) {
        if !crd::is_established(definition) {
            return;
        }
        match crd::rows(definition) {
            Ok(rows) => self.registry().set_custom(definition.name(), rows),
            Err(error) => tracing::error!(server = self.name(), name = definition.name(), %error, "definition is not served"),
        }
    }

    /// Deletes all instances of a definition that is being deleted, then lets it go.
    async fn remove_instances(&self, name: &str) -> Result<(), ApiError> {
        let rows: Vec<_> =
            self.registry().snapshot().resources.values().filter(|r| r.custom.as_ref().is_some_and(|c| c.crd == name)).cloned().collect();
        if let Some(row) = rows.first() {
            let bucket = row.group_resource();
            let mut changes = self.store().changes(&bucket);
            loop {
                let remaining = self.store().list(&bucket, None).entries;
                if remaining.is_empty() {
                    break;
                }
                for entry in &remaining {
                    if !entry.is_deleting() {
                        let (namespace, name) = entry.namespace_and_name();
                        let options = DeleteOptions { propagation_policy: Some("Background".into()), ..DeleteOptions::default() };
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
        for _ in 0..TRIES_MAX {
            let Some(live) = self.get(DEFINITIONS, "", name) else { return Ok(()) };
            let mut updated = Value::clone(&live);
            crd::finish_cleanup(&mut updated);
            match Writer::update(self, DEFINITIONS, updated).await {
                Err(error) if error.is(Reason::Conflict) => {}
                other => return other.map(|_| ()),
            }
        }
        Ok(())
    }
}
