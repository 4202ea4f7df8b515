"""One dataflow that sets records aside, step by step on two engines; its code fails on purpose."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from cbp import (
    DataflowBuilder,
    Input,
    Output,
    RunAny,
    State,
    Timers,
    Translate,
    TranslateArrow,
    TranslateRecords,
    View,
    by,
    framed,
)
from cbp.engine.columnar.json_records import record_text
from cbp.engine.direct import LocalEngine
from cbp.engine.interface.engine import Engine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.run_context import time_of
from tests.cbp.engine.epochs import FIRST_MS, order_free
from tests.driver import Driver


class Ledger(Translate):
    """Adds numbers up and keeps the last one; broken code fails on what a record says."""

    rows = Input("k STRING, n BIGINT, how STRING", route_by="k")
    more = Input("k STRING, n BIGINT", route_by="k", order_by="n")
    sums = State("k STRING, n BIGINT, last BIGINT")
    seen = View("k STRING, id BIGINT, n BIGINT", keep=True, key="k, id")
    wake = Timers()
    log = Output("k STRING, n BIGINT, last BIGINT", key="k")

    def __init__(self, *, broken: bool) -> None:
        self.broken = broken

    def translate(self, key: Any, group: Any, out: Any) -> Any:
        old = next(iter(group.sums), None)
        n, last = (old.n, old.last) if old else (0, 0)
        hows, times = [], dict[int, int]()
        for row in group.rows:
            n, last = n + row.n, row.n
            before = group.seen.get(row.n)
            times[row.n] = times.get(row.n, before.n if before else 0) + 1
            out.seen(k=key.k, id=row.n, n=times[row.n])
            hows.append(row.how)
            if row.how == "late":
                out.wake(k=key.k, at=group.run.time + timedelta(minutes=90))
        n += sum(row.n for row in group.more)
        if any(timer.at <= group.run.time for timer in group.wake) and last == 3 and self.broken:
            raise ValueError("woken too late")
        out.sums(k=key.k, n=n, last=last)
        out.log(k=key.k, n=n, last=last)
        return self._fail(key, out, hows) if self.broken else None

    def _fail(self, key: Any, out: Any, hows: list[str | None]) -> Any:
        if "raise" in hows:
            raise ValueError(f"no {key.k}")
        if "type" in hows:
            out.log(k=key.k, n="text", last=None)
        if "foreign" in hows:
            out.sums(k=f"{key.k}!", n=0, last=0)
        if "twice" in hows:
            out.log(k=key.k, n=0, last=0)
        return "lost" if "returns" in hows else None


class SumArrow(TranslateArrow):
    """The sums of the ledger, by tables; broken code fails on the whole call."""

    rows = Input("k STRING, n BIGINT, how STRING", route_by="k")
    more = Input("k STRING, n BIGINT", route_by="k", order_by="n")
    kept = State("k STRING, n BIGINT")

    def __init__(self, *, broken: bool) -> None:
        self.broken = broken

    def translate(self, groups: Any, out: Any) -> None:
        hows = set(groups.rows.column("how").to_pylist())
        if self.broken and "raise" in hows:
            message = "a call with a bad record"
            raise ValueError(message)
        n = groups.sums("rows", "n") + groups.sums("more", "n") + groups.sums("kept", "n")
        wrong = self.broken and "type" in hows
        out.kept(groups.keys.append_column("n", pa.array(n.astype(str) if wrong else n)))
        if self.broken and "foreign" in hows:
            out.kept(pa.table({"k": ["nobody"], "n": [0]}))


class Lines(TranslateRecords):
    """Numbers of lines; a line that is no number fails."""

    rows = Input("k STRING, n BIGINT, how STRING")
    numbers = Output("k STRING, n BIGINT")

    def __init__(self, *, broken: bool) -> None:
        self.broken = broken

    def translate(self, record: Any, out: Any) -> Any:
        out.numbers(k=record.k, n=record.n)
        if self.broken and record.how == "raise":
            raise ValueError(record.k)
        if self.broken and record.how == "type":
            out.numbers(k=record.k, n="text")
        return "lost" if self.broken and record.how == "returns" else None


class Both(Translate):
    """Groups, and beside them single records; each fails on its own."""

    rows = Input("k STRING, n BIGINT, how STRING", route_by="k")
    more = Input("k STRING, n BIGINT")
    sums = State("k STRING, n BIGINT")
    log = Output("k STRING, n BIGINT")

    def __init__(self, *, broken: bool) -> None:
        self.broken = broken

    def translate(self, key: Any, group: Any, out: Any) -> None:
        rows, more = list(group.rows), list(group.more)
        if self.broken and any(row.how == "raise" for row in rows):
            raise ValueError(key.k)
        if self.broken and any(row.n == 3 for row in more):
            raise ValueError(more)
        for row in more:
            out.log(k=row.k, n=row.n)
        if key is not None:
            out.sums(k=key.k, n=sum(row.n for row in (*rows, *group.sums)))


class Keyed(Translate):
    """Functions for key and order; a record without a text has no key, one with 0 no order."""

    key = "k STRING"
    rows = Input(
        "k STRING, n BIGINT, how STRING",
        route_by=by(lambda row: row.k.upper(), "STRING"),
        order_by=by(lambda row: 12 // row.n, "BIGINT"),
    )
    more = Input("k STRING, n BIGINT", route_by="k")
    sums = State("k STRING, n BIGINT")
    log = Output("k STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        rows, more = list(group.rows), list(group.more)
        for row in rows:
            out.log(k=key.k, n=row.n)
        out.sums(k=key.k, n=sum(row.n for row in (*rows, *more, *group.sums)))


class MendedKeyed(Keyed):
    """The same with functions that never fail."""

    rows = Input(
        "k STRING, n BIGINT, how STRING",
        route_by=by(lambda row: (row.k or "none").upper(), "STRING"),
        order_by=by(lambda row: 12 // (row.n or 1), "BIGINT"),
    )


class Framed(Translate):
    """Frames by a number; a record that says so has no frame, and another one a wrong one."""

    rows = Input(
        "k STRING, n BIGINT, how STRING",
        route_by="k",
        frame_by=framed(lambda row, memo: _frame(row, memo), memo=True),
    )
    more = Input("k STRING, n BIGINT", route_by="k")
    runnable = RunAny()
    sums = State("k STRING, n BIGINT")
    log = Output("k STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        rows, more = list(group.rows), list(group.more)
        if any(row.how == "late" for row in rows):
            raise ValueError(key.k)
        for row in (*rows, *more):
            out.log(k=key.k, n=row.n)
        out.sums(k=key.k, n=sum(row.n for row in (*rows, *more, *group.sums)))


def _frame(row: Any, memo: Any) -> Any:
    seen = memo or []
    seen.append(row.n)
    if row.how == "raise":
        message = "no frame"
        raise ValueError(message)
    return (None if row.how == "type" else row.n), seen[-3:]


class MendedFramed(Framed):
    """The same with functions that never fail."""

    rows = Input("k STRING, n BIGINT, how STRING", route_by="k", frame_by=framed(lambda row: row.n))

    def translate(self, key: Any, group: Any, out: Any) -> None:
        rows, more = list(group.rows), list(group.more)
        for row in (*rows, *more):
            out.log(k=key.k, n=row.n)
        out.sums(k=key.k, n=sum(row.n for row in (*rows, *more, *group.sums)))


FORMS: dict[str, Callable[[bool], Translate | TranslateArrow | TranslateRecords]] = {
    "groups": lambda broken: Ledger(broken=broken),
    "tables": lambda broken: SumArrow(broken=broken),
    "lines": lambda broken: Lines(broken=broken),
    "both": lambda broken: Both(broken=broken),
    "keyed": lambda broken: Keyed() if broken else MendedKeyed(),
    "framed": lambda broken: Framed() if broken else MendedFramed(),
}


def flow_of(form: str, *, broken: bool, most: int | None = 10_000) -> Dataflow:
    """Return a dataflow of one stage that sets aside up to `most` records."""
    builder = DataflowBuilder("flow")
    sources = {"rows": builder.source("rows", "k STRING, n BIGINT, how STRING")}
    if form != "lines":
        sources["more"] = builder.source("more", "k STRING, n BIGINT")
    builder.stage(
        "stage",
        FORMS[form](broken),
        buckets=4,
        on_error="set_aside",
        set_aside_max=most,
        **sources,
    )
    return builder.build()


class Pair:
    """One dataflow on both engines, step by step."""

    def __init__(
        self,
        folder: Path,
        form: str,
        *,
        mask: int = -1,
        most: int = 10_000,
        engine: Engine | None = None,
    ) -> None:
        self.form, self.most, self.hour = form, most, 0
        dataflow = flow_of(form, broken=True, most=most)
        if engine is None:
            engine = LocalEngine(cache=str(folder / "cache"), hash_mask=mask)
        self.driver = Driver(engine, dataflow, folder / "tables")
        self.reference = ReferenceEngine(dataflow)

    def tick(self, hours: int = 1) -> None:
        """Let time pass."""
        self.hour += hours
        self.driver.time_ms = FIRST_MS + self.hour * 3_600_007
        self.reference.time = time_of(self.driver.time_ms)

    def feed(self, **records: list[tuple[Any, ...]]) -> None:
        """Bring an increment of every source, and let both run."""
        self.tick(0)
        names = {"rows": ("k", "n", "how"), "more": ("k", "n")}
        for source in self.driver.dataflow.sources:
            given = records.get(source, [])
            rows = [dict(zip(names[source], row, strict=True)) for row in given]
            self.driver.feed(source, rows)
            self.reference.feed(source, rows)
        self.driver.run_until_idle()
        self.reference.run_until_idle()

    def wake(self, hours: int) -> None:
        """Let time pass, and both run for their timers."""
        self.tick(hours)
        self.driver.run_until_idle()
        self.reference.run_until_idle()

    def close(self) -> None:
        """Close all open frames, and let both run."""
        for source in self.driver.dataflow.sources:
            self.driver.close(source)
            self.reference.close(source)
        self.driver.run_until_idle()
        self.reference.run_until_idle()

    def mend(self) -> None:
        """Take code that fails no more; states and what is set aside stay."""
        after = flow_of(self.form, broken=False, most=self.most)
        self.driver.dataflow = after
        self.reference.take_over(after)

    def give_back(self) -> None:
        """Give back what is set aside."""
        self.tick(0)
        self.driver.give_back("stage")
        self.reference.give_back("stage")

    def compare(self) -> None:
        """Compare states, outputs and what is set aside."""
        spec = self.driver.dataflow.stages["stage"].translator
        for state in spec.states:
            kept = order_free(self.driver.state("stage", state.name))
            assert kept == order_free(self.reference.state("stage", state.name)), state.name
        for output in spec.outputs:
            mine, theirs = (
                [rows for rows in one.outputs(f"stage.{output.name}") if rows]
                for one in (self.driver, self.reference)
            )
            assert list(map(order_free, mine)) == list(map(order_free, theirs)), output.name
        assert self.aside() == self.reference_aside()

    def aside(self) -> list[tuple[Any, ...]]:
        """Return (input, key, record, code) of what is set aside, in order."""
        return [
            (one["input"], one["key"], one["record"], one["code"])
            for one in self.driver.set_aside("stage")
        ]

    def reference_aside(self) -> list[tuple[Any, ...]]:
        """Return the same of the reference engine."""
        spec = self.driver.dataflow.stages["stage"].translator

        def text(values: dict[str, Any] | None, schema: Any) -> str | None:
            return None if values is None else record_text(tuple(values.values()), schema)

        return [
            (
                one["input"],
                text(one["key"], spec.key),
                text(one["record"], one["input"] and spec.input(one["input"]).schema),
                one["code"],
            )
            for one in self.reference.set_aside("stage")
        ]
