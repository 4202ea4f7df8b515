"""Sweeps over all links, against sums by hand and linear equations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from stages.fixpoint import LinkSums, fixpoint
from tests.stages.real_graphs import power_law

Floats = npt.NDArray[np.float64]

NONE = np.empty(0, np.int64)


def test_sums_are_those_of_the_links_that_are_left() -> None:
    """More links than are summed at a time, and some of them gone."""
    dice = np.random.default_rng(5)
    src, dst = np.unique(dice.integers(0, 300, (60_000, 2)), axis=0).T
    gives, gone = dice.integers(-9, 1 << 40, 300).astype(np.float64), slice(None, None, 7)
    right = np.zeros(300)
    for begin, end in zip(np.delete(src, gone), np.delete(dst, gone), strict=True):
        right[end] += gives[begin]
    assert len(src) > 2 * (1 << 14)
    assert np.array_equal(LinkSums(src, dst, (src[gone], dst[gone]), 300).of(gives), right)


@pytest.mark.parametrize("kind", ["hubs", "a ring of two", "a path", "no links"])
def test_a_fixpoint_lacks_no_more_than_it_may(kind: str) -> None:
    """Where links lead everywhere, back and forth, only on, and nowhere: the right one."""
    src, dst = {
        "hubs": power_law(400, 3_000).T,
        "a ring of two": np.array([[0, 1], [1, 0]]),
        "a path": np.array([np.arange(399), np.arange(1, 400)]),
        "no links": np.empty((2, 0), np.int64),
    }[kind]
    links = np.bincount(src, minlength=400)
    share, sweeps = 0.85 / np.maximum(links, 1), []
    sums = LinkSums(src, dst, (NONE, NONE), 400)

    def flow(scores: Floats) -> Floats:
        sweeps.append(len(sweeps))
        return 0.15 + sums.of(share * scores)

    found = fixpoint(flow, np.ones(400), 1e-11)
    assert np.abs(flow(found) - found).max() <= 1e-11
    matrix = np.eye(400)
    np.add.at(matrix, (dst, src), -share[src])
    right = np.linalg.solve(matrix, np.full(400, 0.15))
    assert np.abs(found - right).mean() <= 1e-10
    assert kind == "a path" or len(sweeps) < 60, "without mixing: ln(1e-11) / ln(0.85), 156"


def test_what_does_not_settle_ends() -> None:
    """Scores that grow for ever, that go back and forth, and that are no numbers any more."""
    fixpoint(lambda scores: scores + 1, np.zeros(3), 0.5)
    fixpoint(lambda scores: 1 - scores, np.zeros(3), 0.4)
    fixpoint(lambda scores: scores * 1e200 + 1, np.zeros(3), 0.4)
    fixpoint(lambda scores: scores * np.nan, np.zeros(3), 0.4)
