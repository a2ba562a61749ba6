//! The downstream room.
