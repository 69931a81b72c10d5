//! Classes of programs by what flows into their caches (Haritatos, Nikas, Goumas, Koziris: A
//! Resource-Centric Application Classification Approach, COSH 2016, section 2).
//!
//! N keeps to its cores and private caches, C lives from the last-level cache, S streams past all of
//! them. The paper's tree, with the data that flow into L1, L2 and the last-level cache:
//!
//! 1. Hardly anything flows into L1: N.
//! 2. No level has reuse, none lets out twice as much as it takes in: S.
//! 3. More reuse in the private caches than in the last-level cache: N; else C.
//!
//! **What had to be assumed.** The paper prints no threshold for step 1. Its Table 2 allows any between
//! 3.0 and 8.8 GB/s for half of its machine (four cores): the three programs below are the last of the
//! table, whose class is N. We take a share of that for each thread ([`QUIET_BYTES_PER_S`]).
//!
//! **Where the paper contradicts itself.** The class column of Table 2 is damaged in the text we have; by
//! the order of its rows and the letters that are left, the first five are S, the next eleven C and the
//! last three N. Steps 1 and 2 give exactly these S and N. Step 3, as printed, makes N of ten of the
//! eleven C (all but syr2k), among them those that the table itself calls tiled for the last-level cache
//! (LU, Floyd-Warshall); and without step 1 it makes C of the tiled matrix product. The table follows if
//! step 3 says C always. `the_rule_against_table_2` has it row by row. Here the rule is used as printed:
//! what it says of programs whose data fit in L2 is what the classes mean.

pub use interference::profile::Class;
use reuse::{LINE_BYTES, Report};
use serde::{Deserialize, Serialize};

/// Below this flow into L1 a thread is at rest: the middle of what Table 2 allows, for one of four cores.
pub const QUIET_BYTES_PER_S: f64 = 5.2e9 / 4.0;
/// A cache has reuse that lets out so many times what it takes in (section 2.2).
pub const REUSE: f64 = 2.0;

/// What flows into each level, in bytes a second, of all threads of a program.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flows {
    /// From beyond the L1 data caches: from L2, the last-level cache or memory.
    pub into_l1: f64,
    /// From beyond the L2 caches, whether it stays in them or not.
    pub into_l2: f64,
    /// From beyond the last-level cache: from memory, or from caches that are not its own.
    pub into_llc: f64,
}

impl Flows {
    /// From the flow into the last-level cache and the reuse factors, as papers print them.
    pub fn from_factors(into_llc: f64, llc_reuse: f64, l2_reuse: f64) -> Flows {
        let into_l2 = into_llc * llc_reuse;
        Flows { into_l1: into_l2 * l2_reuse, into_l2, into_llc }
    }

    /// From reuse distances and the time of a native run: what caches of these sizes in bytes (L1 and L2
    /// of each thread, the last level of all) would miss.
    pub fn of_report(report: &Report, native_seconds: f64, sizes: [u64; 3]) -> Option<Flows> {
        let program = &report.program_part()?.histogram;
        let private = |bytes: u64| {
            let own = report.threads().map(|part| part.histogram.misses(bytes / LINE_BYTES)).sum::<f64>();
            // Without histograms of its own, a thread's is the program's.
            if report.threads().next().is_some() { own } else { program.misses(bytes / LINE_BYTES) }
        };
        let per_s = |misses: f64| misses * LINE_BYTES as f64 / native_seconds;
        Some(Flows {
            into_l1: per_s(private(sizes[0])),
            into_l2: per_s(private(sizes[1])),
            into_llc: per_s(program.misses(sizes[2] / LINE_BYTES)),
        })
    }

    /// How many times what L2 takes in it lets out.
    pub fn l2_reuse(&self) -> f64 {
        ratio(self.into_l1, self.into_l2)
    }

    /// The same of the last-level cache. Both are 1 where nothing flows, and infinite where it only lets out.
    pub fn llc_reuse(&self) -> f64 {
        ratio(self.into_l2, self.into_llc)
    }

    /// The class, by the tree as printed; `quiet` is the flow into L1 below which a program is at rest.
    pub fn class(&self, quiet: f64) -> Class {
        if self.into_l1 < quiet {
            Class::N
        } else if self.l2_reuse() < REUSE && self.llc_reuse() < REUSE {
            Class::S
        } else if self.l2_reuse() > self.llc_reuse() {
            Class::N
        } else {
            Class::C
        }
    }
}

/// Where nothing flows in, whatever flows out is reuse; where nothing flows at all there is none.
fn ratio(out: f64, into: f64) -> f64 {
    match out {
        _ if into > 0.0 => out / into,
        0.0 => 1.0,
        _ => f64::INFINITY,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use reuse::Scope;

    use super::*;

    /// Table 2: name, GB/s into the last-level cache, its reuse, that of L2, and the class that the order
    /// of the rows says.
    pub(crate) const TABLE_2: [(&str, f64, f64, f64, Class); 19] = [
        ("jacobi_l", 10.321, 1.50, 1.02, Class::S),
        ("stream", 11.646, 1.00, 1.03, Class::S),
        ("bt", 8.566, 0.97, 1.36, Class::S),
        ("fw", 7.468, 1.02, 1.16, Class::S),
        ("Dynprog", 8.220, 0.98, 1.54, Class::S),
        ("Mvt 1000", 0.006, 4.21, 565.29, Class::C),
        ("Mvt 6000", 2.274, 0.92, 8.31, Class::C),
        ("atax", 2.426, 0.82, 8.61, Class::C),
        ("cg", 5.955, 1.37, 4.38, Class::C),
        ("syr2k", 5.883, 2.07, 2.00, Class::C),
        ("gemver", 2.873, 0.82, 7.23, Class::C),
        ("cholesky", 0.156, 0.85, 195.56, Class::C),
        ("pchase", 0.135, 1.00, 222.01, Class::C),
        ("lu_t", 0.009, 8.67, 178.91, Class::C),
        ("jacobi_s", 0.534, 1.15, 35.17, Class::C),
        ("fw_t", 0.063, 9.92, 34.45, Class::C),
        // Printed as 0.000: at most half of the last digit.
        ("ep", 0.0005, 0.97, 2644.41, Class::N),
        ("mm_t", 0.030, 17.82, 5.68, Class::N),
        ("blackscholes", 0.186, 0.65, 5.63, Class::N),
    ];

    /// Of the half of the machine that each program had.
    pub(crate) const QUIET: f64 = 4.0 * QUIET_BYTES_PER_S;

    pub(crate) fn flows(row: &(&str, f64, f64, f64, Class)) -> Flows {
        Flows::from_factors(row.1 * 1e9, row.2, row.3)
    }

    #[test]
    fn the_rule_against_table_2() {
        let contradicted: Vec<&str> =
            TABLE_2.iter().filter(|row| flows(row).class(QUIET) != row.4).map(|row| row.0).collect();
        let expected = [
            "Mvt 1000", "Mvt 6000", "atax", "cg", "gemver", "cholesky", "pchase", "lu_t", "jacobi_s", "fw_t",
        ];
        assert_eq!(contradicted, expected);
        // Each of them is C in the table and N by step 3.
        for row in TABLE_2.iter().filter(|row| contradicted.contains(&row.0)) {
            assert_eq!((row.4, flows(row).class(QUIET)), (Class::C, Class::N), "{}", row.0);
        }
        // With C whenever there is reuse, every row comes out.
        for row in &TABLE_2 {
            let class = match flows(row).class(QUIET) {
                Class::N if flows(row).into_l1 >= QUIET => Class::C,
                class => class,
            };
            assert_eq!(class, row.4, "{}", row.0);
        }
        // Without step 1, the matrix product would be C.
        assert_eq!(flows(&TABLE_2[17]).class(0.0), Class::C);
    }

    #[test]
    fn any_threshold_above_the_last_three_rows_classifies_alike() {
        let into_l1 = |name: &str| flows(TABLE_2.iter().find(|row| row.0 == name).unwrap()).into_l1;
        let (quietest, busiest) = (into_l1("fw"), into_l1("mm_t"));
        for row in &TABLE_2 {
            assert!(if row.4 == Class::N {
                flows(row).into_l1 <= busiest
            } else {
                flows(row).into_l1 >= quietest
            });
        }
        assert!(busiest < 3.1e9 && quietest > 8.8e9 && busiest < QUIET && QUIET < quietest);
    }

    #[test]
    fn histograms_give_the_computed_class() {
        // 10^8 accesses a second of one thread that go round so many lines; L1 32 KiB, L2 1 MiB, LLC 32 MiB.
        let class = |lines: u64| {
            let text = format!(
                "coplace reuse 1\nended exit 0\nhistogram program 100000000\ngroup\nbin {} 100000000\n\
                 histogram thread 1 100000000\ngroup\nbin {0} 100000000\nend\n",
                reuse::Histogram::bin_of(lines)
            );
            let report = Report::parse(&text).unwrap();
            assert!(report.part(Scope::Thread(1)).is_some());
            Flows::of_report(&report, 1.0, [32 << 10, 1 << 20, 32 << 20]).unwrap().class(QUIET_BYTES_PER_S)
        };
        assert_eq!([100, 5_000, 100_000, 1_000_000].map(class), [Class::N, Class::N, Class::C, Class::S]);
    }
}
