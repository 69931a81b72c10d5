use coplace_interference::*;
use std::path::Path;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let percents: Vec<f64> = args[1].split(',').map(|p| p.parse().unwrap()).collect();
    let which: Vec<&str> = args[2].split(',').collect();
    let all: Vec<(String, Matrix)> = ["v100", "p100", "k80"]
        .map(|g| {
            (g.to_owned(), Matrix::read(Path::new(&format!("experiments/predictors/data/{g}.csv"))).unwrap())
        })
        .into();
    for (g, m) in &all {
        let mut k = Knowledge::of(m.clone());
        k.elsewhere = all.iter().filter(|o| o.0 != *g).map(|o| o.1.clone()).collect();
        for &pc in &percents {
            for w in &which {
                let t = std::time::Instant::now();
                let folds = judge::hidden(&k, 10, pc, 1);
                let p = by_name(w).unwrap();
                let half = folds.len() / 2;
                let (a, b) = std::thread::scope(|s| {
                    let f = &folds;
                    let h = s.spawn(move || {
                        f[..half].iter().fold(Judged::default(), |j, (x, y)| j.and(&judge::one(p, x, y)))
                    });
                    let b =
                        folds[half..].iter().fold(Judged::default(), |j, (x, y)| j.and(&judge::one(p, x, y)));
                    (h.join().unwrap(), b)
                });
                let j = a.and(&b);
                println!(
                    "{g:5} {pc:3}% {w:10} mean {:.4} <5% {:.3} <30% {:.3} covered {:.3} slowed: mean {:.4} <5% {:.3} <30% {:.3} silent {} {:.1}s",
                    j.mean_error().unwrap_or(9.),
                    j.within(0.05).unwrap_or(0.),
                    j.within(0.3).unwrap_or(0.),
                    j.covered().unwrap_or(0.),
                    j.slowed_by(1.1).mean_error().unwrap_or(9.),
                    j.slowed_by(1.1).within(0.05).unwrap_or(0.),
                    j.slowed_by(1.1).within(0.3).unwrap_or(0.),
                    j.silent,
                    t.elapsed().as_secs_f64()
                );
            }
        }
    }
}
