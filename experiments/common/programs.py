"""Starting programs, alone, together and under coplace, and ending them whatever happens.

Everything that is started carries a token in its environment. Whatever still carries it at the end
is thawed, continued and killed: an experiment leaves no process behind, however it ends."""

import ctypes
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
COPLACE = Path(os.environ.get("COPLACE_BINARY") or TOP / "target/release/coplace")
APPS = TOP / "build/apps"
PRELOAD = TOP / "build/preload"
TOKEN = "COPLACE_EXPERIMENT"
#: An ordinary user without any rights, for what is to work without root.
NOBODY = 65534

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


class Program:
    """A program of ours with its options."""

    def __init__(self, app, *options, name=None, env=None, demand=None, arrive_s=0.0, path=None):
        self.app, self.options = app, [str(option) for option in options]
        self.name = name or app
        self.env = dict(env or {})
        self.demand = dict(demand or {})
        self.arrive_s = arrive_s
        self.path = Path(path) if path else APPS / app

    def command(self):
        return [str(self.path), *self.options]

    def at(self, directory):
        """The same program as copied into another directory."""
        return Program(self.app, *self.options, name=self.name, env=self.env, demand=self.demand,
                       arrive_s=self.arrive_s, path=Path(directory) / self.path.name)

    def toml(self):
        lines = ["[[program]]", f"name = {_quoted(self.name)}",
                 "command = [" + ", ".join(_quoted(word) for word in self.command()) + "]"]
        if self.arrive_s:
            lines.append(f"arrive_s = {self.arrive_s}")
        for table, values in (("environment", self.env), ("demand", self.demand)):
            if values:
                lines.append(f"[program.{table}]")
                lines += [f"{key} = {_quoted(value)}" for key, value in values.items()]
        return "\n".join(lines) + "\n"


def _quoted(value):
    """A TOML value: JSON's strings, numbers and booleans are TOML's."""
    return json.dumps(value, ensure_ascii=False)


class Ended:
    """How one process ended."""

    def __init__(self, seconds, status, cpu_s, output):
        self.seconds, self.status, self.cpu_s, self.output = seconds, status, cpu_s, output
        lines = [line for line in output.splitlines() if line.strip()]
        self.verified = bool(lines) and lines[-1].strip() == "VERIFIED" and status == 0
        self.app = next((json.loads(line) for line in lines if line.startswith("{")), {})


class Bench:
    """A directory, a token, and the processes that carry it."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.token = f"{os.getpid()}-{time.monotonic_ns()}"
        self.count = 0
        self.user = None
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("OMP_", "GOMP_", "KMP_", "COPLACE_")) and name != "LD_PRELOAD"}
        empty = self.directory / "config.toml"
        empty.write_text("")
        self.environment = kept | {
            TOKEN: self.token,
            "COPLACE_CONFIG": str(empty),  # ours and not the user's
            "XDG_CACHE_HOME": str(self.directory / "cache"),
        }

    def fresh(self, kind):
        self.count += 1
        path = self.directory / f"{kind}{self.count}"
        path.mkdir(mode=0o700)
        return path

    def start(self, words, env=None, cpus=None, directory=None, stdout=None, stderr=None, user=None):
        def prepare():
            # Whoever kills us hard ends what we started too.
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if cpus is not None:
                os.sched_setaffinity(0, cpus)
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
                _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # forgotten when the user changed

        return subprocess.Popen([str(word) for word in words], env=self.environment | dict(env or {}),
                                stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                cwd=directory or self.directory, start_new_session=True, preexec_fn=prepare)

    def together(self, programs, env=None, timeout=600, cpus=None):
        """Starts programs at the same time, without coplace. Returns (seconds, {name: Ended}); of
        one that was not through after `timeout` there is None, and all are killed then."""
        directory = self.fresh("out")
        running, ended = {}, {}
        began = time.monotonic()
        for program in programs:
            with open(directory / program.name, "wb") as out:
                child = self.start(program.command(), env=program.env | dict(env or {}), cpus=cpus, stdout=out,
                                   stderr=subprocess.STDOUT)
            running[program.name] = child

        def note(name, seconds, status, usage):
            output = (directory / name).read_text(errors="replace")
            ended[name] = Ended(seconds, status, usage.ru_utime + usage.ru_stime, output)

        late = wait_for(running, began, timeout, note)
        seconds = time.monotonic() - began
        for name in late:
            kill(running[name])
            ended[name] = None
        shutil.rmtree(directory, ignore_errors=True)
        return seconds, ended

    def alone(self, program, env=None, timeout=600, cpus=None):
        seconds, ended = self.together([program], env, timeout, cpus)
        return seconds, ended[program.name]

    def mix(self, programs, policy, turns=None, placement=None, slice_=None, settings=(), env=None, timeout=600,
            user=None, binary=None, look=None, keep=None, trace=False, cpus=None):
        """Runs programs under `coplace mix`. `look` is called a few times a second meanwhile; what
        `keep(directory)` returns of the mix's directory becomes `.kept`; `trace` leaves a trace.jsonl there."""
        directory = self.fresh("mix")
        file, result, home, output = (directory / name for name in ("mix.toml", "result.json", "h", "out"))
        file.write_text("\n".join(program.toml() for program in programs))
        for path in (home, output):
            path.mkdir(mode=0o700)
        if user is not None:
            for path in (directory, file, home, output):
                os.chown(path, user, user)
        command = [binary or COPLACE, "mix", file, "--policy", policy, "--json", result, "--output", output, "--quiet",
                   "--keep-going"]
        for option, value in (("--turns", turns), ("--placement", placement), ("--slice", slice_)):
            command += [option, value] if value else []
        for key, value in dict(settings).items():
            command += ["--set", f"{key}={value}"]
        command += ["--trace", directory / "trace.jsonl"] if trace else []
        variables = {"COPLACE_RUNTIME_DIR": str(home), "XDG_CACHE_HOME": str(home / "cache")} | dict(env or {})
        with open(directory / "stderr", "wb") as err, open(directory / "stdout", "wb") as out:
            child = self.start(command, env=variables, cpus=cpus, stdout=out, stderr=err, user=user)
        began, done = time.monotonic(), []
        note = lambda *ending: done.append(ending)
        late = wait_for({"mix": child}, began, timeout, note, look and (lambda: look(child)))
        if late:
            child.send_signal(signal.SIGTERM)
            if wait_for({"mix": child}, began, timeout + 10, lambda *ending: None):
                kill(child)
            self.sweep()
        seconds = done[0][1] if done else time.monotonic() - began
        mix = Mix(seconds, done[0][2] if done else None, command, directory, result, output)
        mix.kept = keep(directory) if keep else None
        shutil.rmtree(directory, ignore_errors=True)
        return mix

    def processes(self):
        """Everything that carries our token and lives, newest first."""
        mark = f"{TOKEN}={self.token}".encode()
        found = []
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                with open(f"/proc/{entry.name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0"):
                        found.append(int(entry.name))
            except OSError:
                continue  # it has ended, or belongs to somebody else
        return sorted(found, reverse=True)

    def ask_schedulers(self):
        """Schedulers that are asked to end take their programs and cgroups along."""
        schedulers = [pid for pid in self.processes() if "coplace mix " in command(pid)]
        for pid in schedulers:
            try:
                os.kill(pid, signal.SIGTERM)
            except OSError:
                pass  # it has ended
        patience = time.monotonic() + 8
        while any(pid in schedulers for pid in self.processes()) and time.monotonic() < patience:
            reap(schedulers)
            time.sleep(0.05)

    def sweep(self):
        """Ends everything of ours that still lives. Returns what there was: {pid: command}."""
        seen = {}
        self.ask_schedulers()
        for _ in range(50):
            left = self.processes()
            if not left:
                break
            seen.update({pid: command(pid) for pid in left if pid not in seen})
            for pid in left:
                thaw(pid)
                for number in (signal.SIGCONT, signal.SIGKILL):
                    try:
                        os.kill(pid, number)
                    except OSError:
                        pass
            reap(left)
            time.sleep(0.02)
        return seen


class Mix:
    """What a `coplace mix` came to."""

    def __init__(self, seconds, status, command, directory, result, output):
        self.seconds, self.status = seconds, status
        self.command = shlex.join(str(word) for word in command)
        self.stderr = (directory / "stderr").read_text(errors="replace")
        try:
            self.json = json.loads(result.read_text())
        except (OSError, ValueError):
            self.json = {"programs": []}
        self.programs = {program["name"]: program for program in self.json["programs"]}
        self.outputs = {path.stem: path.read_text(errors="replace") for path in output.glob("*.out")}
        self.verified = bool(self.programs) and status == 0 and all(
            program.get("verified") is True for program in self.programs.values())

    def app(self, name):
        """The line of JSON that one of our programs printed."""
        lines = self.outputs.get(name, "").splitlines()
        return next((json.loads(line) for line in lines if line.startswith("{")), {})

    def why(self):
        failed = [name for name, program in self.programs.items() if program.get("verified") is not True]
        return (f"status {self.status} after {self.seconds:.1f} s, not VERIFIED: {', '.join(failed) or 'unknown'}; "
                f"{self.stderr.strip()[-600:]} ({self.command})")


def wait_for(running, began, timeout, note, look=None):
    """Waits for children by their pidfds, without using the CPU; returns the names of the late."""
    poll, names = select.poll(), {}
    for name, child in running.items():
        fd = os.pidfd_open(child.pid)
        names[fd] = name
        poll.register(fd, select.POLLIN)
    try:
        while names:
            left = began + timeout - time.monotonic()
            if left <= 0:
                return list(names.values())
            ready = poll.poll(min(left, 0.2) * 1000 if look else left * 1000)
            for fd, _ in ready:
                ended_at = time.monotonic()
                name = names.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                _, status, usage = os.wait4(running[name].pid, 0)
                running[name].returncode = os.waitstatus_to_exitcode(status)
                note(name, ended_at - began, running[name].returncode, usage)
            if look and names:
                look()
        return []
    finally:
        for fd in names:
            os.close(fd)


def kill(child):
    thaw(child.pid)
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass
    child.wait()


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def reap(pids):
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except OSError:
            pass  # somebody else's child


def thaw(pid):
    """A process that is frozen by cgroup v1 ignores even SIGKILL until it is thawed."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if path in ("", "/"):
            continue
        for file, text in ((f"/sys/fs/cgroup/freezer{path}/freezer.state", "THAWED"),
                           (f"/sys/fs/cgroup/unified{path}/cgroup.freeze", "0"),
                           (f"/sys/fs/cgroup{path}/cgroup.freeze", "0")):
            if ("freezer" in controllers.split(",")) == file.endswith("state"):
                try:
                    Path(file).write_text(text)
                except OSError:
                    pass
