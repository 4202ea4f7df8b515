"""Stages run epoch by epoch on an engine and on the reference, and compared."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType, SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from cbp import DataflowBuilder
from cbp.engine.reference.engine import ReferenceEngine
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.run_context import time_of
from cbp.model.dataflow.stage import Computed
from tests import flows, kept_flows, message_flows, timed_flows
from tests.driver import Driver

FIRST_MS = 1_700_000_000_000
"""Time of the first runs, in milliseconds since 1970."""

NARROW = ~((1 << 60) - 1)  # sixteen hashes in all


_text = st.sampled_from(["", "a", "b", "ab", "ä", "z" * 300, None])


_small = st.integers(0, 5)


_orders = {
    "k": st.integers(0, 1),
    "how": st.sampled_from(
        ["add", "add", "add", "thin", "change", "double", "shuffle", "stop", "blind", "keep"]
    ),
    "value": st.sampled_from([None, 1.0, -2.5, float("nan"), float("inf")]),
    "many": st.integers(0, 12),
}


_TO = ["a", "b", "c", "", "*", "*items", "*other,kept", "*kept", "*mail"]


_MESSAGE = {"id": _small, "to": st.lists(st.sampled_from(_TO), max_size=3)}


_HEARD = ["a", "b", "c", "*", "*items", "*kept", "*kept,mail"]


_ANYWHERE = [*_TO, "x", "y", "x", "y", "@x", "@y", "@x", "@y"]


_PROBE: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "items": _MESSAGE,
    "other": _MESSAGE,
    "orders": {
        "k": st.sampled_from(["a", "b", "c", "z"]),
        "verb": st.sampled_from(["send", "send", "bind", "bind", "write", "forget"]),
        "id": _small,
        "to": st.lists(st.sampled_from(_ANYWHERE), max_size=4),
    },
}


LEDGER = ["put"] * 8 + ["delete", "again", "get", "from", "below", "within", "of", "all", "first"]
LEDGER += ["down", "back", "last"]


CASES: dict[str, tuple[type, dict[str, dict[str, st.SearchStrategy[Any]]]]] = {
    "url_count": (flows.UrlCount, {"urls": {"url": _text}}),
    "sequences": (
        flows.Sequences,
        {
            "left": {"k": st.one_of(_small, st.none()), "t": _small, "v": _text},
            "right": {"k": _small, "v": _text},
        },
    ),
    "stamps": (timed_flows.Stamps, {"items": {"k": _small, "t": st.integers(0, 2)}}),
    "reminders": (timed_flows.Reminders, {"orders": {"k": _small, "wait": st.integers(-1, 4)}}),
    "nudges": (timed_flows.Nudges, {"orders": {"k": st.integers(0, 2), "wait": st.just(0)}}),
    "parting": (timed_flows.Parting, {"orders": {"k": _small, "wait": st.integers(0, 4)}}),
    "parting_items": (
        timed_flows.PartingItems,
        {
            "orders": {
                "k": _small,
                "id": st.integers(0, 2),
                "verb": st.sampled_from(["put", "put", "delete", "again", "look"]),
            }
        },
    ),
    "single_stamps": (
        timed_flows.SingleStamps,
        {"items": {"k": _small}, "singles": {"k": _small, "t": st.integers(0, 1)}},
    ),
    "members": (flows.Members, {"items": {"url": _text, "drop": st.booleans()}}),
    "clock": (timed_flows.Clock, {"ticks": {"a": _text, "b": st.one_of(_small, st.none())}}),
    "reach": (
        flows.Reach,
        {"edges": {"src": _small, "dst": st.one_of(_small, st.none())}, "seeds": {"node": _small}},
    ),
    "tags": (
        flows.Tags,
        {name: {"id": _small, "tags": st.lists(_text, max_size=4)} for name in ("posts", "later")},
    ),
    "parcels": (
        flows.Parcels,
        {
            "orders": {
                "k": st.sampled_from(["a", "b", "ab", None]),
                "part": st.sampled_from([0.0, 1.0, -1.0, float("nan"), None]),
                "verb": st.sampled_from(["give", "give", "mark", "forget", "blind", "look"]),
                "n": _small,
            }
        },
    ),
    "ranks": (
        flows.Ranks,
        {
            "items": {
                "k": st.sampled_from(["a", "a", "b", None]),
                "part": st.sampled_from([1.0, 1.0, 0.0, -0.0, float("nan")]),
                "n": st.one_of(st.integers(-2, 2), st.none()),
            }
        },
    ),
    "rumours": (
        message_flows.Rumours,
        {"items": _MESSAGE | {"to": st.lists(st.sampled_from(_HEARD))}},
    ),
    "probe": (message_flows.Probe, _PROBE),
    "outer_probe": (message_flows.OuterProbe, _PROBE),
    "nested": (flows.Nested, {"edges": {"src": _small, "dst": st.one_of(_small, st.none())}}),
    "framed": (
        flows.Framed,
        {
            "left": {"k": _small, "t": st.integers(0, 2), "v": _text},
            "right": {"k": _small, "t": st.integers(0, 2)},
        },
    ),
    "framed_words": (
        flows.FramedWords,
        {"lines": {"k": _small, "t": st.integers(0, 2)}},
    ),
    "ledger": (
        kept_flows.Ledger,
        {
            "orders": {
                "k": st.sampled_from(["a", "b", "b", "l", None, "f"]),
                "how": st.sampled_from(LEDGER),
                "part": st.sampled_from([0.0, -0.0, 1.0, -1.0, float("nan"), None]),
                "name": st.sampled_from(["", "x", "ä", None]),
                "n": st.one_of(st.none(), st.integers(0, 3)),
            }
        },
    ),
    "shelf": (kept_flows.Shelf, {"orders": _orders}),
    "outer_shelf": (kept_flows.OuterShelf, {"orders": _orders}),
    "gathered": (
        message_flows.Gathered,
        {"left": {"k": _small, "v": _text}, "right": {"v": _text, "n": st.integers(0, 1)}},
    ),
    "board": (
        message_flows.Board,
        {
            "items": {
                "id": st.integers(0, 1),
                "to": st.lists(st.sampled_from(["a", "b", "*", "*kept"])),
            },
            "notes": {
                "verb": st.sampled_from(["send", "bind", "write", "look"]),
                "id": st.integers(0, 1),
                "to": st.lists(st.sampled_from(["a", "b", "c", "@x", "*kept"]), max_size=3),
            },
        },
    ),
    "split": (flows.Split, {"lines": {"text": st.sampled_from(["a b a", "", "b", None, "ä c"])}}),
}


def dataflow_of(case: str, *, buckets: int = 4) -> Dataflow:
    """Wire one translator to one source per input."""
    translator = CASES[case][0]()
    builder = DataflowBuilder(case)
    wiring: dict[str, Any] = {
        spec.name: builder.source(f"s_{spec.name}", str(spec.schema))
        for spec in translator.spec().inputs
        if not spec.loopback
    }
    builder.stage("stage", translator, buckets=buckets, **wiring)
    return builder.build()


def epochs_of(case: str) -> st.SearchStrategy[list[dict[str, list[dict[str, Any]]]]]:
    """Draw some epochs of records for every input of a case."""
    inputs = CASES[case][1]
    records_ = {n: st.lists(st.fixed_dictionaries(c), max_size=12) for n, c in inputs.items()}
    return st.lists(st.fixed_dictionaries(records_), min_size=1, max_size=5)


def order_free(rows: list[dict[str, Any]]) -> list[str]:
    """Return records in one order, whatever their order was, and their times in one zone."""
    return sorted(repr_of(rows))


def repr_of(rows: list[dict[str, Any]]) -> list[str]:
    """Return records as texts that tell any two values apart, and no two NaNs."""
    return [repr(sorted((k, _in_utc(v)) for k, v in row.items())) for row in rows]


def by_receiver(dataflow: Dataflow, flow: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages by the group that gets them; of other flows, the records as they are.

    The order of messages that only their stage reads counts within a group only.
    """
    stage, _, name = flow.partition(".")
    if flow not in dataflow.own_messages():
        return rows
    input_ = dataflow.stages[stage].translator.input(name)
    route = input_.route_by
    if not input_.lies_by_bucket or route is None:
        return rows
    if isinstance(route, Computed):
        function = route.function
        return sorted(rows, key=lambda row: repr(function(SimpleNamespace(**row))))
    columns = route
    return sorted(rows, key=lambda row: repr([row[column] for column in columns]))


def _in_utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def assert_same(
    dataflow: Dataflow,
    driver: Driver,
    epochs: list[dict[str, list[dict[str, Any]]]],
    *,
    ordered: bool = True,
    source: str = "s_",
    within: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Feed both engines, and compare every flow and every state after each epoch.

    The records of `name` go to the source of that name with `source` before it. Runs of each epoch
    have a time of their own. `within` has the largest difference of the values of some columns; the
    others are compared exactly.
    """
    reference = ReferenceEngine(dataflow)
    for number, epoch in enumerate(epochs):
        driver.time_ms = FIRST_MS + number * 3_600_007
        reference.time = time_of(driver.time_ms)
        for name, rows in epoch.items():
            driver.feed(f"{source}{name}", rows)
            reference.feed(f"{source}{name}", rows)
        driver.run_until_idle()
        reference.run_until_idle()
        for stage in dataflow.stages.values():
            for output in stage.translator.outputs:
                flow = f"{stage.name}.{output.name}"
                mine, theirs = driver.outputs(flow), reference.outputs(flow)
                if stage.translator.timers:  # a run for a timer that was dropped gives nothing
                    mine, theirs = ([rows for rows in each if rows] for each in (mine, theirs))
                where = f"{flow}, epoch {number}"
                if within:
                    for ours, expected in zip(mine, theirs, strict=True):
                        assert_close(ours, expected, within, where)
                    continue
                assert list(map(order_free, mine)) == list(map(order_free, theirs)), where
                if ordered:
                    mine, theirs = (
                        [by_receiver(dataflow, flow, rows) for rows in each]
                        for each in (mine, theirs)
                    )
                    assert list(map(repr_of, mine)) == list(map(repr_of, theirs)), where
            for state in stage.translator.states:
                kept = driver.state(stage.name, state.name)
                right = reference.state(stage.name, state.name)
                assert_close(kept, right, within, f"{stage.name}.{state.name}, epoch {number}")


def assert_close(
    rows: list[dict[str, Any]],
    right: list[dict[str, Any]],
    within: Mapping[str, float],
    where: str,
) -> None:
    """Compare records in any order: exactly but for the columns of `within`, which are numbers."""

    def parts(rows: list[dict[str, Any]]) -> list[tuple[str, dict[str, float]]]:
        exact = repr_of([{k: v for k, v in row.items() if k not in within} for row in rows])
        close = [{k: v for k, v in row.items() if k in within} for row in rows]
        return sorted(zip(exact, close, strict=True), key=repr)

    ours, theirs = parts(rows), parts(right)
    assert [exact for exact, _ in ours] == [exact for exact, _ in theirs], where
    for (exact, numbers), (_, expected) in zip(ours, theirs, strict=True):
        for name, number in numbers.items():
            assert abs(number - expected[name]) <= within[name], (where, exact, name)
