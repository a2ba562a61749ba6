//! Pins: what was reviewed of each server, and what is told apart from it (threat model §3–7).
//!
//! Definitions have hashes ([`facet`], of a [`canonical`] text); the [`lock`] has the reviewed ones, and how their server is
//! started ([`launch`], [`artifact`], installed packages: [`managed`], their lists: [`listed`]); [`drift`] compares. What was
//! [`observed`] is kept for who reviews, and [`lint`] tells what to look at. Pure but for the files that `lock`, `artifact`, `managed` and `observed` name; knows no connection, no host and no
//! clock.

pub mod artifact;
pub mod canonical;
pub mod drift;
pub mod facet;
pub mod launch;
pub mod lint;
pub mod listed;
pub mod lock;
pub mod managed;
pub mod observed;
pub mod review;
