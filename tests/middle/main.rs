//! The middle boundary: the real gateway between scripted hosts and scripted servers, all in memory, on a clock that
//! is paused and jumps to whatever is waited for next.
//!
//! What takes minutes, or must be exact to the tick, or needs a storm, is tested here; what needs processes is in
//! `tests/it`. `world.rs` builds the gateway, `end.rs` is a peer on either side.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on shall stop there")]

mod audiences;
mod audit;
mod between;
mod bounds;
mod bridge;
mod calls;
mod cancel;
mod cases;
#[path = "../schema/checker.rs"]
#[allow(dead_code, reason = "other boundaries use the rest")]
mod checker;
mod conditions;
mod end;
mod full;
mod hosts;
mod kinds;
mod leases;
mod life;
mod lists;
mod pins;
mod policy;
mod progress;
mod reload;
mod rules;
mod search;
mod streams;
mod tasks;
mod told;
mod whose;
mod world;
