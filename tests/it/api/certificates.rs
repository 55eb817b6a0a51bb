//! Client certificates: of the server's authority, of strangers, over.

use crate::harness::{Credential, Request, Transcript, certificates};
use serde_json::json;

#[tokio::test]
async fn client_certificates() {
    let mut t = Transcript::start("client_certificates");
    let whoami = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let ask = |credential: Credential| Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &whoami).with(credential);
    let good = certificates::issue(&t.server, "carol", "ops");
    t.send(ask(Credential::Certificate(good.clone()))).await;
    t.send(Request::get("/api/v1/secrets").with(Credential::Certificate(good.clone()))).await;
    t.note("A certificate that is good comes before a token");
    t.send_for(ask(Credential::Both(good.clone(), "alice-token".into())), &["/status/userInfo/username"]).await;
    t.send_for(ask(Credential::Both(good, "rubbish".into())), &["/status/userInfo/username"]).await;
    let bad = [
        ("of an unknown authority", certificates::of_a_stranger("admin", "system:masters")),
        ("over", certificates::expired(&t.server, "admin", "system:masters")),
        ("for servers", certificates::for_servers(&t.server, "admin", "system:masters")),
        ("of nobody", certificates::issue(&t.server, "", "system:masters")),
    ];
    for (what, certificate) in bad {
        t.note(what);
        for path in ["/api/v1/namespaces", "/version", "/healthz"] {
            t.send_for(Request::get(path).with(Credential::Certificate(certificate.clone())), &["/kind"]).await;
        }
        t.send_for(ask(Credential::Both(certificate.clone(), "alice-token".into())), &["/status/userInfo/username"]).await;
        t.send_for(ask(Credential::Both(certificate, "rubbish".into())), &[]).await;
    }
    t.finish();
}
