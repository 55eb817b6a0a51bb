//! sublet-operator
