//! Programs from Debian packages that use OpenMP in ways of their own: what they compute beside others is what they
//! compute alone.

use std::fs;
use std::path::Path;
use std::time::Duration;

use coplace_tests::{Home, app, skipped_here, skipped_part};

/// A name, the program's file, and its arguments. Each prints its result.
const PROGRAMS: [(&str, &str, &str); 4] = [
    // A histogram for each thread, found by its number.
    ("median", "/usr/bin/gm", "convert image.ppm -median 3 ppm:-"),
    // Bare regions in which each thread works on the sequences that its number tells.
    ("clusters", "/usr/bin/sumaclust", "-p 2 sequences.fa"),
    // Bare regions that are dealt work by what the clock and the number of threads say.
    ("primes", "/usr/bin/primecount", "100000000000000"),
    // Dynamic loops and floating-point sums.
    ("tree", "/usr/bin/fasttreeMP", "-nt -quiet sequences.fa"),
];

/// Numbers that look random, the same ones each time (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % end
    }
}

/// A picture of noise, and a family of DNA sequences: each is an earlier one with some bases changed.
fn make_inputs(folder: &Path) {
    let mut random = Random(88_172_645_463_325_252);
    let mut picture = b"P6 320 240 255\n".to_vec();
    picture.extend((0..320 * 240 * 3).map(|_| random.below(256) as u8));
    fs::write(folder.join("image.ppm"), picture).expect("the home can be written");

    let mut family: Vec<Vec<u8>> = vec![(0..300).map(|_| b"ACGT"[random.below(4)]).collect()];
    while family.len() < 70 {
        let mut child = family[random.below(family.len())].clone();
        (0..12).for_each(|_| child[random.below(300)] = b"ACGT"[random.below(4)]);
        family.push(child);
    }
    let text =
        |(number, bases): (usize, &Vec<u8>)| format!(">s{number}\n{}\n", String::from_utf8_lossy(bases));
    let sequences: String = family.iter().enumerate().map(text).collect();
    fs::write(folder.join("sequences.fa"), sequences).expect("the home can be written");
}

#[test]
fn packaged_programs_compute_in_company_what_they_do_alone() {
    let (here, missing): (Vec<_>, Vec<_>) =
        PROGRAMS.iter().partition(|(_, file, _)| Path::new(file).exists());
    for (name, file, _) in missing {
        skipped_part(name, format!("there is no {file} (scripts/prepare test)"));
    }
    if here.is_empty() {
        return skipped_here("none of the programs is installed (scripts/prepare test)");
    }
    let home = Home::new();
    make_inputs(home.path());
    let mut expected = Vec::new();
    for (name, file, arguments) in &here {
        let mut lone = home.start(name, home.command(file).args(arguments.split(' ')));
        assert!(lone.ended_within(Duration::from_secs(100)).success(), "{name}: {}", lone.stderr());
        expected.push(fs::read(home.path().join("out").join(format!("{name}.out"))).expect("it printed"));
        assert!(!expected.last().expect("pushed").is_empty(), "{name} printed nothing");
    }

    // They come one after another, so that each has company that changes, and so do two of ours: one whose
    // teams may be resized, and one whose teams may not.
    let mut mix = String::new();
    let mut add = |name: &str, command: &str, arrive_s: f64| {
        mix += &format!("[[program]]\nname = '{name}'\ncommand = '{command}'\narrive_s = {arrive_s}\n");
    };
    for (at, (name, file, arguments)) in here.iter().enumerate() {
        add(name, &format!("{file} {arguments}"), at as f64 * 0.3);
    }
    add("resizable", &format!("{} --size S --scale 0.3", app("regions")), 0.5);
    add("rigid", &format!("{} --size S --scale 0.3", app("rigid")), 1.0);
    let mix = home.mix(&mix, &[]);
    assert!(mix.status.success(), "{}; {}", mix.stderr, mix.json);
    for ((name, ..), expected) in here.iter().zip(&expected) {
        let came_to = fs::read(home.path().join("out").join(format!("{name}.out"))).expect("it printed");
        assert!(came_to == *expected, "{name} has another result in company ({} bytes)", came_to.len());
    }
    for name in ["resizable", "rigid"] {
        assert_eq!(mix.program(name)["verified"], true, "{}", mix.json);
    }
    home.is_left_clean();
}
