//! sublet-controllers
