//! sublet-host
