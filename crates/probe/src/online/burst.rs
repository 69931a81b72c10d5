//! One burst: the program's pace before, during and after a short run of DistGen on another CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use linux::page::{Owner, Page, PageDir};
use reuse::LINE_BYTES;
use serde::{Deserialize, Serialize};

use super::Company;
use crate::distgen::{DistGen, Mixture, Settings, Spent, StartError, Width};
use crate::slowdown::Round;

/// How long a pace is taken, at least and at most.
const WINDOW: Duration = Duration::from_millis(50);
const LONGEST_WINDOW: Duration = Duration::from_millis(250);
/// Fewer regions in a window tell no pace.
const LEAST_REGIONS: u64 = 20;
/// How often it is looked whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The probe's CPU was its own for at least this share of its time; otherwise it says nothing.
const OWN: f64 = 0.9;
/// A program whose pace before and after differs by more than this factor has changed by itself.
const STEADY: f64 = 1.2;

/// What one burst found. It is kept as it is, raw.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Of the probe, which has one thread.
    pub footprint_bytes: u64,
    /// Parallel regions a second that the program entered: before, during and after the probe. None where it shows
    /// no regions, or too few of them.
    pub regions_per_s: Option<[f64; 3]>,
    /// Lines that the probe read, as bytes a second.
    pub probe_bytes_per_s: f64,
    /// The same while no program ran, where that is known.
    pub probe_alone_bytes_per_s: Option<f64>,
    /// CPU time of the probe.
    pub cost_ns: u64,
}

impl Burst {
    /// As a comparison like those of whole runs; its seconds are those of a region. None where a side is missing, or
    /// where the program went another pace after the probe than before.
    pub fn round(&self) -> Option<Round> {
        let [before, during, after] = self.regions_per_s?;
        let steady = before <= STEADY * after && after <= STEADY * before;
        let round = Round {
            footprint_bytes: self.footprint_bytes,
            alone_s: 2.0 / (before + after),
            beside_s: 1.0 / during,
            probe_alone_bytes_per_s: self.probe_alone_bytes_per_s?,
            probe_beside_bytes_per_s: self.probe_bytes_per_s,
            // Its CPUs are not ours to measure between.
            latency: None,
        };
        (steady && during > 0.0).then_some(round)
    }
}

/// Why there is no burst.
#[derive(Debug)]
pub enum Nothing {
    /// It was in somebody's way.
    Withdrawn,
    /// Others had the probe's CPU.
    Disturbed,
    /// It would have cost more than it may.
    TooDear,
    Failed(StartError),
}

/// What is to be done.
pub struct Order {
    pub cpu: u32,
    pub footprint_bytes: u64,
    /// The probe ends when it has taken so long.
    pub most: Duration,
    pub width: Option<Width>,
    pub stop: Arc<AtomicBool>,
}

/// What came of it, what it cost, and the width that the probe read with.
pub struct Made {
    pub result: Result<Burst, Nothing>,
    pub cost_ns: u64,
    pub width: Option<Width>,
}

/// Sleeps, unless told to stop.
fn pass(time: Duration, stop: &AtomicBool) -> Result<(), Nothing> {
    let until = Instant::now() + time;
    loop {
        if stop.load(Relaxed) {
            return Err(Nothing::Withdrawn);
        }
        match until.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => thread::sleep(left.min(POLL_INTERVAL)),
            _ => return Ok(()),
        }
    }
}

/// The pages of a program's processes.
struct Pages(Vec<Page>);

impl Pages {
    fn of(company: Option<&Company>) -> Pages {
        let Some(company) = company else { return Pages(Vec::new()) };
        let directory = PageDir::open_of(&company.record.pages, company.record.uid);
        let all = directory.pages().unwrap_or_default();
        // A directory of pages that it brought may serve other programs too.
        let record = &company.record;
        let process =
            linux::Process { pid: record.process.pid, start_time_ticks: record.process.start_time_ticks };
        let is_its = |page: &Page| page.owner(&[process], &linux::Root::live()) == Owner::Is(process);
        let own = |page: &Page| !record.terms.attached || is_its(page);
        Pages(all.into_iter().map(|(_, page)| page).filter(own).collect())
    }

    fn regions(&self) -> u64 {
        self.0.iter().map(Page::regions).sum()
    }

    /// Regions a second over a window.
    fn pace(&self, window: Duration, stop: &AtomicBool) -> Result<(u64, f64), Nothing> {
        let (began, regions) = (Instant::now(), self.regions());
        pass(window, stop)?;
        let entered = self.regions().saturating_sub(regions);
        Ok((entered, entered as f64 / began.elapsed().as_secs_f64()))
    }
}

/// Does it. `alone`: what the probe reads while no program runs.
pub fn make(order: &Order, company: Option<&Company>, alone: Option<f64>) -> Made {
    let pages = Pages::of(company);
    let mut made = Made { result: Err(Nothing::Withdrawn), cost_ns: 0, width: order.width };
    let before = match before(&pages, &order.stop) {
        Ok(before) => before,
        Err(nothing) => return Made { result: Err(nothing), ..made },
    };
    let window = before.map_or(WINDOW, |(window, _)| window);
    let during = during(order, &pages, window, &mut made);
    made.result = during.and_then(|(pace, probe_bytes_per_s)| {
        let regions_per_s = match before {
            Some((_, before)) => Some([before, pace, pages.pace(window, &order.stop)?.1]),
            None => None,
        };
        Ok(Burst {
            footprint_bytes: order.footprint_bytes,
            regions_per_s,
            probe_bytes_per_s,
            probe_alone_bytes_per_s: alone,
            cost_ns: made.cost_ns,
        })
    });
    made
}

/// A window that is long enough for the program's pace, and the pace; None where no window is.
fn before(pages: &Pages, stop: &AtomicBool) -> Result<Option<(Duration, f64)>, Nothing> {
    if pages.0.is_empty() {
        return Ok(None);
    }
    for window in [WINDOW, LONGEST_WINDOW] {
        let (entered, pace) = pages.pace(window, stop)?;
        if entered >= LEAST_REGIONS {
            return Ok(Some((window, pace)));
        }
    }
    Ok(None)
}

/// The program's pace and the probe's bandwidth beside each other.
fn during(order: &Order, pages: &Pages, window: Duration, made: &mut Made) -> Result<(f64, f64), Nothing> {
    let began = Instant::now();
    let lines = (order.footprint_bytes / LINE_BYTES).max(1);
    let started = DistGen::start(&Settings {
        cpus: vec![order.cpu],
        width: order.width,
        idle_time: true,
        stop: Some(Arc::clone(&order.stop)),
        ..Settings::new(Mixture::single(lines))
    });
    let mut probe = match started {
        Ok(probe) => probe,
        Err(StartError::Stopped(spent)) => {
            made.cost_ns = spent.cpu_ns;
            return Err(Nothing::Withdrawn);
        }
        Err(error) => {
            // Its thread is gone, and it cannot have had more than this.
            made.cost_ns = began.elapsed().as_nanos() as u64;
            return Err(Nothing::Failed(error));
        }
    };
    made.width = Some(probe.width());
    let mut measure = || {
        // Its first pass brings the memory into the caches.
        let mut read = 0;
        while read < lines {
            pass(POLL_INTERVAL, &order.stop)?;
            if began.elapsed() >= order.most {
                return Err(Nothing::TooDear);
            }
            read += probe.interval().accesses;
        }
        let left = order.most.saturating_sub(began.elapsed());
        if left < window {
            return Err(Nothing::TooDear);
        }
        probe.interval();
        let (_, pace) = pages.pace(window, &order.stop)?;
        Ok((pace, probe.interval().bytes_per_s()))
    };
    let measured = measure();
    let withdrawn = order.stop.load(Relaxed);
    let spent = probe.finish();
    made.cost_ns = spent.cpu_ns;
    judged(measured, withdrawn, &spent)
}

/// What was measured, unless the probe was in the way at the end, or others had its CPU.
fn judged<T>(measured: Result<T, Nothing>, withdrawn: bool, spent: &Spent) -> Result<T, Nothing> {
    match measured {
        Ok(_) if withdrawn => Err(Nothing::Withdrawn),
        Ok(_) if (spent.cpu_ns as f64) < OWN * spent.wall_ns as f64 => Err(Nothing::Disturbed),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn burst(regions_per_s: Option<[f64; 3]>, alone: Option<f64>) -> Burst {
        Burst {
            footprint_bytes: 64,
            regions_per_s,
            probe_bytes_per_s: 5e9,
            probe_alone_bytes_per_s: alone,
            cost_ns: 1,
        }
    }

    #[test]
    fn a_burst_with_both_sides_known_at_steady_pace_is_a_round() {
        let round = burst(Some([1050.0, 500.0, 950.0]), Some(1e10)).round().unwrap();
        assert_eq!((round.alone_s, round.beside_s), (0.001, 0.002));
        assert_eq!(round.probe_alone_bytes_per_s / round.probe_beside_bytes_per_s, 2.0);
        assert_eq!(burst(None, Some(1e10)).round(), None);
        assert_eq!(burst(Some([1000.0, 500.0, 1000.0]), None).round(), None);
        assert_eq!(burst(Some([1000.0, 500.0, 700.0]), Some(1e10)).round(), None);
        assert_eq!(burst(Some([1000.0, 0.0, 1000.0]), Some(1e10)).round(), None);
    }

    fn order(stop: &Arc<AtomicBool>, most: Duration) -> Order {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let cpu = (0..1024).find(|&cpu| allowed.is_set(cpu)).unwrap() as u32;
        Order { cpu, footprint_bytes: 1 << 20, most, width: None, stop: Arc::clone(stop) }
    }

    #[test]
    fn the_probe_alone_has_a_bandwidth_unless_others_ran() {
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..10 {
            let made = make(&order(&stop, Duration::from_secs(2)), None, None);
            assert!((1..2_500_000_000).contains(&made.cost_ns), "{} ns", made.cost_ns);
            match made.result {
                Ok(burst) => {
                    assert!(burst.probe_bytes_per_s > 1e8 && burst.regions_per_s.is_none(), "{burst:?}");
                    assert_eq!(burst.cost_ns, made.cost_ns);
                }
                // It runs in idle time only, and a busy machine may have none.
                Err(Nothing::Disturbed | Nothing::TooDear) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_measurement_without_the_cpu_is_no_evidence() {
        let spent = |cpu_ns| Spent { cpu_ns, wall_ns: 100 };
        assert!(matches!(judged(Ok(1), false, &spent(95)), Ok(1)));
        assert!(matches!(judged(Ok(1), false, &spent(80)), Err(Nothing::Disturbed)));
        assert!(matches!(judged(Ok(1), true, &spent(95)), Err(Nothing::Withdrawn)));
        assert!(matches!(judged::<u8>(Err(Nothing::TooDear), true, &spent(80)), Err(Nothing::TooDear)));
    }

    #[test]
    fn a_burst_ends_when_in_the_way_or_long_enough() {
        let stop = Arc::new(AtomicBool::new(true));
        let made = make(&order(&stop, Duration::from_secs(2)), None, None);
        assert!(matches!(made.result, Err(Nothing::Withdrawn)));
        let stop = Arc::new(AtomicBool::new(false));
        let later = Arc::clone(&stop);
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            later.store(true, Relaxed);
        });
        // It would take many times as long.
        let long = Order { footprint_bytes: 512 << 20, ..order(&stop, Duration::from_secs(60)) };
        assert!(matches!(make(&long, None, None).result, Err(Nothing::Withdrawn)));
        other.join().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let began = Instant::now();
        let made = make(&order(&stop, Duration::from_millis(5)), None, None);
        assert!(matches!(made.result, Err(Nothing::TooDear)), "{:?}", made.result);
        assert!((1..1_000_000_000).contains(&made.cost_ns) && began.elapsed() < Duration::from_secs(60));
    }
}
