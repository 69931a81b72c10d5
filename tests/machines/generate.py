#!/usr/bin/env python3
"""Writes the recorded machines beside this file. Run it after changing it; its output is committed.

Each machine is either one hwloc XML file or a directory laid out like / with the few files of
/sys and /proc that topology discovery reads. `two-cpu-vm` is a true copy and not made here.
"""
import pathlib
import shutil

HERE = pathlib.Path(__file__).parent


def write(root, files):
    shutil.rmtree(HERE / root, ignore_errors=True)
    for name, text in files.items():
        path = HERE / root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def mask(cpus):
    bits = sum(1 << cpu for cpu in cpus)
    words = []
    while bits or not words:
        words.insert(0, f"0x{bits & 0xffffffff:08x}")
        bits >>= 32
    return ",".join(words)


def opteron():
    """Quad Opteron 8435 (hwloc 2): L3 6 MB of which 5 are left by the probe filter."""
    out = ['<?xml version="1.0" encoding="UTF-8"?>',
           '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
           '<topology version="2.0">',
           f' <object type="Machine" os_index="0" cpuset="{mask(range(24))}">',
           '  <info name="HostName" value="quad-opteron-8435"/>']
    for package in range(4):
        cpus = mask(range(package * 6, package * 6 + 6))
        out += [f'  <object type="Package" os_index="{package}" cpuset="{cpus}">',
                '   <info name="CPUModel" value="Six-Core AMD Opteron(tm) Processor 8435"/>',
                f'   <object type="NUMANode" os_index="{package}" cpuset="{cpus}" local_memory="17179869184"/>',
                f'   <object type="L3Cache" cpuset="{cpus}" cache_size="5242880" depth="3" cache_linesize="64" cache_associativity="48" cache_type="0">']
        for core in range(6):
            cpu = package * 6 + core
            one = mask([cpu])
            out += [f'    <object type="L2Cache" cpuset="{one}" cache_size="524288" depth="2" cache_linesize="64" cache_associativity="16" cache_type="0">',
                    f'     <object type="L1Cache" cpuset="{one}" cache_size="65536" depth="1" cache_linesize="64" cache_associativity="2" cache_type="1">',
                    f'      <object type="L1iCache" cpuset="{one}" cache_size="65536" depth="1" cache_linesize="64" cache_associativity="2" cache_type="2">',
                    f'       <object type="Core" os_index="{core}" cpuset="{one}">',
                    f'        <object type="PU" os_index="{cpu}" cpuset="{one}"/>',
                    '       </object>', '      </object>', '     </object>', '    </object>']
        out += ['   </object>', '  </object>']
    distances = " ".join("10" if a == b else "20" for a in range(4) for b in range(4))
    out += [' </object>',
            ' <distances2 type="NUMANode" nbobjs="4" kind="5" name="NUMALatency" indexing="os">',
            '  <indexes length="8">0 1 2 3 </indexes>',
            f'  <u64values length="48">{distances} </u64values>',
            ' </distances2>', '</topology>']
    (HERE / "quad-opteron-8435.xml").write_text("\n".join(out) + "\n")


def dual():
    """The paper's figure 1 as hwloc 1 wrote it: two sockets with two cores and a shared L2 each."""
    out = ['<?xml version="1.0" encoding="UTF-8"?>',
           '<!DOCTYPE topology SYSTEM "hwloc.dtd">',
           '<topology>',
           f' <object type="Machine" os_index="0" cpuset="{mask(range(4))}" complete_cpuset="0x0000000f">']
    for socket in range(2):
        cpus = mask([socket * 2, socket * 2 + 1])
        out += [f'  <object type="Socket" os_index="{socket}" cpuset="{cpus}">',
                f'   <object type="Cache" cpuset="{cpus}" cache_size="4194304" depth="2" cache_linesize="64" cache_type="0">']
        for core in range(2):
            one = mask([socket * 2 + core])
            out += [f'    <object type="Core" os_index="{core}" cpuset="{one}">',
                    f'     <object type="PU" os_index="{socket * 2 + core}" cpuset="{one}"/>',
                    '    </object>']
        out += ['   </object>', '  </object>']
    out += [' </object>', '</topology>']
    (HERE / "dual-socket-dual-core.xml").write_text("\n".join(out) + "\n")


def sysfs(cores, package, caches, extra=None):
    """cores: lists of CPUs; package: core → package; caches: (level, type, size, list of groups)."""
    text = lambda cpus: ",".join(map(str, cpus))
    cpus = sorted(cpu for core in cores for cpu in core)
    base = "sys/devices/system/cpu"
    files = {f"{base}/{name}": f"0-{cpus[-1]}" for name in ("online", "present", "possible")}
    for number, core in enumerate(cores):
        mates = [cpu for n, c in enumerate(cores) if package(n) == package(number) for cpu in c]
        for cpu in core:
            topology = f"{base}/cpu{cpu}/topology"
            files |= {f"{topology}/core_id": str(number), f"{topology}/core_cpus_list": text(core),
                      f"{topology}/physical_package_id": str(package(number)),
                      f"{topology}/package_cpus_list": text(mates)}
            for index, (level, kind, size, groups) in enumerate(caches):
                shared = [group for group in groups if cpu in group]
                if not shared:
                    continue
                at = f"{base}/cpu{cpu}/cache/index{index}"
                files |= {f"{at}/level": str(level), f"{at}/type": kind, f"{at}/size": size,
                          f"{at}/coherency_line_size": "64", f"{at}/shared_cpu_list": text(shared[0])}
    return files | (extra or {})


def hybrid():
    """A laptop with four big cores of two threads and two clusters of four small cores."""
    big = [[2 * n, 2 * n + 1] for n in range(4)]
    small = [[cpu] for cpu in range(8, 16)]
    clusters = [list(range(8, 12)), list(range(12, 16))]
    extra = {"sys/devices/cpu_core/cpus": "0-7", "sys/devices/cpu_atom/cpus": "8-15",
             "sys/devices/system/node/node0/cpulist": "0-15", "sys/devices/system/node/node0/distance": "10"}
    for cpu in range(16):
        extra[f"sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq"] = "4700000" if cpu < 8 else "3500000"
    write("hybrid-laptop", sysfs(big + small, lambda core: 0, [
        (2, "Unified", "1280K", big), (2, "Unified", "2048K", clusters),
        (3, "Unified", "12288K", [list(range(16))])], extra))


def seven():
    write("seven-cpus", sysfs([[cpu] for cpu in range(7)], lambda core: 0,
                              [(3, "Unified", "16384K", [list(range(7))])]))


def holes():
    """Two packages of four; the cpuset (version 1) and the affinity leave 0-2 and 5-7."""
    write("cpuset-with-holes", sysfs(
        [[cpu] for cpu in range(8)], lambda core: core // 4,
        [(3, "Unified", "8192K", [[0, 1, 2, 3], [4, 5, 6, 7]])],
        {"proc/self/status": "Name:\tx\nCpus_allowed:\te7\nCpus_allowed_list:\t0-2,5-7",
         "proc/self/cgroup": "5:cpuset:/jobs/7\n3:cpu,cpuacct:/",
         "proc/self/mountinfo": "33 31 0:30 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
                                "34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
         "sys/fs/cgroup/cpuset/cpuset.cpus": "0-7",
         "sys/fs/cgroup/cpuset/jobs/cpuset.cpus": "0-2,4-7",
         "sys/fs/cgroup/cpuset/jobs/7/cpuset.cpus": "0-2,4-7",
         "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
         "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000"}))


def container():
    """Eight CPUs; the container's cgroup (version 2, mounted from within a namespace) has a cpuset
    of six, its own quota of 4 CPUs, and an ancestor's of 2.5."""
    write("container", sysfs(
        [[2 * n, 2 * n + 1] for n in range(4)], lambda core: 0,
        [(3, "Unified", "16384K", [list(range(8))])],
        {"proc/self/status": "Name:\tx\nCpus_allowed_list:\t0-7",
         "proc/self/cgroup": "0::/docker/abc/app",
         "proc/self/mountinfo": "600 599 0:26 /docker/abc /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw",
         "sys/fs/cgroup/cpuset.cpus.effective": "2-7",
         "sys/fs/cgroup/cpu.max": "250000 100000",
         "sys/fs/cgroup/app/cpu.max": "400000 100000"}))


def wsl2():
    """Neither topology nor caches nor NUMA nodes nor a list of what is online."""
    blocks = [f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\ncpu MHz\t\t: 2592.000\n" for cpu in range(4)]
    write("wsl2", {"proc/cpuinfo": "\n".join(blocks), "proc/self/status": "Name:\tx\nCpus_allowed_list:\t0-3",
                   "sys/devices/system/cpu/kernel_max": "8191"})


if __name__ == "__main__":
    for make in (opteron, dual, hybrid, seven, holes, container, wsl2):
        make()
