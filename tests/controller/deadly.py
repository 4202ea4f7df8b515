"""Translators that end the process that calls them, each in its own way."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from typing import Any

from cbp import Input, Loopback, Output, Translate, View

MEMORY_BYTES = 1 << 30


def end(how: str) -> None:
    """End this process."""
    if how == "exit":
        os._exit(3)
    if how == "crash":
        ctypes.string_at(0)
    if how == "memory":
        bytearray(2 * MEMORY_BYTES)
    if how == "kill":  # as the system does when memory has run out
        os.kill(os.getpid(), signal.SIGKILL)


class Deadly(Translate):
    """Ends the process in the way that a record names; says who it was if there is none."""

    items = Input("how STRING", route_by="how")
    pids = Output("how STRING, pid BIGINT", key="how")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for record in group.items:
            end(record.how)
        out.pids(how=key.how, pid=os.getpid())


class DeadlyRounds(Translate):
    """Hands a number on until it is 0; ends the process on the way, unless a file is there."""

    items = Input("k BIGINT, n BIGINT, file STRING", route_by="k")
    on = Loopback("k BIGINT, n BIGINT, file STRING", route_by="k", supersteps=100)
    calls = View("k BIGINT, calls BIGINT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        for record in (*group.items, *group.on):
            if record.n == 3 and not Path(record.file).exists():
                Path(record.file).touch()
                end("kill")
            if record.n:
                out.on(k=key.k + 1, n=record.n - 1, file=record.file)
        out.calls(k=key.k, calls=1 + sum(row.calls for row in group.calls))


def line_of(text: str) -> str:
    """Return `file:line` of the line of this module that begins with a text."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = (n for n, line in enumerate(lines, 1) if line.strip().startswith(text))
    return f"{__file__}:{number}"
