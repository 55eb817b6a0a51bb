//! Two servers that have nothing to do with each other: what one gives out is worth nothing to the other.

use crate::harness::{Client, Credential, Request, Server, certificates};
use serde_json::json;
use tempfile::TempDir;

const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default";

async fn token(client: &Client) -> String {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    client.send(&Request::post("/api/v1/namespaces/default/serviceaccounts", &account)).await;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = client.send(&Request::post(format!("{ACCOUNT}/token"), &request)).await;
    assert_eq!(issued.status.as_u16(), 201, "{}", issued.text());
    issued.str("/status/token")
}

#[tokio::test]
async fn credentials_of_another_server() {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let arguments = ["apiserver", "--store", "memory", "--controllers", "", "--dir"];
    let [own, other] = folders.each_ref().map(|folder| Server::start(folder.path(), &arguments));
    let (client, other_client) = (own.client(), other.client());
    let whoami = Request::post(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}),
    );
    let own_token = token(&client).await;
    let answer = client.send(&whoami.clone().token(&own_token)).await;
    assert_eq!(answer.str("/status/userInfo/username"), "system:serviceaccount:default:default");
    // The same account exists there, and the token is still not of this server.
    let foreign_token = token(&other_client).await;
    let foreign_admin = certificates::issue(&other, "admin", "system:masters");
    for credential in [Credential::Token(foreign_token), Credential::Certificate(foreign_admin)] {
        for path in ["/api/v1/secrets", "/apis", "/version", "/readyz"] {
            let answer = client.send(&Request::get(path).with(credential.clone())).await;
            assert_eq!((answer.status.as_u16(), answer.str("/reason")), (401, "Unauthorized".into()), "{path}");
        }
    }
    // Nor does anybody take one server for the other.
    let misled = client.at(&other_client.authority).try_send(&Request::get("/readyz")).await;
    assert!(misled.is_err(), "{misled:?}");
}
