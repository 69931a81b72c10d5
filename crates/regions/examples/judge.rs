fn main() {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path).expect("a file");
        println!("{path}: {:?}", coplace_regions::analyse(&bytes));
    }
}
