"""The ready rules: when each lets a stage run, on what, and what it says otherwise.

What all but one side of an alignment closed without is read once all sides are closed. Windows of
several inputs are aligned, and read the same whenever they are asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.errors import AlignmentError
from cbp.model.dataflow.node_mistakes import unfit_rule
from cbp.model.dataflow.runnable import (
    Align,
    CountWindow,
    KeyWindow,
    Phase,
    Phases,
    Rule,
    RunAll,
    RunAny,
    StaticTable,
    is_ready_rule,
    rule_text,
)
from cbp.model.flow.connector import Connector, Decision
from cbp.model.flow.framing import Framing
from cbp.model.flow.increment import FramingKey, Increment


def queue(*keys: FramingKey, first: int = 0, name: str = "items") -> Connector:
    """Return a connector whose increments have these framing keys, numbered from `first`."""
    connector = Connector(name)
    for index, key in enumerate(keys, first):
        connector = connector.append(Increment("flow", index, key))
    return connector


def indexes(connector: Connector) -> list[tuple[int, bool]]:
    return [(queued.increment.index, queued.read) for queued in connector.queue]


def after(connectors: Mapping[str, Connector], decision: Decision) -> dict[str, Connector]:
    """Return the connectors once a run of this decision is committed."""
    return {
        name: connector.after(decision.read.get(name, ()), decision.remove.get(name, ()))
        for name, connector in connectors.items()
    }


def drain(rule: Rule, connectors: Mapping[str, Connector]) -> list[dict[str, tuple[int, ...]]]:
    """Run until the rule says no; return what each run read."""
    runs: list[dict[str, tuple[int, ...]]] = []
    memo: Any = None
    while (decision := rule(connectors, memo)).runnable:
        runs.append({name: read for name, read in decision.read.items() if read})
        connectors, memo = after(connectors, decision), decision.memo
        assert len(runs) < 100
    return runs


def test_run_all_takes_the_oldest_of_each() -> None:
    """Every input has one: the oldest unread of each is read and removed; the memo is kept."""
    decision = RunAll()({"a": queue(0, 1, first=1), "b": queue(0, first=7)}, "memo")
    assert decision == Decision({"a": (1,), "b": (7,)}, {"a": (1,), "b": (7,)}, "memo")
    assert decision.runnable


def test_run_all_says_what_it_waits_for() -> None:
    """Inputs without an unread increment are named."""
    read = queue(0).after((0,), ())
    decision = RunAll()({"a": queue(1), "b": queue(), "c": read}, None)
    assert not decision.runnable
    assert decision.waits_for == "waits for an increment on b, c"
    assert not RunAll()({}, None).runnable


@given(st.lists(st.integers(0, 3), max_size=20), st.integers(1, 4))
def test_run_all_reads_everything_once_and_in_order(arrivals: list[int], batch: int) -> None:
    """However arrivals and runs alternate, each increment is read once, oldest first."""
    seen: list[int] = []
    connector, fed = Connector("items"), 0
    for count in [*arrivals, 0]:
        for _ in range(count):
            connector, fed = connector.append(Increment("flow", fed, fed)), fed + 1
        decision = RunAll(batch)({"items": connector}, None)
        if decision.runnable:
            seen += decision.read["items"]
            connector = connector.after(decision.read["items"], decision.remove["items"])
    assert seen == list(range(len(seen)))
    assert [index for index, _ in indexes(connector)] == list(range(len(seen), fed))


def test_a_batch_may_be_any_number() -> None:
    """One that no list can have takes all that waits."""
    decision = RunAll(10**30)({"items": queue("a", "b")}, None)
    assert decision.read == {"items": (0, 1)}


def test_a_batch_takes_as_many_of_each_input() -> None:
    """Inputs stay in step: the emptiest one decides how many."""
    connectors = {"a": queue(0, 1, 2, 3), "b": queue(0, 1, 2)}
    assert drain(RunAll(2), connectors) == [
        {"a": (0, 1), "b": (0, 1)},
        {"a": (2,), "b": (2,)},
    ]
    assert drain(RunAny(3), connectors) == [{"a": (0, 1, 2), "b": (0, 1, 2)}, {"a": (3,)}]


def test_run_any_needs_one_input_only() -> None:
    """What is there is read; without anything it names every input."""
    assert drain(RunAny(), {"a": queue(0, 1), "b": queue()}) == [{"a": (0,)}, {"a": (1,)}]
    decision = RunAny()({"a": queue(), "b": queue()}, None)
    assert decision.waits_for == "waits for an increment on a or b"


def test_a_static_table_is_always_read_and_wakes_nobody() -> None:
    """It stays in its connector, with a read mark, whatever else comes."""
    rule = StaticTable(("table",))
    connectors = {"items": queue(0, 1), "table": queue(0, 0)}
    assert drain(rule, connectors) == [
        {"items": (0,), "table": (0, 1)},
        {"items": (1,), "table": (0, 1)},
    ]
    marked = after(connectors, rule(connectors, None))
    assert indexes(marked["table"]) == [(0, True), (1, True)]
    woken = {"items": queue(), "table": queue(0)}
    assert rule(woken, None).waits_for == "waits for an increment on items"


def test_a_static_table_must_be_there_first() -> None:
    """Without its first increment, nothing runs."""
    connectors = {"items": queue(0), "table": queue()}
    decision = StaticTable(("table",))(connectors, None)
    assert decision.waits_for == "waits for the static table `table`"


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (StaticTable(("table",)), ""),
        (StaticTable(("table",), CountWindow(2, inputs=("items",))), ""),
        (StaticTable(("table",), StaticTable(("more",))), ""),
        (StaticTable(("items", "table", "more")), "every input is a static table"),
        (StaticTable(("table",), StaticTable(("items", "more"))), "every input is a static table"),
        (
            StaticTable(("table",), Align(("items", "table"))),
            "the inner rule must not name static tables",
        ),
        (
            StaticTable(("table",), Phases((Phase(("table", "items")),))),
            "the inner rule must not name static tables",
        ),
        (
            StaticTable(("table",), StaticTable(("table",))),
            "the inner rule must not name static tables",
        ),
    ],
)
def test_a_rule_that_can_never_start_a_run_is_told_at_registration(rule: Rule, why: str) -> None:
    """A table starts no run, and the rule inside a StaticTable does not see it."""
    found = unfit_rule(rule, ("items", "table", "more"))
    assert found.startswith(why)
    assert bool(found) == bool(why)


def test_the_latest_table_replaces_the_one_before() -> None:
    """Older increments leave, read or not."""
    rule = StaticTable("table", RunAny(), latest=True)  # type: ignore[arg-type]
    decision = rule({"items": queue(0), "table": queue(0, 1, 2)}, None)
    assert (decision.read["table"], decision.remove["table"]) == ((2,), (0, 1))


def test_alignment_reads_equal_keys_together_and_the_smallest_first() -> None:
    """The paper's rule: equal keys are read together, else only the smaller one."""
    connectors = {"a": queue(1, 2, 4), "b": queue(2, 3, 4)}
    assert drain(Align(), connectors) == [
        {"a": (0,)},
        {"a": (1,), "b": (0,)},
        {"b": (1,)},
        {"a": (2,), "b": (2,)},
    ]


def test_alignment_says_who_is_late() -> None:
    """In words: who must reach which key, and who is there."""
    hour = "2026-11-21 10:00"
    decision = Align()({"a": queue(hour), "b": queue()}, None)
    wanted = f"an increment on `b` with framing key {hour} or a later one"
    assert decision.waits_for == f"waits for {wanted}; `a` has one"
    assert Align()({"a": queue(), "b": queue()}, None).waits_for.endswith("increment on a, b")


@pytest.mark.parametrize(
    ("connectors", "memo"),
    [
        ({"a": queue(2, 1), "b": queue(1)}, None),
        ({"a": queue(2), "b": queue(1)}, 2),
        ({"a": queue("x"), "b": queue(1)}, None),
        ({"a": queue("x"), "b": queue("y")}, 1),
    ],
)
def test_keys_never_go_backwards(connectors: dict[str, Connector], memo: Any) -> None:
    """Neither within an input, nor behind what was read; numbers and texts have no order."""
    with pytest.raises(AlignmentError) as refused:
        Align()(connectors, memo)
    assert refused.value.code == "alignment_backwards"


@given(st.lists(st.integers(0, 6)), st.lists(st.integers(0, 6)))
def test_alignment_is_a_merge(left: list[int], right: list[int]) -> None:
    """Everything up to the end of one input is read once, in the order of the keys."""
    connectors = {"a": queue(*sorted(left)), "b": queue(*sorted(right))}
    keys: list[Any] = []
    for read in drain(Align(), connectors):
        actual = {connectors[name].find(i).framing_key for name, (i,) in read.items()}
        assert len(actual) == 1
        keys += actual
    assert keys == sorted(keys)


def test_count_windows_slide() -> None:
    """A window of three moves by one: two of its increments are read again."""
    connectors = {"items": queue(*range(5))}
    assert drain(CountWindow(3, slide=1), connectors) == [
        {"items": (0, 1, 2)},
        {"items": (1, 2, 3)},
        {"items": (2, 3, 4)},
    ]
    assert drain(CountWindow(2), connectors) == [{"items": (0, 1)}, {"items": (2, 3)}]
    short = CountWindow(3)({"items": queue(0)}, None)
    assert short.waits_for == "waits for increments: 2 more on items"


def test_key_windows_wait_for_the_next_window() -> None:
    """A window is read once a later one began: hours make days."""
    hours = ("2026-11-21 22", "2026-11-21 23", "2026-11-22 00", "2026-11-23 05")
    assert drain(KeyWindow(prefix=10), {"items": queue(*hours)}) == [
        {"items": (0, 1)},
        {"items": (2,)},
    ]
    assert drain(KeyWindow(width=10), {"items": queue(1, 9, 10, 25)}) == [
        {"items": (0, 1)},
        {"items": (2,)},
    ]
    assert KeyWindow()({"items": queue(1)}, None).waits_for.endswith("later window: `items`")
    assert not KeyWindow()({"items": queue()}, None).runnable


def test_key_windows_of_several_inputs_are_aligned() -> None:
    """The same day is read together, the smaller day first; who has none of it is left alone."""
    days = KeyWindow(prefix=10)
    left = queue("2026-11-21 10", "2026-11-23 00", "2026-11-24 00")
    right = queue("2026-11-22 05", "2026-11-23 00", "2026-11-23 01", "2026-11-24 00")
    assert drain(days, {"a": left, "b": right}) == [
        {"a": (0,)},
        {"b": (0,)},
        {"a": (1,), "b": (1, 2)},
    ]


def test_a_window_waits_for_every_input_that_may_still_have_a_part_of_it() -> None:
    """One that is empty may bring it; one that is there must have passed it; in words."""
    days, day = KeyWindow(prefix=10), queue("2026-11-21 10", "2026-11-22 00")
    words = days({"a": day, "b": queue()}, None).waits_for
    wanted = "an increment on `b` with framing key 2026-11-21 10 or a later one"
    assert words == f"waits for {wanted}; `a` has one"
    assert not days({"a": day, "b": queue("2026-11-21 23")}, None).runnable
    words = days({"a": day, "b": queue("2026-11-21 23")}, None).waits_for
    assert words == "waits until each of these inputs has an increment of a later window: `b`"
    assert days({"a": day, "b": queue("2026-11-22 05")}, None).read == {"a": (0,)}


def test_windows_of_several_inputs_never_go_backwards() -> None:
    """What came behind a later window would meet nobody; alone, an input may."""
    with pytest.raises(AlignmentError):
        KeyWindow(10)({"a": queue(25, 3), "b": queue(30)}, None)
    with pytest.raises(AlignmentError):
        KeyWindow(10)({"a": queue(3), "b": queue(30)}, 1)
    assert KeyWindow(10)({"a": queue(25, 3)}, None).read == {"a": (0,)}


@given(st.lists(st.integers(0, 20)), st.lists(st.integers(0, 20)), st.randoms())
def test_what_windows_read_does_not_depend_on_when_they_are_asked(
    left: list[int], right: list[int], chance: Any
) -> None:
    """However arrivals and runs alternate, the runs are those of a rule that is asked last."""
    rule, coming = KeyWindow(5), {"a": sorted(left), "b": sorted(right)}
    at_rest = drain(rule, {name: queue(*keys) for name, keys in coming.items()})
    connectors, memo, runs = {name: Connector(name) for name in coming}, None, []
    counts = dict.fromkeys(coming, 0)
    while any(counts[name] < len(keys) for name, keys in coming.items()):
        name = chance.choice([n for n, keys in coming.items() if counts[n] < len(keys)])
        at = counts[name]
        connectors[name] = connectors[name].append(Increment("flow", at, coming[name][at]))
        counts[name] += 1
        while (decision := rule(connectors, memo)).runnable:
            runs.append({n: read for n, read in decision.read.items() if read})
            connectors, memo = after(connectors, decision), decision.memo
    assert runs == at_rest


def test_a_rule_says_whether_time_and_split_matter() -> None:
    """A batch, and a table, are what is there; a window is made of increments."""
    actual = {
        rule_text(rule): (rule.timeless, rule.split_free)
        for rule in (
            RunAll(),
            RunAll(5),
            RunAny(),
            Align(),
            CountWindow(3),
            KeyWindow(),
            StaticTable(("t",)),
            PAGERANK,
        )
    }
    assert list(actual.values()) == [
        (True, True),
        (False, True),
        (False, True),
        (True, True),
        (True, False),
        (True, False),
        (False, False),
        (False, True),
    ]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (RunAll(batch=1), "run_all"),
        (CountWindow(3, slide=0), "count_window(size=3)"),
        (
            StaticTable(("t",), Align(("a", "b"))),
            "static_table(tables=[t], rule=align(inputs=[a, b]))",
        ),
        (
            Phases(("a", {"reads": "b", "until": "c"})),  # type: ignore[arg-type]
            "phases(phases=[phase(reads=[a]), phase(reads=[b], until=c)])",
        ),
    ],
)
def test_a_rule_as_text_tells_what_is_not_by_default(rule: Rule, text: str) -> None:
    """So that it is the same text once a later release has another argument."""
    assert rule_text(rule) == text


PAGERANK = Phases(
    (  # type: ignore[arg-type]
        "edges",
        "weights",
        {"reads": "ranks", "until": "converged", "drop": "ranks"},
    )
)


def flows(**queues: Connector) -> dict[str, Connector]:
    return {name: queues.get(name, Connector(name)) for name in PAGERANK.named}


def test_phases_read_exclusively_and_in_order() -> None:
    """New edges wait until the ranks have converged, which drops what is left of them."""
    decision = PAGERANK(flows(edges=queue(0), weights=queue(0)), None)
    assert (decision.read, decision.memo) == ({"edges": (0,)}, 0)
    decision = PAGERANK(flows(weights=queue(0)), 0)
    assert (decision.read, decision.memo) == ({"weights": (0,)}, 1)
    decision = PAGERANK(flows(edges=queue(0), ranks=queue(0)), 1)
    assert (decision.read, decision.memo) == ({"ranks": (0,)}, 2)
    waits = PAGERANK(flows(edges=queue(0)), 2)
    assert waits.waits_for == "waits in phase 3 of 3 for an increment on ranks or converged"
    end = PAGERANK(flows(edges=queue(0), ranks=queue(0, 1), converged=queue(0)), 2)
    assert (end.read, end.memo) == ({"converged": (0,)}, 0)
    assert end.remove == {"converged": (0,), "ranks": (0, 1)}
    assert [i.index for i in end.dropped(flows(ranks=queue(0, 1)))] == [0, 1]


def test_a_phase_may_take_all_that_waits() -> None:
    """So that what several runs sent for it is seen together."""
    rule = Phases((Phase(("edges",), batch=0), Phase(("ranks",), batch=2)))
    assert rule({"edges": queue(0, 1, 2), "ranks": queue()}, None).read == {"edges": (0, 1, 2)}
    assert rule({"edges": queue(), "ranks": queue(0, 1, 2)}, 0).read == {"ranks": (0, 1)}
    with pytest.raises(ValueError, match="batch"):
        Phase(("edges",), batch=-1)


def test_a_phase_without_work_is_skipped() -> None:
    """The circle goes on with the first phase that has something to read."""
    decision = PAGERANK(flows(edges=queue(0)), 1)
    assert (decision.read, decision.memo) == ({"edges": (0,)}, 0)
    assert not PAGERANK(flows(), 1).runnable


@pytest.mark.parametrize(
    "make",
    [
        lambda: RunAll(0),
        lambda: RunAny(True),
        lambda: CountWindow(2, slide=3),
        lambda: KeyWindow(width=0),
        lambda: StaticTable(()),
        lambda: Phases(()),
    ],
)
def test_senseless_arguments_are_refused(make: Any) -> None:
    """A rule that could never run, or would run on nothing, cannot be made."""
    with pytest.raises(ValueError, match=r"at least|must not be greater"):
        make()


def test_a_ready_rule_is_one_through_and_through() -> None:
    """What asks an author's code at any depth is not: it may take any time."""
    assert is_ready_rule(StaticTable(("t",), Align(("a", "b"))))
    assert is_ready_rule(Phases((Phase(("a",)), Phase(("b",)))))
    assert not is_ready_rule(lambda connectors, memo: Decision())

    class Own(RunAll):
        """An author's rule, made of one of ours."""

    assert not is_ready_rule(StaticTable(("t",), Own()))


def closed(connector: Connector) -> Connector:
    """Give the same input behind a close."""
    return replace(connector, framing=Framing(closed=True))


@pytest.mark.parametrize("rule", [Align(), KeyWindow()])
def test_what_the_others_closed_without_is_read(rule: Rule) -> None:
    """a at 1 to 3, b at 1, both closed: nothing of 2 and 3 can come on b, so a is read alone."""
    a, b = queue(1, 2, 3, name="a"), queue(1, name="b")
    expected = [{"a": (0,), "b": (0,)}, {"a": (1,)}, {"a": (2,)}]
    assert drain(rule, {"a": closed(a), "b": closed(b)}) == expected
    assert drain(rule, {"a": closed(a), "b": closed(Connector("b"))}) == [
        {"a": (0,)},
        {"a": (1,)},
        {"a": (2,)},
    ]
    # As long as one side is open, a smaller key may come on it: all wait for the other.
    for one, other in ((closed(a), b), (a, closed(b))):
        assert {"a": (1,)} not in drain(rule, {"a": one, "b": other})


def test_a_wide_window_outlives_a_close() -> None:
    """A close ends a frame; a window of several keys may go on behind it."""
    hours = closed(queue("21 10", "21 11", name="a"))
    assert drain(KeyWindow(prefix=2), {"a": hours}) == []
