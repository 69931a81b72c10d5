//! Tests of the whole system through its one binary.

mod bad_input;
mod mix;
mod teaches;
mod world;
