"""The difference of what a large group had and what it emitted; exact in any order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.engine.state import multiset_difference as difference
from cbp.engine.state.bucket_state import RecordPositions
from cbp.engine.state.multiset_difference import Difference
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.model.dataflow.equality import identity
from tests.sampling import examples

VALUES = st.sampled_from([None, 1, 2, float("nan"), "a", [1], {"k": 2.0}])
FEW = EngineLimits(pending_rows=10)
ROWS = st.lists(st.tuples(VALUES), max_size=30)


@settings(max_examples=examples(75), deadline=None)
@given(data=st.data(), olds=ROWS, news=ROWS, pending=st.sampled_from([0, 3, 1000]))
def test_died_and_born_are_the_difference_of_multisets(
    data: st.DataObject, olds: list[Any], news: list[Any], pending: int
) -> None:
    """Whatever comes when: what stays is the intersection, each record once."""
    news = data.draw(st.one_of(st.just(news), st.permutations(olds), st.just(list(olds))))
    died: list[int] = []
    born: list[Any] = []
    limits = EngineLimits(pending_rows=pending, spill_partitions=3, spill_block_rows=2)
    with Difference(lambda f: died.extend(f.position.tolist()), born.extend, limits) as compared:
        at = sent = 0
        while at < len(olds) or sent < len(news):
            step = data.draw(st.integers(1, 5))
            # Only what is left is chosen: a draw that moves nothing can go on for ever.
            if sent >= len(news) or (at < len(olds) and data.draw(st.booleans())):
                part = np.arange(at, min(at + step, len(olds)))
                compared.read(olds[at : at + step], RecordPositions(part * 0, part * 0, part))
                at += step
            else:
                compared.emit(news[sent : sent + step])
                sent += step
            if at >= len(olds):
                compared.complete()
        compared.finish()
    had, got = Counter(map(identity, olds)), Counter(map(identity, news))
    assert Counter(identity(olds[at]) for at in died) == had - got
    assert Counter(map(identity, born)) == got - had
    assert len(set(died)) == len(died)


def test_growth_is_handed_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing left to read, new records wait for nobody, and need no disk."""
    monkeypatch.setattr(difference, "_Spill", None)
    born: list[Any] = []
    with Difference(lambda _: None, born.extend, FEW) as compared:
        compared.complete()
        for start in range(0, 100, 20):
            compared.emit([(start + i,) for i in range(20)])
            assert len(born) == start + 20
        compared.finish()
    assert born == [(i,) for i in range(100)]


def test_echoes_in_order_are_never_spilled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading and emitting in step needs no disk, however large the group."""
    monkeypatch.setattr(difference, "_Spill", None)
    died: list[RecordPositions] = []
    born: list[Any] = []
    with Difference(died.append, born.extend, FEW) as compared:
        for start in range(0, 1000, 5):
            rows = [(start + i,) for i in range(5)]
            part = np.arange(start, start + 5)
            compared.read(rows, RecordPositions(part * 0, part * 0, part))
            compared.emit([(-1,) if row == (500,) else row for row in rows])
        compared.finish()
    assert [actual.position.tolist() for actual in died] == [[500]]
    assert born == [(-1,)]
