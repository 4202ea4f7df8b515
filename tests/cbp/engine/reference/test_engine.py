"""The reference engine: the semantics that every engine is held to."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp import (
    DataflowBuilder,
    Decision,
    Input,
    Output,
    State,
    StaticTable,
    Translate,
    TranslateRecords,
    by,
)
from cbp.engine.columnar.key_hash import key_hash
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.reference.stage import ReferenceStage
from cbp.errors import AuthorCodeError, NotFoundError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.flow.schema import DataType
from cbp.testing import run_epochs
from tests.planned_faults import Crash

THIS = Path(__file__).name


class Count(Translate):
    items = Input("k STRING", route_by="k")
    counts = State("k STRING, n BIGINT")
    totals = Output("k STRING, n BIGINT", key="k")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(1 for _ in group.items) + sum(row.n for row in group.counts)
        out.counts(k=key.k, n=n)
        out.totals(k=key.k, n=n)


class Trace(Translate):
    """Shows its calls: which records came, in which order, on which flow."""

    key = "k STRING"
    left = Input("k STRING, t INT, v STRING", route_by="k", order_by="t")
    right = Input("k STRING, v STRING", route_by=by(lambda r: r.k, "STRING"))
    kept = State("k STRING, v STRING")
    calls = Output("k STRING, left ARRAY<STRING>, right ARRAY<STRING>, kept ARRAY<STRING>")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        left = [row.v for row in group.left]
        out.calls(key.k, left, [r.v for r in group.right], [r.v for r in group.kept])
        for v in left:
            out.kept(k=key.k, v=v)


class Outer(Translate):
    ticks = Input("k STRING", route_by="k")
    ages = State("k STRING, age INT", grouping="outer")
    notes = State("k STRING, note STRING")
    log = Output("k STRING, age INT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        age = max((row.age for row in group.ages), default=-1) + 1
        out.log(key.k, age)
        if age < 2:
            out.ages(key.k, age)
        for note in group.notes:
            out.notes(*note)
        if any(True for _ in group.ticks):
            out.notes(key.k, f"tick {age}")


class Words(TranslateRecords):
    lines = Input("text STRING")
    words = Output("word STRING")

    def translate(self, record: Any, out: Any) -> None:
        for word in record.text.split():
            out.words(word)


class Wrong(Translate):
    """Makes the mistake that the test names, so that each is on a line of this file."""

    items = Input("k STRING", route_by="k")
    kept = State("k STRING, n BIGINT NOT NULL")
    totals = Output("k STRING, n BIGINT")

    def __init__(self, act: Any) -> None:
        self._act = act

    def translate(self, key: Any, group: Any, out: Any) -> None:
        self._act(key, group, out)


def one_stage(translator: Any, **sources: str) -> Dataflow:
    flow = DataflowBuilder("test")
    wired: dict[str, Any] = {name: flow.source(name, schema) for name, schema in sources.items()}
    flow.stage("stage", translator, **wired)
    return flow.build()


def engine_of(translator: Any) -> ReferenceEngine:
    spec = translator.spec()
    return ReferenceEngine(one_stage(translator, **{i.name: str(i.schema) for i in spec.inputs}))


def run(translator: Any, *epochs: dict[str, list[Any]]) -> ReferenceEngine:
    engine = engine_of(translator)
    for epoch in epochs:
        for source, records in epoch.items():
            engine.feed(source, records)
        engine.run_until_idle()
    return engine


def failing(act: Any, *epochs: list[Any]) -> AuthorCodeError:
    with pytest.raises(AuthorCodeError) as caught:
        run(Wrong(act), *({"items": epoch} for epoch in epochs or (["a"],)))
    return caught.value


@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=4), max_size=5))
def test_state_and_last_values_do_not_depend_on_the_split(epochs: list[list[str]]) -> None:
    """Counts are those of one batch, however the records are split into epochs."""
    engine = run(Count(), *({"items": epoch} for epoch in epochs))
    expected = Counter(k for epoch in epochs for k in epoch)
    assert {row["k"]: row["n"] for row in engine.state("stage", "counts")} == expected
    flat = [row for epoch in engine.outputs("stage.totals") for row in epoch]
    assert {row["k"]: row["n"] for row in flat} == expected


def test_groups_are_visited_by_unsigned_hash() -> None:
    """Outputs come in the order of the unsigned hash of the key, whatever the order of arrival."""
    keys = [chr(c) for c in range(ord("a"), ord("z"))]
    (epoch,) = run(Count(), {"items": keys}).outputs("stage.totals")
    expected = sorted(keys, key=lambda k: key_hash([k], [DataType("STRING")]) % 2**64)
    assert [row["k"] for row in epoch] == expected
    assert expected != sorted(expected, key=lambda k: key_hash([k], [DataType("STRING")]))


def test_records_of_a_group_are_ordered_by_order_by_then_arrival() -> None:
    """Nulls first, then ascending; equal ones by increment and position."""
    stage = ReferenceStage("stage", Trace().spec())
    first = [("a", 2, "c"), ("a", None, "a"), ("b", 1, "other")]
    second = [("a", 1, "b"), ("a", 2, "d"), ("a", 2, "e")]
    calls = stage.run({"left": [first, second], "right": [[("a", "y")], [("a", "x")]]})["calls"]
    assert {row[0]: row[1:3] for row in calls} == {
        "a": (["a", "b", "c", "d", "e"], ["y", "x"]),
        "b": (["other"], []),
    }


def test_state_is_presented_in_order_and_a_write_is_seen_in_the_next_epoch() -> None:
    """State records come ordered by all columns, nulls first, one epoch after their write."""
    left = [{"k": "a", "t": t, "v": v} for t, v in enumerate(["b", None, "a"])]
    engine = run(Trace(), {"left": left, "right": []}, {"left": [], "right": [("a", "x")]})
    assert [row["kept"] for (row,) in engine.outputs("stage.calls")] == [[], [None, "a", "b"]]


def test_a_called_group_keeps_only_what_it_emits_again() -> None:
    """State that is not re-emitted is gone; a group that is not called keeps its own."""
    left = [{"k": k, "t": 0, "v": k} for k in "ab"]
    engine = run(Trace(), {"left": left, "right": []}, {"left": [], "right": [("a", "x")]})
    assert engine.state("stage", "kept") == [{"k": "b", "v": "b"}]


def test_outer_grouping_calls_every_key_of_that_state() -> None:
    """Keys in an outer state are called in each epoch; keys of an inner state are not."""
    engine = run(Outer(), {"ticks": ["a"]}, {"ticks": ["b"]}, {"ticks": ["c"]}, {"ticks": ["c"]})
    log = [{row["k"]: row["age"] for row in epoch} for epoch in engine.outputs("stage.log")]
    # In the last epoch "a" is known to `notes` only, which is inner: nobody calls it.
    assert log == [{"a": 0}, {"a": 1, "b": 0}, {"a": 2, "b": 1, "c": 0}, {"b": 2, "c": 1}]
    notes = [row["note"] for row in engine.state("stage", "notes") if row["k"] == "a"]
    assert notes == ["tick 0"]


def test_an_epoch_of_empty_increments_calls_nobody() -> None:
    """It leaves an empty increment on every output, also where grouping is outer."""
    engine = run(Outer(), {"ticks": ["a"]}, {"ticks": []})
    assert engine.outputs("stage.log") == [[{"k": "a", "age": 0}], []]
    assert engine.state("stage", "ages") == [{"k": "a", "age": 0}]


def test_a_stage_waits_for_an_increment_on_every_input() -> None:
    """One input alone does not make a stage run; what waits is not lost."""
    engine = engine_of(Trace())
    engine.feed("right", [("a", "x")])
    assert engine.run_until_idle() == 0
    engine.feed("left", [])
    assert engine.run_until_idle() == 1
    assert [row["right"] for (row,) in engine.outputs("stage.calls")] == [["x"]]


def test_record_wise_calls_keep_the_order_of_arrival() -> None:
    """Outputs of a record-wise stage come in the order of its records."""
    stage = ReferenceStage("stage", Words().spec())
    words = stage.run({"lines": [[("b a",), ("c",)], [("a",)]]})["words"]
    assert [word for (word,) in words] == ["b", "a", "c", "a"]


def test_stages_are_wired_by_column_name() -> None:
    """A consumer sees the columns it declares, whatever their order and whatever else is there."""
    engine = ReferenceEngine(one_stage(Count(), items="extra INT, k STRING"))
    engine.feed("items", [{"k": "a", "extra": 1}])
    engine.run_until_idle()
    assert engine.outputs("stage.totals") == [[{"k": "a", "n": 1}]]


def test_a_chain_of_stages_runs_until_idle() -> None:
    """Every increment goes through all stages, declared in whichever order."""
    flow = DataflowBuilder("chain")
    flow.source("lines", "text STRING")
    flow.stage("count", CountWords(), words="split.words")
    flow.stage("split", Words(), lines="lines")
    engine = ReferenceEngine(flow.build())
    engine.feed("lines", ["a b", "a"])
    engine.feed("lines", ["b"])
    assert engine.run_until_idle() == 4
    assert engine.state("count", "counts") == [{"word": "a", "n": 2}, {"word": "b", "n": 2}]
    assert len(engine.outputs("count.totals")) == 2


class CountWords(Translate):
    words = Input("word STRING", route_by="word")
    counts = State("word STRING, n BIGINT")
    totals = Output("word STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(1 for _ in group.words) + sum(row.n for row in group.counts)
        out.counts(key.word, n)
        out.totals(key.word, n)


def test_null_and_float_keys_are_keys() -> None:
    """Null is a key like others; equal floats, both zeros and all NaNs, are one key each."""

    class Floats(Translate):
        items = Input("k DOUBLE", route_by="k")
        counts = State("k DOUBLE, n BIGINT")
        totals = Output("n BIGINT")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            n = sum(1 for _ in group.items) + sum(row.n for row in group.counts)
            out.counts(key.k, n)

    nan = float("nan")
    engine = run(Floats(), {"items": [None, -0.0, nan]}, {"items": [0.0, float("inf") * 0, None]})
    assert [row["n"] for row in engine.state("stage", "counts")] == [2, 2, 2]


def test_emitted_values_take_their_declared_types() -> None:
    """An int in a DOUBLE column comes out as a float, in outputs and state."""

    class Half(Translate):
        items = Input("k STRING", route_by="k")
        kept = State("k STRING, x DOUBLE")
        halves = Output("k STRING, x DOUBLE")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            out.halves(key.k, 1)
            out.kept(key.k, 1)

    engine = run(Half(), {"items": ["a"]})
    assert isinstance(engine.outputs("stage.halves")[0][0]["x"], float)
    assert isinstance(engine.state("stage", "kept")[0]["x"], float)


# --- the author's mistakes -------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "cause"),
    [
        (lambda key, group, out: 1 // 0, "ZeroDivisionError"),
        (lambda key, group, out: out.totals(k="a", n=1, x=1), "unexpected keyword argument 'x'"),
        (lambda key, group, out: out.totals(k="a"), "missing a required argument: 'n'"),
        (lambda key, group, out: out.totals("a", 1, 2), "too many positional arguments"),
        (lambda key, group, out: out.totals(k="a", n=1.5), "'n' is declared BIGINT, got 1.5"),
        (lambda key, group, out: out.kept(k="a", n=None), "BIGINT NOT NULL, got None"),
        (lambda key, group, out: out.total(k="a", n=1), "no output 'total'; use one of totals"),
        (lambda key, group, out: list(group.item), "no input 'item'; use one of items"),
    ],
)
def test_a_mistake_names_stage_function_line_key_and_cause(act: Any, cause: str) -> None:
    """Every mistake of author's code is reported with all that is needed to find it."""
    error = failing(act)
    assert error.code == "author_code_failed"
    assert error.details["stage"] == "stage"
    assert error.details["function"] == "Wrong.translate"
    assert error.details["key"] == "('a',)"
    assert error.details["inputs"] == {"items": ["('a',)"], "kept": []}
    assert cause in error.details["cause"]
    assert error.details["place"].endswith(f"{THIS}:{act.__code__.co_firstlineno}")


def test_inputs_show_the_first_three_records() -> None:
    """The message shows enough records to reproduce, not the whole group."""
    error = failing(lambda key, group, out: 1 // 0, ["a"] * 9)
    assert error.details["inputs"]["items"] == ["('a',)"] * 3


def test_a_failed_epoch_changes_nothing() -> None:
    """State, outputs and queues are as before; once the cause is gone the epoch succeeds."""
    # The group that fails is visited last: those before it must leave no trace.
    *good, last = sorted("abz", key=lambda k: key_hash([k], [DataType("STRING")]) % 2**64)
    broken = {last}

    def act(key: Any, group: Any, out: Any) -> None:
        if key.k in broken:
            raise RuntimeError("not now")
        n = sum(1 for _ in group.items) + sum(row.n for row in group.kept)
        out.kept(key.k, n)
        out.totals(key.k, n)

    engine = engine_of(Wrong(act))
    engine.feed("items", good)
    engine.run_until_idle()
    before = engine.state("stage", "kept")
    engine.feed("items", [*good, last])
    with pytest.raises(AuthorCodeError):
        engine.run_until_idle()
    assert engine.state("stage", "kept") == before
    assert len(engine.outputs("stage.totals")) == 1
    broken.clear()
    engine.run_until_idle()
    assert {row["k"]: row["n"] for row in engine.state("stage", "kept")} == {
        **dict.fromkeys(good, 2),
        last: 1,
    }


def test_a_record_that_an_author_changes_is_changed_for_nobody_else() -> None:
    """Two stages that read one flow get values of their own."""

    class Sort(TranslateRecords):
        lists = Input("items ARRAY<INT>")
        mine = Output("items ARRAY<INT>")

        def translate(self, record: Any, out: Any) -> None:
            record.items.reverse()
            out.mine(record.items)

    flow = DataflowBuilder("shared")
    lists = flow.source("lists", "items ARRAY<INT>")
    flow.stage("one", Sort(), lists=lists)
    flow.stage("two", Sort(), lists=lists)
    engine = ReferenceEngine(flow.build())
    engine.feed("lists", [([1, 2, 3],)])
    engine.run_until_idle()
    assert engine.outputs("two.mine") == [[{"items": [3, 2, 1]}]]


def test_a_computed_key_that_fails_names_its_function_and_place() -> None:
    """An error in route_by points at the routing function, with the record."""

    class Routed(Translate):
        key = "k STRING"
        items = Input("v STRING", route_by=by(lambda record: record.v[0], "STRING"))
        totals = Output("k STRING")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            """Emit nothing."""

    with pytest.raises(AuthorCodeError) as caught:
        run(Routed(), {"items": ["a", ""]})
    line = Routed.items.route_by.function.__code__.co_firstlineno  # type: ignore[union-attr]
    assert caught.value.details["function"] == "Routed.items.route_by"
    assert caught.value.details["place"].endswith(f"{THIS}:{line}")
    assert caught.value.details["inputs"] == {"items": ["('',)"]}


def test_a_computed_key_of_the_wrong_type_is_refused() -> None:
    """A routing function must return what it declares."""

    class Routed(Translate):
        key = "k BIGINT"
        items = Input("v STRING", route_by=by(lambda record: record.v, "BIGINT"))
        totals = Output("k BIGINT")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            """Emit nothing."""

    with pytest.raises(AuthorCodeError, match="expected an integer"):
        run(Routed(), {"items": ["a"]})


def test_a_record_wise_mistake_has_no_key() -> None:
    """The one record is shown instead of a group."""

    class Broken(TranslateRecords):
        lines = Input("text STRING")
        words = Output("word STRING")

        def translate(self, record: Any, out: Any) -> None:
            out.words(record.text + 1)

    with pytest.raises(AuthorCodeError) as caught:
        run(Broken(), {"lines": ["a"]})
    assert "key" not in caught.value.details
    assert caught.value.details["inputs"] == {"lines": ["('a',)"]}


def test_a_crash_is_no_mistake_of_the_author() -> None:
    """The planned death of a process goes through as it is."""

    def dies(key: Any, group: Any, out: Any) -> None:
        raise Crash

    with pytest.raises(Crash):
        run(Wrong(dies), {"items": ["a"]})


# --- feeding and reading -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"k": "a", "x": 1}, "no column 'x'"),
        (("a", "b"), "is not a record of"),
        ({"k": 1}, "column 'k' is declared STRING, got 1"),
    ],
)
def test_a_record_that_does_not_fit_its_source_is_refused(record: Any, message: str) -> None:
    """Nothing of an increment with a wrong record is fed."""
    engine = engine_of(Count())
    with pytest.raises(TypeError, match=message):
        engine.feed("items", ["a", record])
    assert engine.run_until_idle() == 0


def test_unknown_names_are_told() -> None:
    """Sources, flows and states that do not exist are `not_found`."""
    engine = engine_of(Count())
    for call in (
        lambda: engine.feed("item", []),
        lambda: engine.outputs("stage.total"),
        lambda: engine.state("stage", "count"),
        lambda: engine.state("stages", "counts"),
    ):
        with pytest.raises(NotFoundError):
            call()


def test_a_runnable_decides_what_an_epoch_reads() -> None:
    """A table is read in every epoch and kept; inputs that are not read look empty."""

    class Lookup(Translate):
        runnable = StaticTable("names", latest=True)  # type: ignore[arg-type]
        items = Input("k INT", route_by="k")
        names = Input("k INT, name STRING", route_by="k")
        matches = Output("k INT, name STRING")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            for row in group.names if any(True for _ in group.items) else ():
                out.matches(k=row.k, name=row.name)

    result = run_epochs(
        Lookup, [{"names": [(1, "a")]}, {"items": [1]}, {"items": [1], "names": [(1, "b")]}]
    )
    assert [list(map(tuple, epoch)) for epoch in result.outputs["matches"]] == [
        [],
        [(1, "a")],
        [(1, "b")],
    ]


def test_a_memo_reaches_the_next_epoch() -> None:
    """What a decision remembers is handed to the next one, as JSON brings it back."""
    seen: list[Any] = []

    class Remembers(Translate):
        items = Input("k INT", route_by="k")

        def runnable(self, connectors: Any, memo: Any) -> Decision:
            seen.append(memo)
            waiting = {n: (c.unread[0].index,) for n, c in connectors.items() if c.unread}
            return Decision(waiting, waiting, (1 if memo is None else memo[0] + 1,))

        def translate(self, key: Any, group: Any, out: Any) -> None:
            """Emit nothing."""

    run_epochs(Remembers, [[1], [2]])
    assert [memo for memo, _ in groupby(seen)] == [None, [1], [2]]
