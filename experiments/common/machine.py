"""What a figure was measured on, and how much the machine was disturbed meanwhile."""

import ctypes.util
import glob
import os
import platform
import re
import subprocess
import time


def _read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _cgroups():
    mounts = [line.split() for line in _read("/proc/self/mounts").splitlines()]
    v1 = sorted({option for m in mounts if m[2] == "cgroup" for option in m[3].split(",")
                 if option in ("cpuset", "cpu", "freezer")})
    v2 = [m[1] for m in mounts if m[2] == "cgroup2"]
    parts = []
    if v1:
        parts.append("v1 (" + ", ".join(v1) + ")")
    if v2:
        controllers = _read(v2[0] + "/cgroup.controllers").split()
        parts.append("v2 (" + (", ".join(controllers) or "no controllers") + ")")
    return "; ".join(parts) or "none"


def _libgomp():
    """The runtime's file and, where dpkg knows it, its package version."""
    name = ctypes.util.find_library("gomp") or "libgomp.so.1"
    try:
        out = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libgomp1"], capture_output=True, text=True)
        version = out.stdout.split(" ")[0].strip()
    except OSError:
        version = ""
    return f"{name} {version}".strip()


def describe():
    cpuinfo = _read("/proc/cpuinfo")
    model = re.search(r"^(?:model name|CPU part|Processor)\s*:\s*(.+)$", cpuinfo, re.M)
    memory = re.search(r"^MemTotal:\s*(\d+)", _read("/proc/meminfo"), re.M)
    return {
        "cpu": model.group(1).strip() if model else platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "virtual": " hypervisor " in cpuinfo.replace("\n", " ") or "hypervisor" in cpuinfo,
        "memory_mib": int(memory.group(1)) // 1024 if memory else None,
        "kernel": platform.release(),
        "system": _pretty_name(),
        "cgroups": _cgroups(),
        "libgomp": _libgomp(),
        "user": "root" if os.geteuid() == 0 else "an ordinary user",
    }


def _pretty_name():
    name = re.search(r'^PRETTY_NAME="?([^"\n]+)', _read("/etc/os-release"), re.M)
    return name.group(1) if name else platform.system()


def caches():
    """By level: the bytes of one data cache (or unified one), and how many of them the CPUs at hand have; empty where the
    machine does not tell."""
    found = {}
    for cpu in os.sched_getaffinity(0):
        for index in glob.glob(f"/sys/devices/system/cpu/cpu{cpu}/cache/index*"):
            kind, level, size, shared = (_read(f"{index}/{name}").strip()
                                         for name in ("type", "level", "size", "shared_cpu_list"))
            number = re.fullmatch(r"(\d+)([KM]?)", size)
            if level and number and kind != "Instruction":
                one = int(number[1]) << {"K": 10, "M": 20}.get(number[2], 0)
                found.setdefault(int(level), {})[shared] = one
    return {level: (max(each.values()), len(each)) for level, each in found.items()}


def available_memory():
    """Bytes that programs can take."""
    return int(re.search(r"^MemAvailable:\s*(\d+)", _read("/proc/meminfo"), re.M)[1]) << 10


def words(machine):
    return (f"{machine['cpus']} CPUs ({machine['cpu']}{', virtual' if machine['virtual'] else ''}), "
            f"Linux {machine['kernel']}, cgroup {machine['cgroups']}, {machine['libgomp']}")


class Noise:
    """What the host and other processes took from us between two moments."""

    def __init__(self):
        self.began = time.monotonic()
        self.ticks = self._ticks()

    @staticmethod
    def _ticks():
        return [int(word) for word in _read("/proc/stat").split("\n", 1)[0].split()[1:]]

    def so_far(self):
        now = [b - a for a, b in zip(self.ticks, self._ticks())]
        total = sum(now[:8]) or 1
        return {
            "seconds": round(time.monotonic() - self.began, 1),
            "steal_share": round(now[7] / total, 5) if len(now) > 7 else None,
            "idle_share": round((now[3] + now[4]) / total, 5),
            "load_average_1min": float(_read("/proc/loadavg").split()[0]),
        }
