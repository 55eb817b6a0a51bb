//! sublet-syncer
