"""The reference engine keeps the rules of `cbp.model.dataflow.routing`, one test per rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp import (
    ALL,
    All,
    DataflowBuilder,
    Input,
    Multicast,
    Output,
    Translate,
    by,
    route,
)
from cbp.engine.direct import LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.reference.stage import ReferenceStage
from cbp.errors import AuthorCodeError, DataflowInvalidError
from cbp.testing import run_epochs
from tests.driver import Driver
from tests.message_flows import MESSAGE, OuterProbe, Probe

THIS = Path(__file__).name


def probe(*epochs: dict[str, list[Any]], translator: type[Probe] = Probe) -> ReferenceEngine:
    flow = DataflowBuilder("probe")
    spec = translator().spec()
    sources: Any = {
        i.name: flow.source(i.name, str(i.schema)) for i in spec.inputs if not i.loopback
    }
    flow.stage("stage", translator(), **sources)
    engine = ReferenceEngine(flow.build())
    for epoch in epochs:
        for source, records in epoch.items():
            engine.feed(source, records)
        engine.run_until_idle()
    return engine


def reached(engine: ReferenceEngine, flow: str, epoch: int = -1) -> dict[str, list[int]]:
    """Return who was called in an epoch, with the ids it got on a flow."""
    return {row["k"]: row[flow] for row in engine.outputs("stage.calls")[epoch]}


def write(key: str, *ids: int) -> list[tuple[Any, ...]]:
    return [(key, "write", id_, [key]) for id_ in ids]


# --- keys and ALL ---------------------------------------------------------------------


def test_a_record_goes_to_each_of_several_keys_once() -> None:
    """Duplicates collapse; an empty list means nobody, and is no dead letter."""
    engine = probe({"items": [(1, ["a", "b", "a"]), (2, [])]})
    assert reached(engine, "items") == {"a": [1], "b": [1]}
    assert engine.figures("stage")[-1]["dead_letters"] == 0
    assert engine.figures("stage")[-1]["deliveries"] == 2


def test_all_reaches_what_is_found_in_any_input_and_every_key_of_state() -> None:
    """Also keys of an inner state that no other record names."""
    engine = probe(
        {"orders": write("s", 9)},
        {"items": [(1, ["a"]), (2, ["*"])], "other": [(3, ["b"])]},
    )
    assert reached(engine, "items") == {"a": [1, 2], "b": [2], "s": [2]}


@pytest.mark.parametrize(
    ("to", "who"),
    [("*items", {"a"}), ("*other", {"b"}), ("*kept", {"s"}), ("*other,kept", {"b", "s"})],
)
def test_all_can_be_limited_to_flows(to: str, who: set[str]) -> None:
    """Only groups found in the named inputs or states get the record."""
    engine = probe(
        {"orders": write("s", 9)}, {"items": [(1, ["a"]), (2, [to])], "other": [(3, ["b"])]}
    )
    assert {k for k, ids in reached(engine, "items").items() if 2 in ids} == who


def test_an_all_finds_nobody_for_another_all() -> None:
    """What a broadcast reaches is not thereby found in its flow."""
    engine = probe({"items": [(1, ["*other"]), (2, ["*items"])], "other": [(3, ["b"])]})
    assert reached(engine, "items") == {"b": [1]}
    assert engine.figures("stage")[-1]["dead_letters"] == 1


def test_an_all_reaches_no_group_that_only_outer_grouping_calls() -> None:
    """Limited to an input, it leaves alone who is called for the sake of state."""
    engine = probe(
        {"orders": write("s", 9)}, {"items": [(1, ["a"]), (2, ["*items"])]}, translator=OuterProbe
    )
    assert reached(engine, "items") == {"a": [1, 2], "s": []}


def test_records_of_a_group_keep_their_order_however_they_came() -> None:
    """A broadcast is between the keyed records, at its place of arrival."""
    items = [(3, ["a"]), (1, ["*"]), (2, ["a", "*"])]
    assert reached(probe({"items": items}), "items") == {"a": [3, 1, 2]}


# --- messages and multicast -----------------------------------------------------------


def test_messages_wake_their_groups_in_the_next_epoch() -> None:
    """A group without input or state is called; idle once no message is under way."""
    engine = probe({"orders": [("a", "send", 1, ["b"]), ("a", "send", 2, ["b", "c"])]})
    assert len(engine.outputs("stage.calls")) == 2
    assert reached(engine, "mail") == {"b": [1, 2], "c": [2]}


def test_messages_are_ordered_by_their_order_by() -> None:
    """From any sender, and by any way."""
    orders = [("a", "send", 3, ["x"]), ("b", "send", 2, ["*", "x"]), ("c", "send", 1, ["@here"])]
    engine = probe({"orders": [*orders, ("x", "bind", 0, ["here"])]})
    assert reached(engine, "mail") == {"x": [1, 2, 3]}


@pytest.mark.parametrize("binder", ["a", "z"])
def test_bindings_and_messages_of_one_epoch_meet_in_any_order(binder: str) -> None:
    """Binder and sender are different groups, visited in either order."""
    (sender,) = {"a", "z"} - {binder}
    engine = probe({"orders": [(binder, "bind", 0, ["x"]), (sender, "send", 7, ["@x"])]})
    assert reached(engine, "mail") == {binder: [7]}
    assert engine.figures("stage")[-2]["bindings"] == 1


def test_key_address_and_all_together_deliver_once() -> None:
    """A record reaches a set of groups, over all kinds of destinations."""
    orders = [("a", "bind", 0, ["x", "y"]), ("a", "send", 7, ["a", "@x", "@y", "*", "b"])]
    assert reached(probe({"orders": orders}), "mail") == {"a": [7], "b": [7]}


def test_who_is_bound_is_found_by_all() -> None:
    """An address finds its keys in the flow of the message."""
    orders = [("a", "bind", 0, ["x"]), ("a", "send", 1, ["@x"]), ("a", "send", 2, ["*mail"])]
    assert reached(probe({"orders": orders}), "mail") == {"a": [1, 2]}


def test_an_address_nobody_bound_is_a_counted_dead_letter() -> None:
    """The record still reaches its other destinations; the epoch goes on."""
    engine = probe({"orders": [("a", "send", 1, ["@x", "b"]), ("a", "send", 2, ["@y"])]})
    assert reached(engine, "mail") == {"b": [1]}
    assert engine.figures("stage")[-1]["dead_letters"] == 2


def test_a_binding_serves_its_epoch_only() -> None:
    """Messages of a later epoch do not find it."""
    engine = probe({"orders": [("a", "bind", 0, ["x"])]}, {"orders": [("a", "send", 1, ["@x"])]})
    assert reached(engine, "mail") == {}
    assert engine.figures("stage")[-1]["dead_letters"] == 1


def test_a_message_that_waits_keeps_the_bindings_of_its_own_epoch() -> None:
    """Two increments that are read together are resolved each with its own bindings."""
    stage = ReferenceStage("stage", Probe().spec())
    sent = [
        stage.run({"orders": [[(key, "bind", 0, ["x"]), ("s", "send", id_, ["@x"])]]})["mail"]
        for key, id_ in [("a", 1), ("b", 2)]
    ]
    calls = stage.run({"mail": sent}, epochs={"mail": (0, 1)})["calls"]
    assert {row[0]: row[3] for row in calls} == {"a": [1], "b": [2]}


def test_groups_share_no_values() -> None:
    """An author who changes the list of a record changes it for one group."""

    class Pop(Translate):
        key = "k STRING"
        items = Input("to ARRAY<STRING>", route_by=route(lambda r: r.to, "STRING"))
        rest = Output("k STRING, to ARRAY<STRING>")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            for row in group.items:
                row.to.pop()
                out.rest(key.k, row.to)

    (epoch,) = run_epochs(Pop, [[(["a", "b"],)]]).outputs["rest"]
    assert [row.to for row in epoch] == [["a"], ["a"]]


# --- state of other keys --------------------------------------------------------------


@pytest.mark.parametrize("translator", [Probe, OuterProbe])
def test_a_remote_write_is_appended_and_seen_in_the_next_epoch(translator: type[Probe]) -> None:
    """It does not call its target; equal records twice are two records."""
    orders = [("a", "write", 1, ["b", "b"]), ("c", "write", 1, ["b"])]
    engine = probe({"orders": orders}, translator=translator)
    assert reached(engine, "kept") == {"a": [], "c": []}
    assert engine.state("stage", "kept") == [{"k": "b", "id": 1}] * 3
    assert engine.figures("stage")[-1]["state_remote"] == 3
    engine.feed("orders", [("b", "write", 2, ["b"])])
    engine.run_until_idle()
    assert reached(engine, "kept")["b"] == [1, 1, 1]


def test_local_writes_replace_and_remote_writes_stay() -> None:
    """A group that is called in the epoch of a remote write loses only what it had before."""
    orders = [("b", "forget", 0, []), ("a", "write", 2, ["b"]), ("z", "write", 3, ["b"])]
    engine = probe({"orders": write("b", 1)}, {"orders": orders})
    assert engine.state("stage", "kept") == [{"k": "b", "id": 2}, {"k": "b", "id": 3}]


# --- all rules together, against sets in plain Python ---------------------------------

_KEYS = "abc"
_TO = st.lists(st.sampled_from([*_KEYS, "*", "*items", "*other", "*kept", "@x", "@y"]), max_size=3)
_MAIL = st.lists(st.tuples(st.integers(0, 9), _TO), max_size=4)


def expected(
    flows: dict[str, list[tuple[int, list[str]]]], bound: dict[str, set[str]], kept: set[str]
) -> tuple[dict[str, set[str]], int]:
    """Return `flow/place` to who gets the record there, and the dead letters."""
    named, dead = {}, 0
    actual: dict[str, set[str]] = {flow: set() for flow in flows} | {"kept": kept}
    for flow, records in flows.items():
        for place, (_, to) in enumerate(records):
            keys = {text for text in to if text[0] not in "*@"}
            for address in [text[1:] for text in to if text[0] == "@"]:
                keys |= bound.get(address, set())
                dead += not bound.get(address)
            named[f"{flow}/{place}"] = keys
            actual[flow] |= keys
    who = {}
    for flow, records in flows.items():
        for place, (_, to) in enumerate(records):
            who[f"{flow}/{place}"] = set(named[f"{flow}/{place}"])
            for text in [text for text in to if text[0] == "*"]:
                limits = text[1:].split(",") if text[1:] else list(actual)
                keys = set().union(*(actual[limit] for limit in limits))
                who[f"{flow}/{place}"] |= keys
                dead += not keys
    return who, dead


@given(
    _MAIL,
    st.dictionaries(st.sampled_from("xy"), st.sets(st.sampled_from(_KEYS), min_size=1)),
    st.sets(st.sampled_from("cd")),
    st.sampled_from([Probe, OuterProbe]),
    st.lists(st.tuples(st.integers(0, 9), _TO.map(lambda to: [t for t in to if t[0] != "@"]))),
)
def test_routing_is_what_sets_say(
    mail: Any, bound: dict[str, set[str]], kept: set[str], translator: type[Probe], items: Any
) -> None:
    """Keys, addresses and broadcasts, mixed per record, with both groupings."""
    stage = ReferenceStage("stage", translator().spec())
    orders = [(key, "write", 5, [key]) for key in kept]
    orders += [(key, "bind", 0, [address]) for address, keys in bound.items() for key in keys]
    stage.run({"orders": [orders]})
    # The place of a record is its id here, so that who got it can be seen.
    flows = {"items": items, "mail": mail, "other": []}
    rows = {f: [[(i, to) for i, (_, to) in enumerate(each)]] for f, each in flows.items()}
    calls = stage.run(rows, epochs={"mail": (0,)} if orders else {})["calls"]
    who, dead = expected(flows, bound if orders else {}, kept)
    got: dict[str, set[str]] = {place: set() for place in who}
    for key, of_items, _, of_mail, _ in calls:
        for flow, ids in [("items", of_items), ("mail", of_mail)]:
            for id_ in ids:
                got[f"{flow}/{id_}"].add(key)
    assert got == who
    assert stage.figures["dead_letters"] == dead
    called = set().union(*who.values())
    if translator is OuterProbe and (items or mail):
        called |= kept
    assert {row[0] for row in calls} == called


# --- the author's mistakes ------------------------------------------------------------


def fail(translator: type[Translate], engine: str, folder: Path) -> AuthorCodeError:
    """Run a stage whose input `items` is wrong on an engine, and return the error."""
    flow = DataflowBuilder("wrong")
    flow.stage("stage", translator(), items=flow.source("items", "v STRING"))
    on: ReferenceEngine | Driver = ReferenceEngine(flow.build())
    if engine == "direct":
        on = Driver(LocalEngine(cache=str(folder / "cache")), flow.build(), folder / "t")
    on.feed("items", [{"v": "one"}])
    with pytest.raises(AuthorCodeError) as caught:
        on.run_until_idle()
    return caught.value


def wrong(make: Callable[[Any], Any], type_: str, engine: str, folder: Path) -> AuthorCodeError:
    """Run a stage whose route function is wrong, and return the error."""

    class Wrong(Translate):
        key = ", ".join(f"k{i} {t}" for i, t in enumerate(type_.split(", ")))
        items = Input("v STRING", route_by=route(make, type_))
        seen = Output("v STRING")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            """Emit nothing."""

    return fail(Wrong, engine, folder)


ENGINES = pytest.mark.parametrize("engine", ["reference", "direct"])


@ENGINES
@pytest.mark.parametrize(
    ("make", "type_", "cause"),
    [
        (lambda r: ["a", ["b"]], "STRING", "declared types (STRING), got ['b']"),
        (lambda r: {"a": 1}, "STRING", "declared types (STRING), got {'a': 1}"),
        (lambda r: ["a", 1], "STRING", "declared types (STRING), got 1"),
        (lambda r: [1, "1"], "BIGINT", "declared types (BIGINT), got '1'"),
        (lambda r: [1, 2**63], "BIGINT", "declared types (BIGINT), got 9223372036854775808"),
        (lambda r: "\ud800", "STRING", "half of a surrogate pair"),
        (lambda r: r.w, "STRING", "AttributeError"),
        (lambda r: [("a", 1), ("a",)], "STRING, INT", "got ('a',)"),
        (lambda r: [("a", 1), "ab"], "STRING, INT", "got 'ab'"),
        (lambda r: {[]}, "STRING", "unhashable"),
        (lambda r: All("item"), "STRING", "All(...) names 'item'"),
        (lambda r: All(3), "STRING", "All(...) takes names of inputs and states, got 3"),  # type: ignore[arg-type]
        (lambda r: Multicast("x"), "STRING", "Multicast(address='x')"),
        (lambda r: Multicast(1.5), "STRING", "a string or an integer, got 1.5"),  # type: ignore[arg-type]
        (lambda r: Multicast(True), "STRING", "a string or an integer, got True"),
    ],
)
def test_a_wrong_destination_names_stage_function_line_and_value(
    make: Any, type_: str, cause: str, engine: str, tmp_path: Path
) -> None:
    """Every wrong answer of a route function is reported with all that is needed to find it."""
    error = wrong(make, type_, engine, tmp_path)
    codes = {
        "All": "route_flow_unknown",
        "Multicast": "destination_invalid",
        "a string or": "destination_invalid",
        "AttributeError": "author_code_failed",
    }
    known = (code for begin, code in codes.items() if cause.startswith(begin))
    assert error.code == next(known, "route_key_invalid")
    assert error.details["stage"] == "stage"
    assert error.details["function"] == "Wrong.items.route_by"
    assert error.details["inputs"] == {"items": ["('one',)"]}
    assert error.details["place"].endswith(f"{THIS}:{make.__code__.co_firstlineno}")
    assert cause in error.details["cause"]


@ENGINES
@pytest.mark.parametrize("given", [["a"], ALL, Multicast("x"), frozenset("a")])
def test_by_gives_exactly_one_key(given: Any, engine: str, tmp_path: Path) -> None:
    """Where several destinations are meant, `route` says so; `by` does not guess."""

    def give(record: Any) -> Any:
        return given

    class One(Translate):
        key = "k STRING"
        items = Input("v STRING", route_by=by(give, "STRING"))
        seen = Output("v STRING")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            """Emit nothing."""

    error = fail(One, engine, tmp_path)
    assert "route_by=route" in error.details["cause"]
    assert error.details["place"].endswith(f"{THIS}:{give.__code__.co_firstlineno}")


@pytest.mark.parametrize(
    ("act", "cause"),
    [
        (lambda out: out.associate("a", 1.5), "a string or an integer, got 1.5"),
        (lambda out: out.associate(1, "x"), "'k' is declared STRING, got 1"),
        (lambda out: out.associate(("a", "b"), "x"), "of the key (k STRING), got ('a', 'b')"),
        (lambda out: out.associate("a"), "missing 1 required positional argument"),
    ],
)
def test_a_wrong_binding_is_the_line_that_made_it(act: Any, cause: str) -> None:
    """Key and address are checked at once."""

    class Binds(Probe):
        def translate(self, key: Any, group: Any, out: Any) -> None:
            act(out)

    with pytest.raises(AuthorCodeError) as caught:
        probe({"items": [(1, ["a"])]}, translator=Binds)
    assert cause in caught.value.details["cause"]
    assert caught.value.details["place"].endswith(f":{act.__code__.co_firstlineno}")


def test_a_loopback_wires_itself() -> None:
    """Its flow is `stage.loopback`; wiring it by hand is a mistake."""
    flow = DataflowBuilder("wired")
    items = flow.source("items", MESSAGE)
    orders = flow.source("orders", "k STRING, verb STRING, id INT, to ARRAY<STRING>")
    flow.stage("stage", Probe(), items=items, other=items, orders=orders, mail=items)
    with pytest.raises(DataflowInvalidError) as caught:
        flow.build()
    assert [(m.code, m.where) for m in caught.value.mistakes] == [
        ("loopback_wired", "stages.stage.inputs.mail")
    ]
