//! Both tenants install a CRD of the same name; neither sees the other's, the host none.

use super::Story;
use crate::objects::{self, WIDGETS_BETA, WIDGETS_V1};
use anyhow::{Result, bail, ensure};
use serde_json::json;
use sublet_machinery::Reason;
use sublet_runtime::resources::CUSTOM_RESOURCE_DEFINITIONS;
use sublet_runtime::{Client, ClientError};

pub async fn definitions(story: &mut Story<'_>) -> Result<()> {
    let (alpha, beta) = (story.alpha()?, story.beta()?);
    alpha.create(&CUSTOM_RESOURCE_DEFINITIONS, &objects::widgets_alpha()).await?;
    beta.create(&CUSTOM_RESOURCE_DEFINITIONS, &objects::widgets_beta()).await?;
    alpha.create(&WIDGETS_V1, &objects::widget("v1", "ours", json!({"size": 3}))).await?;
    beta.create(&WIDGETS_BETA, &objects::widget("v1beta1", "ours", json!({"size": "large", "colour": "red"}))).await?;
    story.report.fact("both serve widgets.example.com at once, alpha with size: integer, beta with size: string and colour");

    refused(alpha, "v1", json!({"size": "large"}), "spec.size").await?;
    refused(beta, "v1", json!({"size": "large"}), "spec.colour").await?;
    story.report.fact("each refuses what its own schema forbids");

    let seen = beta.get(&WIDGETS_V1, "default", "ours").await?;
    ensure!(seen["apiVersion"] == "example.com/v1" && seen["spec"]["colour"] == "red", "beta's widget reads as {seen} in v1");
    let none = alpha.get(&WIDGETS_BETA, "default", "ours").await;
    ensure!(none.is_err_and(|e| e.is_not_found()), "alpha serves a version that only beta defined");
    let host = story.host.get_opt(&CUSTOM_RESOURCE_DEFINITIONS, "", "widgets.example.com").await?;
    ensure!(host.is_none(), "the host got the tenants' definition");
    story.report.fact("the host has no such definition");
    Ok(())
}

async fn refused(tenant: &Client, version: &str, spec: serde_json::Value, field: &str) -> Result<()> {
    match tenant.create(&WIDGETS_V1, &objects::widget(version, "wrong", spec)).await {
        Ok(_) => bail!("a widget without a valid {field} was accepted"),
        Err(ClientError::Api(error)) if error.reason == Reason::Invalid => {
            ensure!(error.causes.iter().any(|c| c.field == field), "the refusal names {:?}, not {field}", error.causes);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}
