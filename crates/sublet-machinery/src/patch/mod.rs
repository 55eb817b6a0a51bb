use crate::*; use serde_json::Value;
pub fn json_patch(live:&Value, ops:&Value)->Result<Value,ApiError>{ let p: ::json_patch::Patch = serde_json::from_value(ops.clone()).map_err(|e|ApiError::bad_request(e.to_string()))?; let mut v=live.clone(); ::json_patch::patch(&mut v,&p).map_err(|e|ApiError::bad_request(e.to_string()))?; Ok(v)}
pub fn merge_patch(live:&Value, p:&Value)->Value{ let mut v=live.clone(); ::json_patch::merge(&mut v,p); v}
pub mod strategic { use crate::*; use serde_json::Value; pub fn merge(live:&Value,p:&Value,_:SchemaNode)->Result<Value,ApiError>{Ok(super::merge_patch(live,p))} }
