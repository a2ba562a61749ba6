//! The daemon room.
