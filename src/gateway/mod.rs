//! The gateway room.
