"""Translators with timers, ages and the time of a run, for every engine.

They are in a module of their own, so that worker processes can import them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cbp import (
    Input,
    Output,
    State,
    Timers,
    Translate,
    View,
    framed,
)


class Stamps(Translate):
    """What a group may know of its run: the epoch, the time, and the frame that is read."""

    items = Input("k BIGINT, t INT", route_by="k", frame_by=framed(lambda r: r.t or 0))
    first = State("k BIGINT, epoch BIGINT, at TIMESTAMP")
    lines = Output("k BIGINT, epoch BIGINT, at TIMESTAMP, first TIMESTAMP, frame STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        run = group.run
        epoch, first = next(((s.epoch, s.at) for s in group.first), (run.epoch, run.time))
        out.first(k=key.k, epoch=epoch, at=first)
        for _ in group.items:
            frame = str(group.run.frame("items"))
            out.lines(k=key.k, epoch=group.run.epoch, at=run.time, first=first, frame=frame)


class SingleStamps(Translate):
    """The same for single records of one input beside the groups of another."""

    items = Input("k BIGINT", route_by="k")
    singles = Input("k BIGINT, t INT", frame_by=framed(lambda r: r.t or 0))
    lines = Output("k BIGINT, epoch BIGINT, at TIMESTAMP, frames STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        frames = f"{group.run.frames('singles')} {group.run.frames('items')}"
        for row in [*group.items, *group.singles]:
            out.lines(k=row.k, epoch=group.run.epoch, at=group.run.time, frames=frames)


class Reminders(Translate):
    """Timers that are set, kept, dropped, set twice, and set in the past; a count beside them."""

    orders = Input("k BIGINT, wait INT", route_by="k")
    open = State("k BIGINT, n BIGINT")
    wake = Timers()
    log = Output("k BIGINT, what STRING, n BIGINT, at TIMESTAMP")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        now, timers, waits = group.run.time, list(group.wake), [r.wait or 0 for r in group.orders]
        n = sum(row.n for row in group.open) + len(waits)
        for timer in timers:
            due = timer.at <= now
            out.log(key.k, "due" if due else "pending", n, timer.at)
            if not due and 3 not in waits:
                out.wake(*timer)
        for wait in waits:
            out.wake(k=key.k, at=now + timedelta(hours=wait))
        if n < 5:
            out.open(key.k, n)


class Nudges(Reminders):
    """Sets timers of other groups, too, which need not have any record."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.wake.remote((key.k or 0) + 1, group.run.time + timedelta(hours=2, microseconds=1))
        for timer in group.wake:
            out.log(key.k, "mine", 0, timer.at)


class Parting(Translate):
    """A state that expires, beside one that stays and timers; a view that expires later."""

    orders = Input("k BIGINT, wait INT", route_by="k")
    seen = State("k BIGINT, n BIGINT, wait INT", expire="50 minutes")
    total = State("k BIGINT, n BIGINT")
    top = View("k BIGINT, wait INT, n BIGINT", key="k, wait", expire="2 hours")
    wake = Timers()
    log = Output("k BIGINT, seen BIGINT, total BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        waits = [row.wait or 0 for row in group.orders]
        seen = [*((row.n, row.wait) for row in group.seen), *((0, wait) for wait in waits)]
        total = sum(row.n for row in group.total) + len(waits)
        for n, wait in seen if 4 not in waits else []:  # sometimes the group forgets
            out.seen(k=key.k, n=n + 1, wait=wait)
        for wait in {*(row.wait for row in group.top), *waits}:
            out.top(k=key.k, wait=wait, n=total)
        for wait in waits:
            if wait > 2:
                out.wake(k=key.k, at=group.run.time + timedelta(hours=wait))
        out.total(k=key.k, n=total)
        out.log(k=key.k, seen=len(seen), total=total)


class PartingItems(Translate):
    """Kept records that expire by their group, in a state and in a view."""

    orders = Input("k BIGINT, id INT, verb STRING", route_by="k")
    items = View("k BIGINT, id INT, n BIGINT", keep=True, key="k, id", expire="50 minutes")
    last = State("k BIGINT, id INT, n BIGINT", keep=True, key="k, id", expire="2 hours")
    first = State("k BIGINT, id INT", keep=True, key="k, id")
    log = Output("k BIGINT, items STRING, last STRING, first STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        lists = (str([tuple(row) for row in rows]) for rows in (group.items, group.last))
        out.log(key.k, *lists, str([row.id for row in group.first]))
        for order in group.orders:
            record = group.items.get(id=order.id)
            if order.verb == "put":
                out.items(k=key.k, id=order.id, n=1 if record is None else record.n + 1)
            elif order.verb == "delete":
                out.items.delete(id=order.id)
            elif order.verb == "again":
                for row in group.items:
                    out.items(*row)
            if order.verb != "look":
                out.last(k=key.k, id=order.id, n=0)
                out.first(k=key.k, id=order.id)


class Clock(Translate):
    """Outer state: every key is called in every epoch, with or without input."""

    ticks = Input("a STRING, b INT", route_by="a, b")
    ages = State("a STRING, b INT, age INT", grouping="outer")
    log = Output("a STRING, b INT, age INT", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        age = max((row.age for row in group.ages), default=-1) + 1
        fresh = any(True for _ in group.ticks)
        if age < 3 or fresh:
            out.ages(a=key.a, b=key.b, age=0 if fresh else age)
        out.log(a=key.a, b=key.b, age=age)
