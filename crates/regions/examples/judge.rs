//! What is found in programs and libraries: `cargo run -p coplace-regions --example judge -- FILE …`.

fn main() -> std::io::Result<()> {
    for path in std::env::args().skip(1) {
        println!("{path}: {:?}", coplace_regions::analyse(&std::fs::read(&path)?));
    }
    Ok(())
}
