"""What is around the calls of an author's function."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import pytest

from cbp import Input, Output, State, Translate, View
from cbp.engine.kernel.author_call import Emitted, free_cycles
from cbp.engine.reference.call import Emitter
from cbp.model.flow.attributes import record_class
from cbp.sdk.translate import spec_of


class Knot:
    """An object that refers to itself, as some code of authors leaves behind."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def without_automatic_collection() -> Iterator[None]:
    """Let nothing be collected but by the test, as in a task."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_automatic_collection")
def test_cycles_of_the_author_are_freed_once_they_are_many() -> None:
    """A task of millions of records keeps no more of them than some windows have."""
    alive: weakref.WeakSet[Knot] = weakref.WeakSet()
    most = 0
    for _ in range(40):
        alive.update([Knot() for _ in range(1_000)])
        free_cycles()
        most = max(most, len(alive))
    assert most < 15_000


@pytest.mark.usefixtures("without_automatic_collection")
def test_a_task_of_few_records_looks_for_no_cycles() -> None:
    """That would take longer than the call of its author."""
    knots = weakref.WeakSet([Knot() for _ in range(10)])
    free_cycles()
    assert len(knots) == 10


class Links(Translate):
    """Emits to one flow of each kind."""

    links = Input("src BIGINT, dst BIGINT", route_by="src")
    pairs = Output("src BIGINT, dst BIGINT")
    lists = Output("src BIGINT, all ARRAY<BIGINT>")
    near = State("src BIGINT, dst BIGINT", keep=True, key="src, dst")
    seen = State("src BIGINT, dst BIGINT")
    known = View("src BIGINT, dst BIGINT", key="src, dst")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        raise NotImplementedError


KEY = record_class("key", ("src",))(1)
FLOWS = ["pairs", "near", "seen", "known"]


def emitted(kind: str, emit: Callable[[Any], None]) -> dict[str, list[Any]]:
    """Return what a call of the group 1 emits, by flow, in this kind of call."""
    if kind == "reference":
        call = Emitter(spec_of(Links()), KEY)
        emit(call.out)
        return {**call.outputs, **call.states, **call.kept}
    made = Emitted(spec_of(Links()), checked=kind == "checked")
    if kind == "checked":
        made.begin(KEY)
        found: dict[str, list[Any]] = {name: [] for name in made.buffers}
        emit(made.out)
        return found
    flushed: dict[str, list[Any]] = {name: [] for name in made.buffers}

    def flush() -> None:
        for name, rows in made.buffers.items():
            flushed[name] += rows
            rows.clear()

    emit(made.flushing(3, flush) if kind == "large" else made.out)
    flush()
    return flushed


@pytest.mark.parametrize("kind", ["usual", "large", "reference"])
@pytest.mark.parametrize("flow", FLOWS)
def test_many_emits_what_single_emissions_do(kind: str, flow: str) -> None:
    """To each kind of flow, from any iterable, in its order, also more than are taken at a time."""

    def one_by_one(out: Any) -> None:
        for dst in range(10_000):
            getattr(out, flow)(1, dst)

    both = (
        emitted(kind, one_by_one),
        emitted(kind, lambda out: getattr(out, flow).many(zip(repeat(1), range(10_000)))),
    )
    assert [tuple(row) for row in both[1][flow]] == [(1, dst) for dst in range(10_000)]
    assert both[0] == both[1]


def test_many_writes_state_of_other_keys() -> None:
    """By `remote`, in each engine."""
    spec = spec_of(Links())
    usual, checked, other = Emitted(spec), Emitted(spec, checked=True), Emitter(spec, KEY)
    checked.begin(KEY)
    for call in (usual, checked, other):
        call.out.seen.remote.many([(2, 3), (4, 5)])
    assert usual.remote["seen"] == [(2, 3), (4, 5)]
    assert other.remote["seen"] == [((2,), (2, 3)), ((4,), (4, 5))]


@pytest.mark.parametrize("kind", ["usual", "large", "reference"])
def test_lists_that_many_emits_are_copied(kind: str) -> None:
    """So that what the author does to them afterwards changes nothing."""
    given = [4, 5]

    def emit(out: Any) -> None:
        out.lists.many([(1, given)])
        given.append(6)

    assert emitted(kind, emit)["lists"] == [(1, [4, 5])]


@pytest.mark.parametrize("kind", ["usual", "large", "checked", "reference"])
@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ([(1, 2), 3], "takes tuples with one value for each column; got 3"),
        (["ab"], "takes tuples with one value for each column; got 'ab'"),
        ([(1, 2), (1,)], "missing|expected|required"),
        ([(1, 2, 3)], "takes|too many"),
    ],
)
def test_many_refuses_what_is_no_record(kind: str, rows: list[Any], error: str) -> None:
    """By Python's own error where the number of values is wrong."""
    with pytest.raises(TypeError, match=error):
        emitted(kind, lambda out: out.pairs.many(rows))


def test_many_is_checked_as_single_emissions_are() -> None:
    """Once an error is looked for, each record is: its types, and whose state it is."""
    with pytest.raises(TypeError, match=r"out\.pairs: column 'dst'"):
        emitted("checked", lambda out: out.pairs.many([(1, 2), (1, "b")]))
    for kind in ("checked", "reference"):
        with pytest.raises(Exception, match="emitted a record with the key"):
            emitted(kind, lambda out: out.seen.many([(1, 2), (7, 2)]))
