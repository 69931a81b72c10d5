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


def timeline(gangs, cpus, from_ns, to_ns):
    """[(from, to, who ran on each CPU)] without holes over the window; None where no gang ran."""
    events = [(to_ns, 1, 0, None)]
    for number, gang in enumerate(gangs):
        for place, cpu in enumerate(cpus):
            for begin, end in gang[cpu]:
                begin, end = max(begin, from_ns), min(end, to_ns)
                if begin < end:
                    events += [(begin, 1, place, number), (end, 0, place, number)]
    pieces, runs, before = [], [None] * len(cpus), from_ns
    for at, begins, place, number in sorted(events, key=lambda event: event[:3]):
        if at > before:
            pieces.append((before, at, tuple(runs)))
        before = at
        if begins:
            runs[place] = number
        elif runs[place] == number:
            runs[place] = None
    return pieces


def together(pieces):
    """(time for which every CPU ran the same gang, time for which CPUs ran different ones), as
    shares of a timeline. The rest is time for which a CPU ran none of them."""
    same = different = 0
    for begin, end, runs in pieces:
        if _one(runs) is not None:
            same += end - begin
        elif None not in runs:
            different += end - begin
    whole = pieces[-1][1] - pieces[0][0]
    return same / whole, different / whole


def lost(pieces, switches):
    """The share of a timeline for which not all CPUs ran one gang because of the switches: around each, from
    the last moment before its first write in which all ran one gang to the first moment in which all ran
    another (or to the next switch); and wherever else CPUs ran different gangs."""
    total, done = 0, pieces[0][0]
    inside = [at for at, _ in switches if pieces[0][0] < at < pieces[-1][1]]
    begins = [begin for begin, _, _ in pieces]
    for at, until in zip(inside, inside[1:] + [pieces[-1][1]]):
        index = bisect_right(begins, at) - 1
        while index > 0 and _one(pieces[index][2]) is None:
            index -= 1
        old = _one(pieces[index][2])
        while index < len(pieces):
            begin, end, runs = pieces[index]
            begin, end = max(begin, done), min(end, until)
            if begin >= until or _one(runs) not in (None, old) and begin >= at:
                break
            if _one(runs) is None and begin < end:
                total += end - begin
                done = end
            index += 1
        # The rest of the slice, in which a host's pauses are none of ours.
        for begin, end, runs in pieces[index:]:
            if begin >= until:
                break
            begin, end = max(begin, done), min(end, until)
            if _one(runs) is None and None not in runs and begin < end:
                total += end - begin
                done = end
    return total / (pieces[-1][1] - pieces[0][0])


def _one(runs):
    """The gang that runs on all CPUs, if one does."""
    return runs[0] if len(set(runs)) == 1 else None


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
