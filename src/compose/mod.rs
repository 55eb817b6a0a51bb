//! Who runs in which process.

pub mod api_server;
pub mod controllers;
pub mod streams;
