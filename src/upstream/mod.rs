//! The upstream room.
