"""Reads what the gangs and the scheduler noted: who ran on each CPU when, and how switches went."""

import struct
from bisect import bisect_right


def read(path):
    """{cpu: [(from_ns, to_ns)]} of one gang, ascending."""
    cpus = {}
    with open(path, "rb") as file:
        for _, cpu, from_ns, to_ns in struct.iter_unpack("=4Q", file.read()):
            cpus.setdefault(cpu, []).append((from_ns, to_ns))
    return {cpu: sorted(intervals) for cpu, intervals in cpus.items()}


def read_switches(path):
    """[(first write begins, last write has ended)] as the gang clock noted them."""
    with open(path, encoding="utf-8") as file:
        return [tuple(int(word) for word in line.split()) for line in file if line.strip()]


def window(gangs, cpus, warm_ns):
    """The time for which all gangs lived, without their beginnings and ends."""
    first = max(min(gang[cpu][0][0] for cpu in cpus) for gang in gangs)
    last = min(max(gang[cpu][-1][1] for cpu in cpus) for gang in gangs)
    return first + warm_ns, last - warm_ns


def together(gangs, cpus, from_ns, to_ns):
    """(time for which every CPU ran the same gang, time for which CPUs ran different ones), as
    shares of the window. The rest is time for which a CPU ran none of them."""
    events = []
    for number, gang in enumerate(gangs):
        for place, cpu in enumerate(cpus):
            for begin, end in gang[cpu]:
                begin, end = max(begin, from_ns), min(end, to_ns)
                if begin < end:
                    events += [(begin, 1, place, number), (end, 0, place, number)]
    runs = [None] * len(cpus)
    same = different = 0
    before = from_ns
    for at, begins, place, number in sorted(events):
        if None not in runs:
            if len(set(runs)) == 1:
                same += at - before
            else:
                different += at - before
        before = at
        if begins:
            runs[place] = number
        elif runs[place] == number:
            runs[place] = None
    return same / (to_ns - from_ns), different / (to_ns - from_ns)


def switch_times(gangs, cpus, switches, from_ns, to_ns):
    """Of each switch the nanoseconds from its first write until every thread of the old gang had
    last run before the new gang came to its CPU."""
    times = []
    for at, _ in switches:
        if not from_ns < at < to_ns:
            continue
        old = max(range(len(gangs)), key=lambda g: sum(_ran(gangs[g][cpu], at - 2_000_000, at) for cpu in cpus))
        last = at
        for cpu in cpus:
            arrives = min((_next_begin(gang[cpu], at) for number, gang in enumerate(gangs) if number != old),
                          default=to_ns)
            last = max(last, _last_end(gangs[old][cpu], at, arrives))
        times.append(last - at)
    return times


def _ran(intervals, from_ns, to_ns):
    index = max(0, bisect_right(intervals, (from_ns,)) - 1)
    total = 0
    while index < len(intervals) and intervals[index][0] < to_ns:
        begin, end = intervals[index]
        total += max(0, min(end, to_ns) - max(begin, from_ns))
        index += 1
    return total


def _next_begin(intervals, at):
    """When the gang comes to this CPU: at once if it is there already."""
    index = bisect_right(intervals, (at, 1 << 63))
    if index > 0 and intervals[index - 1][1] > at:
        return at
    return intervals[index][0] if index < len(intervals) else 1 << 63


def _last_end(intervals, at, arrives):
    """The end of the gang's last stay that began before the other one arrived."""
    index = bisect_right(intervals, (arrives,)) - 1
    return at if index < 0 else max(at, min(intervals[index][1], arrives))
