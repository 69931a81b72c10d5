"""Running `coplace simulate`, and what can be said of many simulated workloads."""

import json
import os
import random
import resource
import subprocess
import tempfile
from pathlib import Path

from .programs import COPLACE

#: The machine of Schönherr, Juurlink, Richling 2013: four Opteron 8435 of six cores.
MACHINE = "pack:4 [numa] l3:1 core:6"
#: What Linux 3.8 does with k tasks on 24 CPUs: 24 ms for all together, at least 3 ms each.
SLICES = {"slice_ns": 24_000_000, "max_still_ns": 24_000_000, "min_slice_ns": 3_000_000}
#: The widths that the paper's CO had; it could not have 2 and 3 at the same time.
CO_WIDTHS = {"allowed_widths": [1, 3, 6, 12, 24]}


class SimulationFailed(Exception):
    """coplace simulate ended with an error."""


def simulate(workload, policies, machine=MACHINE, settings=None, seeds=1, **options):
    """The result as JSON, with the CPU time that it took under `cpu_s`."""
    command = [str(COPLACE), "simulate", str(workload), "--machine", machine, "--policy", ",".join(policies),
               "--seeds", str(seeds), "--json"]
    for key, value in (settings or {}).items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    for key, value in options.items():
        command += [f"--{key.replace('_', '-')}"] + ([] if value is True else [str(value)])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COPLACE_CONFIG": "/dev/null"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SimulationFailed(f"{' '.join(command)}: {done.stderr.strip()}")
    result = json.loads(done.stdout)
    result["cpu_s"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return result


def figures(result):
    """{policy: {figure: [a value for each workload]}}"""
    return {policy["policy"]: {name: figure["values"] for name, figure in policy["figures"].items()}
            for policy in result["policies"]}


def paper_set(letter, seeds, **options):
    """BP, EQ, TA and CO on workloads of one of the paper's sets, as the paper ran them."""
    result = simulate(f"set:{letter}", ["BP", "EQ", "TA"], settings=SLICES, seeds=seeds, **options)
    coscheduled = simulate(f"set:{letter}", ["CO"], settings=SLICES | CO_WIDTHS, seeds=seeds, **options)
    return figures(result) | figures(coscheduled)


def mean(values):
    return sum(values) / len(values)


def ratio_interval(above, below, seed, draws=1000):
    """mean(above) / mean(below) with its 95% bootstrap interval; the two belong together in pairs."""
    rng = random.Random(seed)
    ratios = []
    for _ in range(draws):
        chosen = [rng.randrange(len(above)) for _ in above]
        ratios.append(sum(above[i] for i in chosen) / sum(below[i] for i in chosen))
    ratios.sort()
    return mean(above) / mean(below), ratios[int(0.025 * draws)], ratios[int(0.975 * draws)]


def changed_model(text, changes):
    """A model file in which laws have other values; the caller removes it."""
    for name, value in changes.items():
        lines = [f"{name} = {value}" if line.startswith(f"{name} =") else line for line in text.splitlines()]
        if lines == text.splitlines():
            raise SimulationFailed(f"the model has no law {name}")
        text = "\n".join(lines) + "\n"
    file = tempfile.NamedTemporaryFile("w", suffix=".toml", delete=False)
    with file:
        file.write(text)
    return Path(file.name)
