//! The transport room.
