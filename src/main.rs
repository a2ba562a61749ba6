//! The program: flags → cli → exit code.

fn main() {}
