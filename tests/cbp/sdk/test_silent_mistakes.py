"""What an author does wrong without a word of Python's: an error in kit and engine, or found by
`check_split`, or, where neither can know, the same answer in both."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Output, State, Translate, TranslateRecords, by
from cbp.engine.direct import LocalEngine
from cbp.errors import CbpError, DefinitionError
from cbp.testing import check_split, run_dataflow
from tests.driver import Driver

THIS = Path(__file__).name
COLUMNS = "url STRING, n INT, tags ARRAY<STRING>"
RECORDS = [("a", 1, ["q", "r"]), ("a", 2, ["s", "t"]), ("a", 3, []), ("b", 1, None)]
Function = Callable[[Any, Any, Any], Any]


def stage(function: Function, columns: str = "url STRING, n INT", **more: Any) -> type[Translate]:
    class Made(Translate):
        urls = Input(COLUMNS, route_by="url")
        seen = State("url STRING, n INT")
        totals = Output(columns)

        def translate(self, key: Any, group: Any, out: Any) -> None:
            function(key, group, out)

    for name, value in more.items():
        setattr(Made, name, value)
    return Made


def in_kit(translator: Any) -> list[tuple[Any, ...]]:
    builder = DataflowBuilder("flow")
    builder.stage("one", translator, urls=builder.source("urls", COLUMNS))
    records = [(url, n, None if tags is None else [*tags]) for url, n, tags in RECORDS]
    actual = run_dataflow(builder.build(), {"urls": [records]}).outputs["one.totals"][0]
    return sorted(map(tuple, actual), key=repr)


def in_engine(translator: Any, folder: Path) -> list[tuple[Any, ...]]:
    builder = DataflowBuilder("flow")
    builder.stage("one", translator, urls=builder.source("urls", COLUMNS))
    driver = Driver(LocalEngine(cache=f"{folder}/cache"), builder.build(), folder / "t")
    driver.feed("urls", [dict(zip(("url", "n", "tags"), row, strict=True)) for row in RECORDS])
    driver.run_until_idle()
    return sorted((tuple(row.values()) for row in driver.outputs("one.totals")[0]), key=repr)


def failures(translator: type[Any], folder: Path) -> list[CbpError]:
    """Return what the kit and the engine say."""
    actual = []
    for run in (in_kit, lambda one: in_engine(one, folder)):
        with pytest.raises(CbpError) as caught:
            run(translator())
        actual.append(caught.value)
    assert actual[0].code == actual[1].code
    return actual


def loop_within(key: Any, group: Any, out: Any) -> None:
    pairs = 0
    for _ in group.urls:
        for _ in group.urls:
            pairs += 1
    out.totals(url=key.url, n=pairs)


def zipped(key: Any, group: Any, out: Any) -> None:
    out.totals(url=key.url, n=sum(1 for _ in zip(group.urls, group.urls, strict=False)))


def searched(key: Any, group: Any, out: Any) -> None:
    actual = ("a", 1, ["q", "r"]) in group.urls
    out.totals(url=key.url, n=len(list(group.urls)) + actual)


def left_and_begun(key: Any, group: Any, out: Any) -> None:
    for _ in group.urls:
        break
    out.totals(url=key.url, n=len(list(group.urls)))


@pytest.mark.parametrize("function", [loop_within, zipped, searched, left_and_begun])
def test_readers_that_take_records_from_each_other_are_told(
    function: Function, tmp_path: Path
) -> None:
    """A loop within a loop, two at once, and what was looked for: they counted fewer, silently."""
    for error in failures(stage(function), tmp_path):
        assert error.code == "input_read_twice"
        assert "list(group." in error.message
        assert THIS in error.details["place"]


def asked_for_truth(key: Any, group: Any, out: Any) -> None:
    out.totals(url=key.url, n=1 if group.seen else 0)


def compared(key: Any, group: Any, out: Any) -> None:
    out.totals(url=key.url, n=1 if group.seen == [] else 0)


def or_else(key: Any, group: Any, out: Any) -> None:
    out.totals(url=key.url, n=len(list(group.seen or group.urls)))


@pytest.mark.parametrize("function", [asked_for_truth, compared, or_else])
def test_a_flow_has_no_truth(function: Function, tmp_path: Path) -> None:
    """`if group.seen` was always true, and `group.seen == []` never: both say what to ask."""
    for error in failures(stage(function), tmp_path):
        assert error.code == "author_code_failed"
        assert "is an iterator" in error.details["cause"]
        assert "rows = list(group.seen)" in error.details["cause"]


def read_in_parts(key: Any, group: Any, out: Any) -> None:
    rest = iter(group.urls)
    n = 0
    for _ in rest:
        n = 1
        break
    n += sum(1 for row in (next(rest, None),) if row is not None)
    out.totals(url=key.url, n=n + len(list(rest)))


def test_reading_on_is_no_second_reading(tmp_path: Path) -> None:
    """A loop that was left, `next`, and a list of the rest, all of one iterator."""
    expected = [("a", 3), ("b", 1)]
    assert in_kit(stage(read_in_parts)()) == expected
    assert in_engine(stage(read_in_parts)(), tmp_path) == expected


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("MAP<FLOAT, INT>", {0.1: 1, 0.10000000149011612: 2}),
        ("MAP<DOUBLE, INT>", {float("nan"): 1, -float("nan"): 2}),
    ],
)
def test_keys_of_a_map_that_become_one_are_refused(type_: str, value: Any, tmp_path: Path) -> None:
    """One of the two values was lost, or no reader could find it."""
    emits = stage(lambda key, group, out: out.totals(m=value), f"m {type_}")
    for error in failures(emits, tmp_path):
        assert "two keys are equal" in error.details["cause"]


def test_a_function_of_a_key_changes_no_record(tmp_path: Path) -> None:
    """A list that `by(...)` takes from is whole in `translate`, in the kit as in the engine."""

    def take(record: Any) -> str:
        return record.tags.pop() if record.tags else ""

    def emits(key: Any, group: Any, out: Any) -> None:
        for row in group.urls:
            out.totals(tags=row.tags)

    ordered = Input(COLUMNS, route_by="url", order_by=by(take, "STRING"))
    expected = sorted(((row[2],) for row in RECORDS), key=repr)
    made = stage(emits, "tags ARRAY<STRING>", urls=ordered)
    assert in_kit(made()) == expected
    assert in_engine(made(), tmp_path) == expected
    routed = Input(COLUMNS, route_by=by(take, "STRING"))
    made = stage(emits, "tags ARRAY<STRING>", urls=routed, seen=None, key="tag STRING")
    assert in_kit(made()) == expected
    assert in_engine(made(), tmp_path) == expected


class Takes(TranslateRecords):
    urls = Input(COLUMNS)
    totals = Output("tags ARRAY<STRING>")

    def translate(self, record: Any, out: Any) -> None:
        if record.tags:
            record.tags.pop()
        out.totals(record.tags)


def test_a_stage_changes_no_record_of_another() -> None:
    """Two stages that read one source have lists of their own."""
    builder = DataflowBuilder("flow")
    source = builder.source("urls", COLUMNS)
    for name in ("one", "two"):
        builder.stage(name, Takes(), urls=source)
    actual = run_dataflow(builder.build(), {"urls": [[("a", 1, ["q", "r", "s"])]]}).outputs
    assert [tuple(actual[f"{name}.totals"][0][0]) for name in ("one", "two")] == [(["q", "r"],)] * 2


def test_a_column_that_routes_twice_is_a_mistake() -> None:
    """It was a KeyError in the engine and a TypeError in the kit."""
    with pytest.raises(DefinitionError) as caught:
        stage(loop_within, urls=Input(COLUMNS, route_by="url, url"))().spec()
    assert caught.value.mistake.code == "route_by_invalid"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            ["url", "n"],
            "write all columns in one string, route_by='url, n', or let a function compute the "
            "value, route_by=by(lambda record: (record.url, record.n), 'STRING, INT'); got "
            "route_by=['url', 'n']",
        ),
        (("n",), "write route_by='n', or let a function compute the value, "),
        (lambda row: row.url, "route_by='url, n', or let a function compute the value, "),
        ([["url"]], "route_by='url, n', or let a function compute the value, "),
    ],
)
def test_a_key_of_several_columns_is_shown_as_it_is_written(given: Any, says: str) -> None:
    """Who gives a list, a tuple or a bare function reads the line that does, with these columns."""
    with pytest.raises(DefinitionError) as caught:
        stage(loop_within, urls=Input(COLUMNS, route_by=given))().spec()
    assert caught.value.mistake.code == "route_by_invalid"
    assert says in caught.value.mistake.message


COUNTED: list[str] = []


def outside(key: Any, group: Any, out: Any) -> None:
    COUNTED.append(key.url)
    out.totals(url=key.url, n=len(COUNTED))


def enclosed() -> Function:
    n = 0

    def count(key: Any, group: Any, out: Any) -> None:
        nonlocal n
        n += 1
        out.totals(url=key.url, n=n)

    return count


@pytest.mark.parametrize(
    "function",
    [
        lambda key, group, out: out.totals(url=key.url, n=random.randrange(10**9)),
        lambda key, group, out: out.totals(url=key.url, n=time.perf_counter_ns() % 10**9),
        outside,
        enclosed(),
    ],
    ids=["random", "time", "module", "closure"],
)
def test_the_kit_finds_what_differs_from_run_to_run(function: Function) -> None:
    """Chance, the clock, and what is kept in a module or a closure: `check_split` runs twice.

    The engine does not look at modules and closures, which other code may change, too.
    """
    with pytest.raises(AssertionError, match="the same batch again"):
        check_split(stage(function), [[("a", 1, None)], [("b", 2, None)]])
