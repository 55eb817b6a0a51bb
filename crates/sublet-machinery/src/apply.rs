use crate::*;
use serde_json::Value;
use std::borrow::Cow;
pub struct Stamp<'a> {
    pub manager: &'a str,
    pub subresource: &'a str,
    pub api_version: Cow<'a, str>,
    pub now: &'a str,
}
pub struct ApplyOptions<'a> {
    pub stamp: Stamp<'a>,
    pub force: bool,
    pub reset_fields: &'a [String],
}
pub struct Applied {
    pub object: Value,
    pub changed: bool,
}
pub fn apply(live: Option<&Value>, c: &Value, _: SchemaNode, _: &ApplyOptions) -> Result<Applied, ApiError> {
    Ok(Applied {
        object: live.map_or(c.clone(), |l| {
            let mut v = l.clone();
            crate::patch::merge_patch::merge(&mut v, c);
            v
        }),
        changed: true,
    })
}
pub fn track_update(_: Option<&Value>, _: &mut Value, _: SchemaNode, _: &Stamp) -> Result<(), ApiError> {
    Ok(())
}
