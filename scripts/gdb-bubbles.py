"""Lists the threads of a program of bubbles in gdb, and shows where they wait.

    (gdb) source scripts/gdb-bubbles.py
    (gdb) bubbles threads
    (gdb) bubbles bt 3
    (gdb) bubbles bt left over
"""

import struct

import gdb

PLACES = {0: "waits", 1: "queued on unit {}", 2: "ready in a closed bubble", 3: "runs on processor {}"}
REGISTERS = {"x86-64": ("rsp", "rbp", "rbx", "rip"), "aarch64": ("sp", "x29", "x19", "pc")}


def words(address, count):
    return struct.unpack(f"={count}Q", gdb.selected_inferior().read_memory(address, 8 * count))


def symbol(name):
    try:
        return int(gdb.parse_and_eval(f"(unsigned long)&{name}"))
    except gdb.error as error:
        raise gdb.GdbError(f"{name} is not to be found: is this a program of bubbles that has begun? ({error})")


def threads():
    """Number, name, place and saved registers of each thread that there is."""
    version, size, number, place, holder, name, *saved = words(symbol("COPLACE_BUBBLES_LAYOUT"), 10)
    if version != 1:
        raise gdb.GdbError(f"the program's layout has version {version}, this script knows version 1")
    batch = words(symbol("COPLACE_BUBBLES_BATCHES"), 1)[0]
    while batch:
        batch, records, count = words(batch, 3)
        for record in range(records, records + size * count, size):
            (its_number,) = words(record + number, 1)
            if not its_number:
                continue
            code = words(record + place, 1)[0] & 0xFFFFFFFF
            at, length = words(record + name, 2)
            called = bytes(gdb.selected_inferior().read_memory(at, length)).decode(errors="replace") if at else ""
            registers = [words(record + offset, 1)[0] for offset in saved]
            yield {"number": its_number, "name": called, "tag": code & 7, "at": code >> 4,
                   "bubble": words(record + holder, 1)[0], "registers": registers}


def where(thread):
    if thread["tag"] == 3:
        return ""
    if not thread["registers"][0]:
        return "has not begun"
    # In the program, rather than in the runtime, if it can be told.
    return next((f"in {name}" for name, ours in frames(thread) if not ours), "")


def frames(thread):
    """The functions on the stack of a thread that does not run, and whether they are the runtime's."""
    names = REGISTERS["aarch64" if "aarch64" in gdb.selected_frame().architecture().name() else "x86-64"]
    gdb.newest_frame().select()
    before = [int(gdb.parse_and_eval(f"(unsigned long)${name}")) for name in names]
    try:
        for name, value in zip(names, thread["registers"]):
            gdb.execute(f"set ${name} = {value}", to_string=True)
        frame, found = gdb.newest_frame(), []
        while frame is not None and len(found) < 40:
            symtab = frame.find_sal().symtab
            name = frame.name() or hex(frame.pc())
            ours = "coplace_bubbles::" in name or bool(symtab and "bubbles/src/" in symtab.filename)
            found.append((name, ours))
            frame = frame.older()
        return found
    finally:
        gdb.newest_frame().select()
        for name, value in zip(names, before):
            gdb.execute(f"set ${name} = {value}", to_string=True)


class Bubbles(gdb.Command):
    """The threads of a program of bubbles: `bubbles threads`, `bubbles bt` with a number or a name of these."""

    def __init__(self):
        super().__init__("bubbles", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        what = argument.split(None, 1)
        found = list(threads())
        if what == ["threads"]:
            for at, thread in enumerate(found, 1):
                place = PLACES.get(thread["tag"], "?").format(thread["at"])
                bubble = f" in bubble {thread['bubble']:#x}" if thread["bubble"] else ""
                print(f"{at:4} {thread['name'] or '(without a name)'}: {place}{bubble} {where(thread)}".rstrip())
        elif len(what) == 2 and what[0] == "bt":
            named = [thread for at, thread in enumerate(found, 1) if what[1] in (str(at), thread["name"])]
            if not named:
                raise gdb.GdbError(f"no thread has the number or the name {what[1]}: see bubbles threads")
            thread = named[0]
            if thread["tag"] == 3 or not thread["registers"][0]:
                raise gdb.GdbError("it runs (see `info threads`), or has not begun")
            for depth, (name, _) in enumerate(frames(thread)):
                print(f"#{depth:<3} {name}")
        else:
            raise gdb.GdbError("bubbles threads, or bubbles bt with a number or a name that `bubbles threads` shows")


Bubbles()
