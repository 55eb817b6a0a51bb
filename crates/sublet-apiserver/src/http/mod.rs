//! The HTTP face of the server: what a request asks for, how its body is read, how answers are written.

pub mod body;
pub mod negotiate;
pub mod query;
pub mod request_info;
pub mod respond;
pub mod websocket;

pub use body::Body;
pub use query::Query;
pub use request_info::RequestInfo;
pub use respond::HttpResponse;

pub use crate::server::is_upgrade;
