"""Tasks that can run on one core, on all cores or on a device: the node decides where, this program runs them.

    from coplace import offload

    with offload.connect("product") as node:
        c = node.run({"gpu": on_gpu, "all-cores": on_all_cores, "core": on_one_core})

The kernels are ranked by their order, the best first. Without a service (`coplace offload serve`) the first one runs at
once. What a kernel may use is in `Start`; the function itself sees to it that it does not use more.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, TypeVar

from . import Error, _output

__all__ = ["Node", "Refused", "Start", "connect"]

T = TypeVar("T")
_VERSION = 1


class Refused(RuntimeError):
    """The service does not do what it was asked for; its reason is the message."""


@dataclass(frozen=True)
class Start:
    """Where a kernel is to run. Without a service `resource` is None."""

    kind: str
    resource: Optional[str] = None
    index: int = 0
    #: A CPU list such as "0-3"; of a device the cores of its host thread.
    cores: str = ""


class Node:
    """A connection to the service; `resources` are the names of what is there."""

    def __init__(self, stream: Optional[socket.socket], program: str) -> None:
        self.resources: list[str] = []
        self._stream, self._next = stream, 0
        if stream is not None:
            self._lines = stream.makefile("r", encoding="utf-8")
            self._send({"hello": {"version": _VERSION, "program": program}})
            self.resources = [shown["name"] for shown in self._receive()["hello"]["resources"]]

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Gives up the connection, and with it whatever was submitted."""
        if self._stream is not None:
            self._lines.close()
            self._stream.close()
            self._stream = None

    def run(self, kernels: Mapping[str, Callable[[Start], T]], expected_s: Optional[Mapping[str, float]] = None) -> T:
        """Waits until one of the kernels is to start, runs it, and returns what it returned. `kernels` are functions by
        the kind of resource that they are for, the best first; `expected_s` is how long each is expected to take."""
        if not kernels:
            raise ValueError("there is no kernel")
        if self._stream is None:
            kind = next(iter(kernels))
            return kernels[kind](Start(kind))
        task, self._next = self._next, self._next + 1
        offers = [{"on": kind, "expected_ns": round(expected_s[kind] * 1e9) if expected_s and kind in expected_s else None}
                  for kind in kernels]
        self._send({"submit": {"task": task, "kernels": offers}})
        resource = self._receive()["start"]["resource"]
        start = Start(resource["kind"], resource["name"], resource["index"], resource["cores"])
        try:
            return kernels[start.kind](start)
        finally:
            # A service that has gone meanwhile needs not be told.
            try:
                self._send({"ended": {"task": task}})
            except OSError:
                pass

    def _send(self, request: Any) -> None:
        assert self._stream is not None
        self._stream.sendall(json.dumps(request).encode() + b"\n")

    def _receive(self) -> Any:
        line = self._lines.readline()
        if not line:
            raise ConnectionError("the offload service has gone")
        answer = json.loads(line)
        if isinstance(answer, dict) and "refused" in answer:
            raise Refused(answer["refused"]["why"])
        return answer


def connect(program: Optional[str] = None, path: Optional[os.PathLike[str]] = None) -> Node:
    """Connects to the service that listens at `path`, by default this user's. Where none runs, every kernel that comes
    first runs at once."""
    name = program or Path(sys.argv[0]).name or "python"
    if path is None:
        try:
            path = Path(_output("offload", "socket").strip())
        except (Error, FileNotFoundError):
            return Node(None, name)
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        stream.connect(os.fspath(path))
    except OSError:
        stream.close()
        return Node(None, name)
    return Node(stream, name)
