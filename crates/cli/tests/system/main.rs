//! Tests of the whole system through its one binary.

mod bad_input;
mod lab;
mod lua;
mod mix;
mod offload;
mod page;
mod replay;
mod simulate;
mod sweep;
mod teaches;
// Its keys are pressed elsewhere.
#[allow(dead_code)]
#[path = "../terminal/mod.rs"]
mod terminal;
mod world;
