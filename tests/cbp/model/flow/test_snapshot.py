"""Which time is whole: no table lacks a record that was put up to then."""

from __future__ import annotations

import random

import pytest

from cbp.model.flow.snapshot import earlier


def test_a_time_without_lacking_records_is_whole():
    """Nothing lacking, or only what was put later."""
    assert earlier(100, []) is None
    assert earlier(100, [101, 500]) is None


def test_one_goes_back_before_the_oldest_lacking_record():
    """A record that was put at that very time is lacking in it."""
    assert earlier(100, [100, 300]) == 99
    assert earlier(100, [90, 40]) == 39


@pytest.mark.parametrize("seed", range(50))
def test_going_back_ends_at_a_publication_that_every_table_shows(seed: int):
    """However far each table came within a publication that is under way, the cut is whole."""
    draw = random.Random(seed)
    tables = range(draw.randint(1, 4))
    publications = [10 * (n + 1) for n in range(draw.randint(1, 5))]  # one record of each table
    last = {t: draw.randint(len(publications) - 1, len(publications)) for t in tables}
    at, rounds = max(publications), 0
    while rounds < 10:
        shown = {t: max([p for p in publications[: last[t]] if p <= at], default=0) for t in tables}
        cut = max(shown.values())
        lacking = [
            min(p for p in publications if p > s) for s in shown.values() if s < publications[-1]
        ]
        back = earlier(cut, lacking)
        if back is None:
            break
        at, rounds = back, rounds + 1
    assert len(set(shown.values())) == 1, f"seed {seed}"
    assert rounds <= 1
