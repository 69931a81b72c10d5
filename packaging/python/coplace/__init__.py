"""Lets several parallel programs share a machine without slowing each other down.

The command is `coplace`; this module calls it. Every function says which command that is, and
raises `Error` with the command's own words where it fails.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Optional, Sequence, Union

if TYPE_CHECKING:
    import pandas

__all__ = ["App", "Error", "Level", "Machine", "Plan", "Simulation", "Status", "command", "machine", "plan", "run",
           "simulate", "start", "status"]

Argument = Union[str, "os.PathLike[str]"]


# The exit status of `coplace status` where no scheduler runs (docs/commands/exit-codes.md).
_NO_SCHEDULER = 1
# What its messages begin with.
_PREFIX = "coplace: "


class Error(RuntimeError):
    """A command of coplace failed. `status` is its exit status, `words` what it printed about it."""

    def __init__(self, arguments: Sequence[str], status: int, words: str) -> None:
        super().__init__(f"coplace {' '.join(arguments)}: {words or f'exit status {status}'}")
        self.arguments = list(arguments)
        self.status = status
        self.words = words


def command() -> Path:
    """The command: `$COPLACE`, the one installed with this module, or the first in PATH."""
    named = os.environ.get("COPLACE")
    if named:
        return Path(named)
    schemes = ["posix_user"] if "posix_user" in sysconfig.get_scheme_names() else []
    folders = [sysconfig.get_path("scripts"), *(sysconfig.get_path("scripts", scheme) for scheme in schemes)]
    for folder in folders:
        if folder and os.access(Path(folder) / "coplace", os.X_OK):
            return Path(folder) / "coplace"
    found = shutil.which("coplace")
    if not found:
        raise FileNotFoundError("there is no command coplace here; set COPLACE to it")
    return Path(found)


def _output(*arguments: str, accepted: Iterable[int] = (0,)) -> str:
    done = subprocess.run([command(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode not in accepted:
        words = done.stderr.strip()
        raise Error(arguments, done.returncode, words[len(_PREFIX):] if words.startswith(_PREFIX) else words)
    return done.stdout


def _run_arguments(
    program: Sequence[Argument],
    name: Optional[str],
    threads: Optional[int],
    rigid: bool,
    weight: Optional[float],
    options: Sequence[str],
) -> list[str]:
    if isinstance(program, (str, bytes)):
        raise TypeError("a program is a list: its file and its arguments")
    arguments = [str(command()), "run"]
    if name is not None:
        arguments += ["--name", name]
    if threads is not None:
        arguments += ["--threads", str(threads)]
    if rigid:
        arguments.append("--rigid")
    if weight is not None:
        arguments += ["--weight", str(weight)]
    return [*arguments, *options, "--", *(os.fspath(part) for part in program)]


def start(
    program: Sequence[Argument],
    *,
    name: Optional[str] = None,
    threads: Optional[int] = None,
    rigid: bool = False,
    weight: Optional[float] = None,
    options: Sequence[str] = (),
    **popen: Any,
) -> "subprocess.Popen[Any]":
    """Starts a program under coplace (`coplace run`) and returns at once.

    `options` are further options of `coplace run`, `popen` those of `subprocess.Popen`. Signals
    that are sent to the process reach the program; it ends with the program's exit status.
    """
    return subprocess.Popen(_run_arguments(program, name, threads, rigid, weight, options), **popen)


def run(
    program: Sequence[Argument],
    *,
    name: Optional[str] = None,
    threads: Optional[int] = None,
    rigid: bool = False,
    weight: Optional[float] = None,
    options: Sequence[str] = (),
    **run_options: Any,
) -> "subprocess.CompletedProcess[Any]":
    """Runs a program under coplace (`coplace run`) and returns when it has ended.

    `run_options` are those of `subprocess.run`: `check`, `capture_output`, `env`, `cwd`, `timeout` …
    """
    return subprocess.run(_run_arguments(program, name, threads, rigid, weight, options), **run_options)


@dataclass(frozen=True)
class App:
    """A program under coplace. `raw` has everything that `coplace status --json` says of it."""

    id: str
    pid: int
    uid: int
    command: list[str]
    state: str
    place: str
    threads: int
    team: Optional[int]
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Status:
    """What runs where now. `raw` has everything that `coplace status --json` says."""

    role: str
    policy: str
    plan: str
    allowed: str
    usable: str
    apps: list[App]
    raw: Mapping[str, Any] = field(repr=False)


def status() -> Optional[Status]:
    """What runs where (`coplace status`); `None` where no scheduler runs."""
    try:
        raw = json.loads(_output("status", "--json"))
    except Error as error:
        if error.status == _NO_SCHEDULER:
            return None
        raise
    names = ["id", "pid", "uid", "command", "state", "place", "threads", "team"]
    apps = [App(**{name: app[name] for name in names}, raw=app) for app in raw["apps"]]
    names = ["role", "policy", "plan", "allowed", "usable"]
    return Status(**{name: raw[name] for name in names}, apps=apps, raw=raw)


@dataclass(frozen=True)
class Plan:
    """A plan in its text form, and what the policy says about it."""

    text: str
    report: Mapping[str, Any]


def plan() -> Optional[Plan]:
    """The plan in force (`coplace status`); `None` where no scheduler runs."""
    now = status()
    return None if now is None else Plan(now.plan, now.raw["report"])


@dataclass(frozen=True)
class Level:
    """A level of the machine's tree, and how many units it has."""

    name: str
    units: int


@dataclass(frozen=True)
class Machine:
    """This machine, as coplace sees it. `raw` has everything that `coplace doctor --json` says."""

    name: str
    levels: list[Level]
    allowed: str
    raw: Mapping[str, Any] = field(repr=False)


def machine() -> Machine:
    """The machine and what it lets coplace do (`coplace doctor`)."""
    # It ends with 1 where programs cannot take turns here.
    raw = json.loads(_output("doctor", "--json", accepted=(0, 1)))
    levels = [Level(name, units) for name, units in raw["machine"]["levels"]]
    return Machine(raw["machine"]["name"], levels, raw["allowed"], raw)


@dataclass(frozen=True)
class Simulation:
    """What policies would do with a workload: simulated, not measured."""

    raw: Mapping[str, Any] = field(repr=False)
    csv: str = field(repr=False)

    def figures(self) -> "pandas.DataFrame":
        """A row for each figure of each policy: `policy`, `figure`, `unit`, `mean`, `error`."""
        import pandas

        rows = [
            {"policy": policy["policy"], "figure": name, **{key: figure[key] for key in ["unit", "mean", "error"]}}
            for policy in self.raw["policies"]
            for name, figure in policy["figures"].items()
        ]
        return pandas.DataFrame(rows)

    def jobs(self) -> "pandas.DataFrame":
        """A row for each job of each simulation; the columns are those of `--csv`."""
        import pandas

        return pandas.read_csv(io.StringIO(self.csv))


def simulate(
    workload: Argument,
    *,
    policies: Sequence[str] = ("TA",),
    machine: Optional[str] = None,
    seeds: Optional[int] = None,
    options: Sequence[str] = (),
) -> Simulation:
    """Simulates a workload (`coplace simulate`): a mix file, a record, a job log, or a set (`set:B`).

    `machine` is a description of it (`"pack:2 core:4"`) or a file; without one, it is this machine.
    """
    import tempfile

    arguments = ["simulate", os.fspath(workload), "--policy", ",".join(policies), *options]
    if machine is not None:
        arguments += ["--machine", machine]
    if seeds is not None:
        arguments += ["--seeds", str(seeds)]
    with tempfile.TemporaryDirectory(prefix="coplace-") as scratch:
        table = Path(scratch) / "jobs.csv"
        raw = json.loads(_output(*arguments, "--json", "--csv", str(table)))
        return Simulation(raw, table.read_text())
