"""Slowdown matrices out of Gavel's co-run throughputs (experiments/data)."""

import csv
import json
import math
import statistics

from .programs import TOP

DATA = TOP / "experiments/data/gavel-oracle-throughputs.json"
GPUS = ("v100", "p100", "k80")


def throughputs():
    return json.loads(DATA.read_text())


def jobs(rates):
    """In the order of family and batch size."""
    def key(name):
        family, _, rest = name.partition(" (")
        return family, int(rest.rstrip(")").split()[-1]) if rest else 0
    return sorted(rates, key=key)


def slowdown(rates, job, beside):
    """None where the two could not run together. A job beside itself has two rates; their mean counts."""
    own, other = rates[job][beside]
    if own <= 0 or other <= 0:
        return None
    return rates[job]["null"] / ((own + other) / 2 if job == beside else own)


def write_matrix(path, names, value):
    with open(path, "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([""] + names)
        for name in names:
            cells = [value(name, beside) for beside in names]
            rows.writerow([name] + ["" if cell is None else f"{cell:.6f}" for cell in cells])
    return path


def matrices(directory):
    """{gpu: path of its matrix}; pairs that could not run together are left empty."""
    paths = {}
    for gpu in GPUS:
        rates = throughputs()[gpu]
        paths[gpu] = write_matrix(directory / f"{gpu}.csv", jobs(rates), lambda a, b: slowdown(rates, a, b))
    return paths


def noise(rates):
    """How far the two rates of a job beside itself differ, as a part: the median and the largest."""
    both = [rates[job][job] for job in rates]
    apart = [abs(math.log(one / other)) for one, other in both if one > 0 and other > 0]
    return statistics.median(apart), max(apart)
