"""The programs: how to start each, how much work it gets, and how its result is read."""

import hashlib
import math
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

from common import TOP, Failed, Program
from common.experiment import TWO_THREADS

HERE = Path(__file__).resolve().parent
PYTHON = TOP / "build/real/venv/bin/python3"

MELT = """units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 12 0 12 0 12
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 100
run {amount}
"""


class Real:
    """One program. `command(amount, threads)` starts it; `digest(text)` finds (bits, number) of its result, of
    which the number may be NaN where only the bits count."""

    def __init__(self, name, amount, command, digest, env=None):
        self.name, self.amount, self.command, self.digest, self.env = name, amount, command, digest, env or {}

    def started(self, amount, threads=2, name=None):
        """The program with so much work, as a bench starts it."""
        words = [str(word) for word in self.command(amount, threads)]
        return Program(words[0], *words[1:], name=name or self.name, env=self.env, path=words[0])


class Expected:
    """What lone runs come to: the same bits, or a spread of numbers."""

    def __init__(self, found):
        values = [value for _, value in found]
        # A few runs show the order of the spread, not its edges.
        room = 10 * (max(values) - min(values)) + 1e-9 * max(map(abs, values))
        self.bits = sorted({bits for bits, _ in found})
        self.low, self.high = min(values) - room, max(values) + room

    def accepts(self, bits, value):
        return bits in self.bits or len(self.bits) > 1 and self.low <= value <= self.high

    def __repr__(self):
        return self.bits[0] if len(self.bits) == 1 else f"{self.low} … {self.high}"


def calibrate(bench, program, wanted_s):
    """An amount of work for which the program alone takes about `wanted_s`, found from the CPU time
    of one thread at two lengths, which a busy machine hardly changes."""
    cost_s = {}
    # Far enough apart that noise does not hide the difference.
    for amount in (program.amount // 2, 2 * program.amount):
        one = program.started(amount)
        tries = [bench.alone(one, {"OMP_NUM_THREADS": "1"}, timeout=120)[1] for _ in range(2)]
        if any(ended is None or ended.status for ended in tries):
            raise Failed(f"{program.name} alone failed: {tries[0] and tries[0].output[-500:]}")
        cost_s[amount] = min(ended.cpu_s for ended in tries) * TWO_THREADS
    low, high = sorted(cost_s)
    slope = (cost_s[high] - cost_s[low]) / (high - low)
    if slope * high < 0.1:
        raise Failed(f"{program.name}: {high} takes hardly longer than {low}, {cost_s[high]:.2f} s")
    return max(low // 4, int(high + (wanted_s - cost_s[high]) / slope))


def reference(bench, program, amount):
    """What lone runs with two threads (or ranks) and with one come to."""
    found = []
    for threads, env in ((2, {}), (2, {}), (1, {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})):
        _, ended = bench.alone(program.started(amount, threads), env, timeout=240)
        if ended is None or ended.status:
            raise Failed(f"{program.name} alone failed: {ended and ended.output[-500:]}")
        found.append(program.digest(ended.output))
    return Expected(found)


def digest(text):
    """What `wheels.py` printed of its result."""
    return re.search(r"^digest (\w+)$", text, re.M)[1], float(re.search(r"^value (\S+)$", text, re.M)[1])


def _wheel(kind, amount):
    return Real(kind, amount, lambda n, _=2: [PYTHON, HERE / "wheels.py", kind, n], digest)


def has(module):
    return PYTHON.exists() and subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode == 0


def _lammps(directory):
    def command(amount, ranks=2):
        path = directory / f"melt-{amount}.in"
        path.write_text(MELT.format(amount=amount))
        # Two ranks that spin for each other's messages; as root Open MPI wants to be told twice.
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        return ["mpirun", *root, "-np", str(ranks), "lmp", "-log", "none", "-in", path]

    def digest(text):
        rows = re.findall(r"^ *\d+(?: +[-\d.e+]+){5,} *$", text, re.M)
        return hashlib.sha256("\n".join(rows).encode()).hexdigest()[:16], float(rows[-1].split()[4])
    return Real("lammps", 300, command, digest)


def _blast(directory):
    rng = random.Random(1)
    sequence = lambda n: "".join(rng.choices("ACDEFGHIKLMNPQRSTVWY", k=n))
    library = [sequence(350) for _ in range(4000)]
    # Queries that resemble something in the library: every tenth residue is another one.
    mutate = lambda s: "".join(c if rng.random() < 0.9 else rng.choice("ACDEFGHIKLMNPQRSTVWY") for c in s)
    (directory / "library.fa").write_text("".join(f">s{i}\n{s}\n" for i, s in enumerate(library)))
    subprocess.run(["makeblastdb", "-in", directory / "library.fa", "-dbtype", "prot", "-out", directory / "library"],
                   check=True, capture_output=True)

    def command(amount, threads=2):
        path = directory / f"queries-{amount}.fa"
        if not path.exists():
            path.write_text("".join(f">q{i}\n{mutate(library[i % len(library)])}\n" for i in range(amount)))
        return ["blastp", "-db", directory / "library", "-query", path, "-num_threads", str(threads), "-outfmt", "6"]

    def digest(text):
        lines = text.splitlines()
        return hashlib.sha256(text.encode()).hexdigest()[:16], float(len(lines))
    return Real("blast", 120, command, digest)


def _xz(directory):
    rng = random.Random(2)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 9))) for _ in range(5000)]

    def command(amount, threads=2):
        path = directory / f"text-{amount}"
        if not path.exists():
            path.write_text(" ".join(rng.choices(words, k=amount * 1000)))
        # Blocks of one size, and written as several threads write them, however many there are: the same bits.
        return ["sh", "-c", f"xz -T+{threads} --block-size=1MiB -c '{path}' | sha256sum"]

    return Real("xz", 900, command, lambda text: (text.split()[0][:16], math.nan))


def programs(directory, note):
    """Those that can be had here."""
    made = []
    for kind, module, amount in (("lightgbm", "lightgbm", 250), ("xgboost", "xgboost", 250),
                                 ("kmeans", "sklearn", 60), ("numpy", "numpy", 100)):
        if has(module):
            made.append(_wheel(kind, amount))
        else:
            note(f"{kind} is not to be had here (experiments/real-programs/prepare): left out")
    for name, tools, make in (("lammps", ("mpirun", "lmp"), _lammps), ("blast", ("blastp", "makeblastdb"), _blast),
                              ("xz", ("xz",), _xz)):
        if all(shutil.which(tool) for tool in tools):
            made.append(make(directory))
        else:
            note(f"{name} is not to be had here (experiments/real-programs/prepare): left out")
    return made
