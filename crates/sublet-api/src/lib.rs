//! sublet-api
