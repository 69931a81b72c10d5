"""The frame of an experiment: options, rounds, figures, the result's file."""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import machine, stats
from .programs import APPS, COPLACE, NOBODY, TOP, Bench, Program


#: Time of our programs with two threads on two CPUs, over that with one thread.
TWO_THREADS = 0.55


class Failed(Exception):
    """The experiment itself could not be carried out. `output`: all that a command printed."""

    def __init__(self, why, output=""):
        super().__init__(why)
        self.output = output


def bubbles_examples():
    """Where the examples of the bubbles library are, built."""
    done = subprocess.run([TOP / "scripts/bubbles-examples"], capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"the examples of bubbles cannot be built: {done.stderr.strip()}")
    return Path(done.stdout.strip())


class Experiment:
    """`folder` is where its `run` lies. `takes` tells people how long the full run lasts."""

    def __init__(self, run, takes, rounds=15, quick_rounds=3, kind="measured", options=None):
        self.folder = Path(run).resolve().parent
        self.name = self.folder.name
        parser = argparse.ArgumentParser(prog=f"experiments/{self.name}/run",
                                         description=f"The full run takes about {takes} on two cores.")
        parser.add_argument("--quick", action="store_true", help="less than a minute: few rounds, short programs")
        parser.add_argument("--seed", type=int, default=1, help="orders inside the rounds (default 1)")
        parser.add_argument("--rounds", type=int, help=f"default {rounds}, quick {quick_rounds}")
        parser.add_argument("--out", type=Path, help="where to write the result (default: result.json here; "
                                                     "nowhere with --quick)")
        parser.add_argument("--verbose", action="store_true", help="tell every sample")
        for flag, text in (options or {}).items():
            parser.add_argument(flag, action="store_true", help=text)
        self.args = parser.parse_args()
        self.quick, self.seed, self.kind, self.takes = self.args.quick, self.args.seed, kind, takes
        self.round_count = self.args.rounds or (quick_rounds if self.quick else rounds)
        self.rng = random.Random(self.seed)
        self.figures, self.notes, self.failures = [], [], []
        self.bench = None

    # Running

    def run(self, measure):
        """Runs `measure(self)` and ends this process: 0, or 1 if the experiment itself failed."""
        for binary in (COPLACE, APPS / "regions"):
            if not binary.exists():
                sys.exit(f"{self.name}: {binary} is missing; run `make` first")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)
        here = machine.describe()
        self.say(f"{self.name}: {'quick, below a minute' if self.quick else 'about ' + self.takes}; "
                 f"{machine.words(here)}")
        directory = Path(tempfile.mkdtemp(prefix="coplace-"))
        directory.chmod(0o711)
        self.bench = Bench(directory)
        noise = machine.Noise()
        status = 1
        try:
            measure(self)
            self._close(here, noise.so_far())
            status = 0
        except Failed as failure:
            self.say(f"{self.name}: the experiment failed: {failure}")
        except KeyboardInterrupt:
            self.say(f"{self.name}: interrupted; nothing was written")
            status = 130
        finally:
            # A second Ctrl-C must not keep us from cleaning up.
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            # Guards notice within moments that there is nothing left to guard.
            patience = time.monotonic() + 1
            while status == 0 and self.bench.processes() and time.monotonic() < patience:
                time.sleep(0.05)
            left = self.bench.sweep()
            if left:
                self.say(f"{self.name}: had to be ended: " + "; ".join(left.values()))
            shutil.rmtree(directory, ignore_errors=True)
            if status and self.figures:
                self.say(f"{self.name}: measured before it ended, written nowhere:")
                self.say(table(self.figures))
        sys.exit(status)

    def rounds(self, ways, every=None, count=None):
        """Each way once a round, in an order that the seed shuffles. `ways` maps names to functions
        that return a sample, or None where there is none; `every` maps a name to n where a way
        takes part in every nth round only; `count` rounds instead of the experiment's own number.
        Returns the samples of each round: [{name: sample}]."""
        rounds, began, count = [], time.monotonic(), count or self.round_count
        for number in range(count):
            order = [name for name in ways if number % (every or {}).get(name, 1) == 0]
            self.rng.shuffle(order)
            samples = {}
            for name in order:
                samples[name] = ways[name]()
                if self.args.verbose:
                    self.say(f"  round {number + 1}, {name}: {samples[name]}")
            rounds.append({name: sample for name, sample in samples.items() if sample is not None})
            self.progress(f"round {number + 1} of {count}, {time.monotonic() - began:.0f} s")
        self.progress("")
        return rounds

    def length(self, make, probe):
        """What lengths are calibrated by: (fixed, slope) such that `make(amount)` alone takes about
        fixed + slope * amount seconds on two CPUs. Found from the CPU time of one thread, which a
        busy machine hardly changes, at `probe` and at half of it."""
        costs = {}
        for amount in (probe / 2, probe):
            tries = [self.bench.alone(make(amount), {"OMP_NUM_THREADS": "1"}, timeout=120)[1] for _ in range(2)]
            if not all(one and one.verified for one in tries):
                raise Failed(f"{make(amount).name} alone did not end VERIFIED")
            costs[amount] = min(one.cpu_s for one in tries)
        slope = max(1e-9, (costs[probe] - costs[probe / 2]) / (probe / 2))
        fixed = max(0.0, costs[probe] - slope * probe)
        return fixed * TWO_THREADS, slope * TWO_THREADS

    def mix(self, programs, policy, **how):
        """A mix whose programs must all be VERIFIED; None (and a note) where they are not."""
        mix = self.bench.mix(programs, policy, **how)
        if mix.verified:
            return mix
        self.failed(f"{policy}: {mix.why()}")
        return None

    def mechanisms(self):
        """The ways of taking turns that this machine offers, and why the others are not there."""
        offered, missing = [], {}
        for turns in ("freeze", "idle", "stop"):
            tiny = [Program("regions", "--size", "T", name=name) for name in ("a", "b")]
            mix = self.bench.mix(tiny, "CO", turns=turns, settings={"allowed_widths": "[2]"}, timeout=60)
            if mix.verified:
                offered.append(turns)
            elif "was asked for" in mix.stderr:
                missing[turns] = mix.stderr.strip()
                self.note(f"turns by {turns} are not to be had here: {missing[turns]}")
            else:
                raise Failed(f"turns by {turns}: {mix.why()}")
        return offered, missing

    def benchmarks(self, package, bench, glob):
        """Criterion's medians of one benchmark, in ns with their 95% intervals, by the names of group and case;
        those of an earlier run with --quick. `glob` says which groups."""
        if not self.quick:
            command = ["cargo", "bench", "--quiet", "-p", package, "--bench", bench]
            out = subprocess.run(command, cwd=TOP, capture_output=True, text=True)
            if out.returncode:
                raise Failed(f"{' '.join(command)}: {out.stderr[-500:]}")
        found, folder = {}, TOP / "target/criterion"
        for path in sorted(folder.glob(f"{glob}/**/new/estimates.json")):
            median = json.loads(path.read_text())["median"]
            bounds = median["confidence_interval"]
            found[path.relative_to(folder).parts[:-2]] = (median["point_estimate"], bounds["lower_bound"],
                                                          bounds["upper_bound"])
        if not found:
            self.note(f"nothing was timed: `cargo bench -p {package}` has not been run here")
        return found

    def tests(self, words, variables):
        """Runs `cargo test` with these words and variables; returns what the tests printed. They clean up after
        themselves."""
        command = ["cargo", "test", "--release", "--quiet", *words]
        environment = self.bench.environment | {name: str(value) for name, value in variables.items()}
        child = self.bench.start(command, environment, directory=TOP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output = child.communicate()[0].decode(errors="replace")
        if child.returncode:
            raise Failed(f"{' '.join(map(str, command))} with {variables}:\n{output[-3000:]}", output)
        return output

    def ordinary_user(self, *apps):
        """How to run as an ordinary user: (uid or None, coplace and apps where that user may read
        them). None where we are one already."""
        if os.geteuid() != 0:
            return None, COPLACE, APPS
        directory = self.bench.fresh("user")
        directory.chmod(0o755)
        for path in (COPLACE, *(APPS / app for app in apps)):
            shutil.copy2(path, directory / path.name)
            (directory / path.name).chmod(0o755)
        return NOBODY, directory / COPLACE.name, directory

    # Telling

    def say(self, text):
        print(text, file=sys.stderr, flush=True)

    def progress(self, text):
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def note(self, text):
        self.notes.append(text)
        self.say(f"{self.name}: {text}")

    def failed(self, text):
        """Something that should have worked did not; the result says so."""
        self.failures.append(text)
        self.say(f"{self.name}: FAILED: {text}")

    # Figures

    def figure(self, name, unit, samples, target=None, **more):
        """The median of samples with its interval. `target` is (sense, number): ("<=", 1.08), or ("within",
        0.9, 1.1)."""
        samples = list(samples)
        if not samples:
            self._add(name, unit, None, None, None, target, False if target else None, samples=0, **more)
            return None
        value, low, high, confidence = stats.interval(samples)
        holds = judge(value, target)
        self._add(name, unit, value, low, high, target, holds, samples=len(samples),
                  confidence=round(confidence, 4), **more)
        return value

    def interval_figure(self, name, unit, value, low, high, target=None, **more):
        """A figure whose interval was found elsewhere."""
        self._add(name, unit, value, low, high, target, judge(value, target), **more)

    def counted(self, name, unit, value, target=None, **more):
        """A figure that was counted and has no interval."""
        self._add(name, unit, value, value, value, target, judge(value, target), **more)

    def _add(self, name, unit, value, low, high, target, holds, **more):
        round_ = lambda number: number if number is None or isinstance(number, int) else float(f"{number:.5g}")
        sense = " ".join(str(part) for part in target) if target else None
        self.figures.append({"name": name, "unit": unit, "value": round_(value), "low": round_(low),
                             "high": round_(high), "target": sense, "holds": holds} | more)

    def _close(self, here, noise):
        self.counted("failed or unverified runs", "runs", len(self.failures), ("<=", 0))
        result = {"experiment": self.name, "kind": self.kind, "quick": self.quick, "seed": self.seed,
                  "machine": here, "noise": noise, "rounds": self.round_count, "figures": self.figures,
                  "notes": self.notes, "failures": self.failures}
        out = self.args.out or (None if self.quick else self.folder / "result.json")
        if out:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
        print(table(self.figures))
        print(f"{noise['seconds']:.0f} s; the host took {100 * (noise['steal_share'] or 0):.2f}% of the CPUs' time"
              + (f"; written to {_short(out)}" if out else ""))


def judge(value, target):
    """Whether a value meets its target; its interval stands beside it and decides nothing."""
    if target is None:
        return None
    sense, wanted, *most = target
    return {"within": lambda: wanted <= value <= most[0], "<=": lambda: value <= wanted, "<": lambda: value < wanted,
            ">=": lambda: value >= wanted, ">": lambda: value > wanted}[sense]()


def table(figures):
    words = {True: "holds", False: "DOES NOT HOLD", None: ""}
    show = lambda number: "–" if number is None else f"{number:.4g}"
    rows = [("figure", "value", "95% interval", "target", "")]
    for f in figures:
        whole = f["low"] == f["high"]
        rows.append((f"{f['name']} ({f['unit']})", show(f["value"]),
                     "" if whole else f"{show(f['low'])} … {show(f['high'])}", f["target"] or "", words[f["holds"]]))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def _short(path):
    path = Path(path).resolve()
    return path.relative_to(TOP) if path.is_relative_to(TOP) else path


def _interrupt(number, frame):
    raise KeyboardInterrupt
