//! A conversation with one server, written down request by request and compared with what upstream said.

use super::client::{Client, Credential, Request, Response};
use super::mask::{Mask, compact};
use super::server::{Server, upstream};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Headers worth telling, where they are not what every answer has.
const HEADERS: [&str; 6] = ["warning", "retry-after", "content-encoding", "allow", "location", "www-authenticate"];

pub struct Transcript {
    name: &'static str,
    pub server: Server,
    pub client: Client,
    pub mask: Mask,
    out: String,
    with_managed_fields: bool,
}

impl Transcript {
    pub fn start(name: &'static str) -> Self {
        let server = Server::for_api();
        let client = server.client().with_admin(Credential::Token("admin-token".into()));
        let mut mask = Mask::default();
        mask.add(client.authority.clone(), "<server>");
        mask.pattern(r#"https://kubernetes\.default\.svc(\.cluster\.local)?"#, "<issuer>");
        Self { name, server, client, mask, out: String::new(), with_managed_fields: false }
    }

    /// From here on, managedFields are part of what is compared.
    pub fn with_managed_fields(&mut self) {
        self.with_managed_fields = true;
    }

    /// A heading for what follows.
    pub fn note(&mut self, text: &str) {
        writeln!(self.out, "\n# {text}").unwrap();
    }

    /// Creates what a test needs, without writing it down.
    pub async fn given(&self, path: &str, body: Value) -> Response {
        let response = self.client.send(&Request::post(path, &body)).await;
        assert!(response.status.is_success(), "{path}: {} {}", response.status, response.text());
        response
    }

    pub async fn namespace(&self, name: &str) {
        self.given("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
    }

    /// A namespace in which pods can be created.
    pub async fn namespace_for_pods(&self, name: &str) {
        self.namespace(name).await;
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}});
        self.given(&format!("/api/v1/namespaces/{name}/serviceaccounts"), account).await;
    }

    pub async fn get(&mut self, path: &str) -> Response {
        self.send(Request::get(path)).await
    }

    pub async fn post(&mut self, path: &str, body: Value) -> Response {
        self.send(Request::post(path, &body)).await
    }

    pub async fn put(&mut self, path: &str, body: Value) -> Response {
        self.send(Request::put(path, &body)).await
    }

    pub async fn patch(&mut self, kind: &str, path: &str, body: Value) -> Response {
        self.send(Request::patch(kind, path, &body)).await
    }

    pub async fn delete(&mut self, path: &str) -> Response {
        self.send(Request::delete(path)).await
    }

    pub async fn send(&mut self, request: Request) -> Response {
        let response = self.client.send(&request).await;
        self.write_request(&request);
        self.write_head(&response);
        self.write_body(&response);
        response
    }

    /// As `send`, with only the status and the message or parts of the answer written down.
    pub async fn send_for(&mut self, request: Request, pointers: &[&str]) -> Response {
        let response = self.client.send(&request).await;
        self.write_request(&request);
        self.write_head(&response);
        let Ok(body) = serde_json::from_slice::<Value>(&response.body) else {
            let text = self.mask.text(&response.text());
            writeln!(self.out, "  {text:?}").unwrap();
            return response;
        };
        let pointers = if response.status.is_success() { pointers } else { &["/reason", "/message", "/details"] };
        for pointer in pointers {
            let mut value = body.pointer(pointer).cloned().unwrap_or(Value::Null);
            self.mask.value(&mut value);
            writeln!(self.out, "  {pointer}: {value}").unwrap();
        }
        response
    }

    /// For requests whose fault upstream takes for its own (500): here they are the client's. Both say the same.
    pub async fn refuse(&mut self, request: Request, said: &str) {
        let response = self.client.send(&request).await;
        let code = response.status.as_u16();
        assert!((400..500).contains(&code) || (code == 500 && upstream().is_some()), "{}: {code} {}", request.path, response.text());
        assert!(response.str("/message").contains(said), "{}", response.text());
    }

    /// Reads so many events of a watch.
    pub async fn watch(&mut self, request: Request, events: usize) -> Vec<Value> {
        let (response, lines) = self.client.lines(&request, events).await;
        self.write_request(&request);
        self.write_head(&response);
        for line in &lines {
            let mut line = line.clone();
            self.prepare(&mut line);
            self.out.push_str(&compact(&line));
        }
        if lines.len() < events {
            self.out.push_str(if response.body.is_empty() { "(the stream ends)\n" } else { "(rest)\n" });
        }
        lines
    }

    fn write_request(&mut self, request: &Request) {
        let path = self.mask.text(&request.path);
        let who = match &request.credential {
            Credential::Admin => "",
            Credential::Nobody => " (nobody)",
            Credential::Token(_) => " (token)",
            Credential::Certificate(_) => " (certificate)",
            Credential::Both(..) => " (certificate and token)",
        };
        writeln!(self.out, "\n> {} {path}{who}", request.method).unwrap();
        for (name, value) in request.headers.iter().filter(|(n, v)| n != "content-type" || v != "application/json") {
            let value = self.mask.text(value);
            writeln!(self.out, "> {name}: {value}").unwrap();
        }
        if !request.body.is_empty() {
            let shown: String = String::from_utf8_lossy(&request.body).chars().take(400).collect();
            let shown = match serde_json::from_slice::<Value>(&request.body) {
                Ok(mut value) if request.body.len() < 100_000 => {
                    self.mask.value(&mut value);
                    value.to_string()
                }
                _ => self.mask.text(&shown),
            };
            let shown: String = shown.chars().take(400).collect();
            writeln!(self.out, "> {}", shown.replace('\n', "\n> ")).unwrap();
        }
    }

    fn write_head(&mut self, response: &Response) {
        write!(self.out, "< {}", response.status.as_u16()).unwrap();
        if let Some(media_type) = response.header("content-type").filter(|t| t != "application/json") {
            write!(self.out, " {media_type}").unwrap();
        }
        self.out.push('\n');
        for name in HEADERS {
            if let Some(value) = response.header(name) {
                let value = self.mask.text(&value);
                writeln!(self.out, "< {name}: {value}").unwrap();
            }
        }
    }

    fn write_body(&mut self, response: &Response) {
        let text = match serde_json::from_slice::<Value>(&response.body) {
            Ok(mut value) if !value.is_number() => {
                self.prepare(&mut value);
                compact(&value)
            }
            _ => self.mask.text(&response.text()),
        };
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    fn prepare(&mut self, value: &mut Value) {
        if !self.with_managed_fields {
            without_managed_fields(value);
        }
        self.mask.value(value);
    }

    /// Compares with what upstream said.
    pub fn finish(self) {
        let mut settings = insta::Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.set_snapshot_path("../api/snapshots");
        settings.bind(|| insta::assert_snapshot!(self.name, self.out));
    }
}

fn without_managed_fields(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("managedFields");
            map.values_mut().for_each(without_managed_fields);
        }
        Value::Array(list) => list.iter_mut().for_each(without_managed_fields),
        _ => {}
    }
}
