"""The public test kit."""

from __future__ import annotations

import doctest
import random
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp import (
    DataflowBuilder,
    Input,
    Loopback,
    Output,
    State,
    Translate,
    TranslateRecords,
    View,
    testing,
)
from cbp.engine.columnar.key_hash import key_hash
from cbp.engine.direct import LocalEngine
from cbp.errors import DefinitionError, NotFoundError
from cbp.model.flow.schema import DataType
from cbp.testing import check_any_order, check_split, run_dataflow, run_epochs
from tests.driver import Driver
from tests.signed_pairs import Pairs


class Count(Translate):
    items = Input("k STRING", route_by="k")
    counts = State("k STRING, n BIGINT")
    totals = Output("k STRING, n BIGINT", key="k")
    events = Output("k STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(1 for _ in group.items) + sum(row.n for row in group.counts)
        out.counts(key.k, n)
        out.totals(key.k, n)


class Forgetful(Count):
    """The bug that examples of one epoch do not find: state is not emitted again."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        known = list(group.counts)
        n = sum(1 for _ in group.items) + sum(row.n for row in known)
        if not known:
            out.counts(key.k, n)
        out.totals(key.k, n)


class Join(Translate):
    left = Input("a STRING, b INT, x INT", route_by="a, b")
    right = Input("a STRING, b INT", route_by="a, b")
    pairs = Output("a STRING, b INT, x INT, n INT", key="a, b")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(1 for _ in group.right)
        for row in group.left:
            out.pairs(*row, n)


class Words(TranslateRecords):
    lines = Input("text STRING")
    words = Output("k STRING")

    def translate(self, record: Any, out: Any) -> None:
        for word in record.text.split():
            out.words(word)


EPOCHS = st.lists(st.lists(st.sampled_from("abc"), max_size=4), max_size=5)


def wrong_counts(translator: type[Translate], epochs: list[list[str]]) -> bool:
    return run_epochs(translator, epochs).last("totals") != Counter(chain.from_iterable(epochs))


def test_documentation_is_true() -> None:
    """Every example in the kit's documentation gives what it says."""
    assert doctest.testmod(testing).failed == 0


@given(EPOCHS)
def test_any_split_into_epochs_gives_the_batch_answer(epochs: list[list[str]]) -> None:
    """The last total per key equals a Counter over everything."""
    assert not wrong_counts(Count, epochs)


def test_split_property_finds_forgotten_state() -> None:
    """A translator that forgets to emit its state again passes examples and fails the property."""
    assert not wrong_counts(Forgetful, [["a", "b", "a"], ["b"]])
    assert wrong_counts(Forgetful, [["a"], ["a"], ["a"]])


class Relay(Translate):
    """Sums what it receives, one hop later; wrong when it receives twice in one epoch."""

    items = Input("k STRING", route_by="k")
    mail = Loopback("k STRING", route_by="k")
    sums = State("k STRING, n INT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.n for row in group.sums)
        for _ in group.items:
            out.mail(key.k)
        if any(True for _ in group.mail):
            n += 1
        out.sums(key.k, n)


@given(EPOCHS)
def test_check_split_returns_the_batch(epochs: list[list[str]]) -> None:
    """A translator that keeps its promise passes for every split."""
    batch = check_split(Count, epochs)
    assert batch.last("totals") == Counter(chain.from_iterable(epochs))


@pytest.mark.parametrize(
    ("translator", "epochs", "says"),
    [
        (Forgetful, [["a"], ["a"], ["a"]], "3 epochs one by one give .*: state counts"),
        (Relay, [["a"], ["a"]], "2 epochs one by one give .*: state sums"),
    ],
)
def test_check_split_says_how_and_where_a_split_differs(
    translator: type[Translate], epochs: list[list[str]], says: str
) -> None:
    """The way of arrival, the flow, and both values."""
    with pytest.raises(AssertionError, match=says):
        check_split(translator, epochs)


def test_a_check_takes_epochs_and_records_from_iterators() -> None:
    """They are read several times, though an iterator can be read only once."""

    def records(*names: str) -> Any:
        return map(str, names)

    for check in (check_split, check_any_order):
        batch = check(Count, iter([records("a", "b"), records("a")]))
        assert batch.state["counts"] == [("a", 2), ("b", 1)]


def test_check_split_leaves_messages_alone() -> None:
    """What is sent may depend on the split; only what it leads to is compared."""
    result = run_epochs(Relay, [["a", "a"]])
    other = run_epochs(Relay, [["a"]])
    assert result.outputs["mail"] != other.outputs["mail"]
    assert result.difference(other) == ""
    with pytest.raises(ValueError, match="no key"):
        result.last("mail")


def test_figures_count_what_each_epoch_did() -> None:
    """One entry per epoch of each stage; empty epochs count nothing."""
    first, second, third = run_epochs(Relay, [["a", "a"], []]).figures["stage"]
    assert (first["records_in"], first["groups"], first["records_out"]) == (2, 1, 2)
    assert (second["records_in"], second["records_out"]) == (2, 0)
    assert not any(third.values())


def test_result_keeps_epochs_apart() -> None:
    """One list per output and epoch, empty ones included; records are named tuples."""
    result = run_epochs(Count(), [["a"], [], ["a"]])
    assert result.outputs["totals"] == [[("a", 1)], [], [("a", 2)]]
    assert result.outputs["events"] == [[], [], []]
    assert result.outputs["totals"][2][0].n == 2
    assert result.state["counts"] == [("a", 2)]


def test_several_inputs_are_given_by_name() -> None:
    """An input that an epoch leaves out gets an empty increment, so that the stage runs."""
    result = run_epochs(
        Join, [{"left": [("a", 1, 5)]}, {"left": [("a", 1, 6)], "right": [("a", 1)]}]
    )
    assert result.outputs["pairs"] == [[("a", 1, 5, 0)], [("a", 1, 6, 1)]]


def test_keys_and_values_of_several_columns_are_tuples() -> None:
    """A single column is its own key, several make a tuple."""
    assert run_epochs(Join, [{"left": [("a", 1, 5)]}]).last("pairs") == {("a", 1): (5, 0)}
    assert run_epochs(Count, [["a"]]).last("totals") == {"a": 1}


def test_records_may_be_dicts_tuples_or_bare_values() -> None:
    """Three spellings of the same record are the same record."""
    assert run_epochs(Count, [["a", ("a",), {"k": "a"}]]).last("totals") == {"a": 3}


def test_last_needs_a_declared_key() -> None:
    """Without a key there is no last value, and the message says what to declare."""
    result = run_epochs(Count, [])
    with pytest.raises(ValueError, match="declares no key"):
        result.last("events")
    with pytest.raises(NotFoundError):
        result.last("total")


def test_wrong_epochs_are_told() -> None:
    """A list for several inputs, or an unknown input, is refused with the inputs there are."""
    with pytest.raises(TypeError, match="left, right"):
        run_epochs(Join, [["a"]])
    with pytest.raises(NotFoundError, match="'middle'"):
        run_epochs(Join, [{"middle": []}])


def test_wrong_declarations_are_told_before_anything_runs() -> None:
    """A definition error comes out of `run_epochs`."""

    class Broken(Translate):
        items = Input("k STRING", route_by="missing")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            """Emit nothing."""

    with pytest.raises(DefinitionError, match="no column 'missing'"):
        run_epochs(Broken, [["a"]])


def test_a_whole_dataflow_is_run_by_the_names_of_its_flows() -> None:
    """Sources may have different numbers of increments; results are named `stage.output`."""
    flow = DataflowBuilder("words")
    lines = flow.source("lines", "text STRING")
    flow.source("unused", "text STRING")
    words = flow.stage("split", Words(), lines=lines)
    flow.stage("count", Count(), items=words.words)
    result = run_dataflow(flow.build(), {"lines": [["a b"], ["a"]], "unused": [["x"]]})
    assert result.last("count.totals") == {"a": 2, "b": 1}
    assert result.state["count.counts"] == [("a", 2), ("b", 1)]
    assert [len(epoch) for epoch in result.outputs["split.words"]] == [2, 1]
    with pytest.raises(NotFoundError):
        run_dataflow(flow.build(), {"line": [["a"]]})


class Near(Translate):
    """Keeps a number that an epoch more or less moves a little, and how many there were."""

    items = Input("k STRING", route_by="k")
    ranks = State("k STRING, rank DOUBLE, rounds INT", tolerance=0.2, not_compared="rounds")
    views = Output("k STRING, rank DOUBLE", key="k", tolerance=0.2)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        rounds = 1 + sum(row.rounds for row in group.ranks)
        out.ranks(key.k, 1 + 0.1**rounds, rounds)
        out.views(key.k, 1 + 0.1**rounds)


class ByNumber(Translate):
    key = "k DOUBLE"
    items = Input("k DOUBLE", route_by="k")
    ranks = State("at DOUBLE, rank DOUBLE", route_by="at", tolerance=0.5)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.ranks(at=key.k, rank=1.0)


class TooNear(Near):
    ranks = State("k STRING, rank DOUBLE, rounds INT", tolerance=0.01, not_compared="rounds")


def test_a_split_is_compared_as_closely_as_declared() -> None:
    """Numbers within the tolerance, without the columns that are not compared; not beyond."""
    check_split(Near, [["a"], ["a"], ["a", "b"]])
    with pytest.raises(AssertionError, match="state ranks"):
        check_split(TooNear, [["a"], ["a"], ["a", "b"]])


def test_the_key_of_a_state_is_compared_exactly_whatever_it_is_called() -> None:
    """A tolerance is for the other columns."""
    one = run_epochs(ByNumber, [[1.0]])
    assert one.difference(run_epochs(ByNumber, [[1.0]])) == ""
    assert one.difference(run_epochs(ByNumber, [[1.1]])).startswith("state ranks")


def test_a_combiner_that_loses_records_is_found() -> None:
    """The kit runs combiners on parts of a group: what they drop makes a difference."""

    class Total(Translate):
        items = Input("k STRING, n BIGINT", route_by="k", combine=lambda rows: rows[:1])
        totals = Output("k STRING, n BIGINT", key="k")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            out.totals(key.k, sum(row.n for row in group.items))

    with pytest.raises(AssertionError, match="combined in entire groups"):
        check_split(Total, [[("a", 1), ("a", 2)]])

    class Right(Total):
        items = Input(
            "k STRING, n BIGINT",
            route_by="k",
            combine=lambda rows: [(rows[0].k, sum(row.n for row in rows))],
        )

    assert check_split(Right, [[("a", 1), ("a", 2), ("a", 3)]]).last("totals") == {"a": 6}


def test_random_code_is_found() -> None:
    """A batch that is run twice gives the same, or the code is not deterministic."""

    class Random(Translate):
        items = Input("k STRING", route_by="k")
        totals = Output("k STRING, n DOUBLE", key="k")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            out.totals(key.k, random.random())

    with pytest.raises(AssertionError, match="the same batch again"):
        check_split(Random, [["a"]])


@pytest.mark.parametrize("duplicates", ["accept", "skip", "quarantine"])
def test_an_increment_that_is_known_is_what_its_source_says(duplicates: str) -> None:
    """Known is what has equal records in their order; another order is another file."""
    flow = DataflowBuilder("known")
    items = flow.source("items", "k STRING", duplicates=duplicates)
    flow.stage("count", Count(), items=items)
    given: list[list[Any]] = [["a", "b"], [{"k": "a"}, ("b",)], ["b", "a"], [], []]
    result = run_dataflow(flow.build(), {"items": given})
    times, epochs = (3, 5) if duplicates == "accept" else (2, 3)
    assert result.last("count.totals") == {"a": times, "b": times}
    assert len(result.outputs["count.totals"]) == epochs


def test_an_increment_is_a_list_of_records() -> None:
    """One level of lists too few is refused: a text is no list of texts, a record none of names."""
    builder = DataflowBuilder("flow")
    builder.stage("count", Count(), items=builder.source("items", "k STRING"))
    for wrong in (["/docs", "/"], [{"k": "/docs"}], [b"/docs"]):
        with pytest.raises(TypeError, match="a list of records"):
            run_dataflow(builder.build(), {"items": wrong})
        with pytest.raises((TypeError, NotFoundError), match=r"list of records|no input"):
            run_epochs(Count, [wrong[0]])
    with pytest.raises(NotFoundError):
        run_dataflow(builder.build(), {"links": []})


@pytest.mark.parametrize("epochs", [[], [[]], [["a"], [], ["a"]]])
def test_an_empty_increment_is_an_epoch_as_in_an_engine(epochs: list[Any], tmp_path: Path) -> None:
    """Nothing is called, every output gets an increment without records, and state stays."""

    class Every(Translate):
        urls = Input("url STRING", route_by="url")
        kept = State("url STRING, n BIGINT", grouping="outer")
        seen = Output("url STRING, n BIGINT")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            n = sum(1 for _ in group.urls) + sum(row.n for row in group.kept)
            out.kept(key.url, n)
            out.seen(key.url, n)

    builder = DataflowBuilder("flow")
    builder.stage("stage", Every(), urls=builder.source("urls", "url STRING"))
    driver = Driver(LocalEngine(cache=f"{tmp_path}/c"), builder.build(), tmp_path / "t")
    for urls in epochs:
        driver.feed("urls", [{"url": url} for url in urls])
        driver.run_until_idle()
    result = run_dataflow(builder.build(), {"urls": epochs})
    kit = [[row._asdict() for row in rows] for rows in result.outputs["stage.seen"]]
    assert kit == driver.outputs("stage.seen")
    assert len(kit) == len(epochs)
    assert [row._asdict() for row in result.state["stage.kept"]] == driver.state("stage", "kept")


def test_a_notebook_shows_the_last_records_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    """The last epoch of each output and the state are tables; a value never becomes markup."""
    builder = DataflowBuilder("flow")
    builder.stage("count", Count(), items=builder.source("items", "k STRING"))
    result = run_dataflow(builder.build(), {"items": [["old"], ["<b>&"]]}, progress=True)
    shown = result._repr_html_()
    assert "&lt;b&gt;&amp;" in shown
    assert "<b>" not in shown
    assert "epoch 1: 1 of 1 record" in shown
    assert "flow" in capsys.readouterr().out  # the progress bar
    assert not capsys.readouterr().out
    run_dataflow(builder.build(), {"items": [["old"]]})
    assert not capsys.readouterr().out


class Newest(Translate):
    """The newest number of each key; a negative one deletes it."""

    items = Input("k STRING, n BIGINT", route_by="k", order_by="n")
    newest = View("k STRING, n BIGINT", key="k")

    def __init__(self, *, slip: bool = False) -> None:
        self.slip = slip

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit the largest one, unless the smallest one is negative."""
        known, numbers = [row.n for row in group.newest], [row.n for row in group.items]
        if min(numbers) >= 0:
            out.newest(key.k, max(*known, *numbers, 0) + (self.slip and bool(known)))


def test_a_view_is_read_as_its_records_and_its_output_as_changes() -> None:
    """`last` of a view says where its records are; what is no view is not found."""
    result = run_epochs(Newest(), [[("b", 1), ("a", 5)], [("b", 2)], [("a", -1)], []])
    assert [tuple(row) for row in result.view("newest")] == [("b", 2)]
    assert [[tuple(row) for row in epoch] for epoch in result.outputs["newest"]] == [
        sorted([("b", 1, "insert", 1), ("a", 5, "insert", 1)], key=lambda row: order_of(row[0])),
        [("b", 1, "update_before", -1), ("b", 2, "update_after", 1)],
        [("a", 5, "delete", -1)],
        [],
    ]
    with pytest.raises(ValueError, match=r"result\.view"):
        result.last("newest")
    with pytest.raises(NotFoundError):
        result.view("items")


def order_of(key: str) -> int:
    return key_hash((key,), [DataType("STRING")]) & (2**64 - 1)


def test_check_split_compares_views() -> None:
    """By their records, and by what their changes sum up to."""
    epochs = [[("a", 1), ("b", 2)], [("a", 3)], [("b", 5)]]
    assert [tuple(row) for row in check_split(Newest(), epochs).view("newest")] == [
        ("a", 3),
        ("b", 5),
    ]
    with pytest.raises(AssertionError, match="newest"):
        check_split(Newest(slip=True), epochs)


class Sessions(Translate):
    """Visits less than ten apart are a session; one that another absorbed is emitted as gone."""

    visits = Input("who STRING, at BIGINT", route_by="who")
    times = State("who STRING, at BIGINT")
    sessions = Output("who STRING, start BIGINT, stop BIGINT", key="who, start")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        before = {row.at for row in group.times}
        after = before | {row.at for row in group.visits}
        for at in after:
            out.times(key.who, at)
        was, now = sessions_of(before), sessions_of(after)
        for start in sorted({*was, *now}):
            if was.get(start) != now.get(start):
                out.sessions(key.who, start, now.get(start))


class Unsaid(Sessions):
    """Does not say that a session is gone."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        times = {row.at for row in (*group.times, *group.visits)}
        for at in times:
            out.times(key.who, at)
        for start, stop in sessions_of(times).items():
            out.sessions(key.who, start, stop)


def sessions_of(times: set[int]) -> dict[int, int]:
    sessions: dict[int, int] = {}
    start = None
    for at in sorted(times):
        if start is None or at - sessions[start] >= 10:
            start = at
        sessions[start] = at
    return sessions


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)))))
def test_check_split_takes_a_tombstone_for_a_key_that_never_came(epochs: list[Any]) -> None:
    """A session that another one took up is gone, whether it was ever there or not."""
    times: dict[str, set[int]] = {}
    for who, at in chain.from_iterable(epochs):
        times.setdefault(who, set()).add(at)
    expected = {
        (who, start): stop for who in times for start, stop in sessions_of(times[who]).items()
    }
    assert check_split(Sessions, epochs).last("sessions") == expected


def test_check_split_finds_a_record_that_is_not_said_to_be_gone() -> None:
    """What only one split emits, and never ends, differs."""
    with pytest.raises(AssertionError, match="output sessions"):
        check_split(Unsaid, [[("a", 1)], [("a", 16)], [("a", 9)]])


def dataflow_of(count: Any = Count) -> DataflowBuilder:
    """Two sources, a join of what came from both, and the pairs' totals behind it."""
    builder = DataflowBuilder("both")
    left = builder.source("left", SCHEMA)
    right = builder.source("right", SCHEMA)
    pairs = builder.stage("pairs", Pairs(), left=left, right=right)
    builder.stage("count", count(), items=pairs.pairs)
    return builder


SCHEMA = "word STRING, n BIGINT"


class Net(Translate):
    """The pairs that there are, by the signs of their records."""

    items = Input("word STRING, sign INT, l BIGINT, r BIGINT", route_by="word, l, r")
    net = State("word STRING, l BIGINT, r BIGINT, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(row.sign for row in group.items) + sum(row.n for row in group.net)
        if n:
            out.net(*key, n)


class NetOfTold(Net):
    """Counts records, whatever their sign."""

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.net(*key, sum(1 for _ in group.items) + sum(row.n for row in group.net))


ROUNDS = {
    "left": [[("x", 1)], [("x", 2), ("y", 1)], None, [("x", 4)]],
    "right": [[("x", 10)], [], [("y", 5)]],
}


def test_check_split_takes_a_dataflow() -> None:
    """Its sources in any split and in turn; records with a sign are compared by their sums."""
    batch = check_split(dataflow_of(Net).build(), ROUNDS)
    assert [tuple(row) for row in batch.state["count.net"]] == [("x", 7, 10, 1), ("y", 1, 5, 1)]
    with pytest.raises(AssertionError, match=r"both: one batch and .*state count\.net"):
        check_split(dataflow_of(NetOfTold).build(), ROUNDS)
    with pytest.raises(NotFoundError):
        check_split(dataflow_of(Net).build(), {"middle": [[("x", 1)]]})


def test_check_split_of_a_dataflow_leaves_out_what_depends_on_the_split() -> None:
    """As `cbp verify` does of a batch; nothing else to compare is an error, not a success."""

    class OnlyTold(Translate):
        items = Input("word STRING, sign INT, l BIGINT, r BIGINT", route_by="word")
        told = Output("word STRING", history=True)

        def translate(self, key: Any, group: Any, out: Any) -> None:
            out.told(key.word)

    check_split(dataflow_of(OnlyTold).build(), ROUNDS)
    builder = DataflowBuilder("told")
    columns = "word STRING, sign INT, l BIGINT, r BIGINT"
    builder.stage("told", OnlyTold(), items=builder.source("items", columns))
    with pytest.raises(ValueError, match="a history has different epochs"):
        check_split(builder.build(), {"items": [[("x", 1, 1, 1)]]})
