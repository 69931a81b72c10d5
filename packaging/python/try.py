"""Tries the installed module, with a program that burns CPU time: try.py BURN. Prints VERIFIED."""

import subprocess
import sys
import time
from pathlib import Path

import coplace


def main():
    burn = sys.argv[1]
    assert Path(coplace.command()).parent == Path(sys.executable).parent, coplace.command()
    assert coplace.status() is None and coplace.plan() is None
    assert [level.name for level in coplace.machine().levels][0] == "machine"

    program = coplace.start([burn, "--seconds", "60"], name="burns", threads=1, options=["-q"],
                            stdout=subprocess.PIPE, text=True)
    while not (now := coplace.status()) or now.apps[0].state != "running":
        time.sleep(0.1)
    [app] = now.apps
    assert (app.id, app.command, now.role) == ("burns", [burn, "--seconds", "60"], "leader"), now
    assert "burns on" in coplace.plan().text
    program.terminate()
    assert program.communicate()[0].splitlines()[-1] == "VERIFIED" and program.returncode == 0

    assert coplace.run(["sh", "-c", "exit 3"], weight=0.5, rigid=True, options=["-q"]).returncode == 3
    simulated = coplace.simulate("set:B", policies=["TA", "EQ"], machine="pack:2 core:4", seeds=2)
    assert [policy["policy"] for policy in simulated.raw["policies"]] == ["TA", "EQ"]
    assert simulated.csv.count("\n") == 1 + 2 * 2 * 40
    try:
        coplace.simulate("set:NONE")
    except coplace.Error as error:
        assert error.status == 2 and "NONE" in error.words, error
    else:
        raise AssertionError("a set that there is not was simulated")
    print("VERIFIED")


if __name__ == "__main__":
    main()
