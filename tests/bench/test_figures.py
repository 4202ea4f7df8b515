"""The figures of tables of results, at small sizes, without Spark; wrong answers end a contest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from tests.bench.errors import BenchDisagreesError, BenchFailedError
from tests.bench.figures.__main__ import measure
from tests.bench.figures.contest import contest, loaded
from tests.bench.figures.entrant import Entrant
from tests.bench.figures.figures import Call
from tests.bench.figures.lines import markdown
from tests.bench.figures.records import Digest, digest
from tests.bench.figures.sizes import SMALL

KIND = "rows"
STALE, EMPTY, CONSTANT = "stale", "empty", "constant"


def right(round_: int) -> Digest:
    """Return the digest of what a round should give: as many records in each, with other values."""
    return digest(pl.DataFrame({"order": [1, 2], "n": [round_, 2 * round_]}))


@dataclasses.dataclass
class Fake:
    """A candidate whose answers are right, or wrong in a way of their own."""

    answers: str = ""

    def load(self) -> None:
        """Do nothing."""

    def run(self, round_: int) -> None:
        """Fail if asked for."""
        if self.answers == "fails":
            raise RuntimeError(self.answers)

    def answer(self, round_: int) -> Digest:
        """Return the right answer, or a wrong one."""
        if self.answers == EMPTY:
            return digest(pl.DataFrame({"order": [], "n": []}))
        if self.answers == CONSTANT:
            return right(0)
        return right(round_ - 1 if self.answers == STALE and round_ else round_)

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("answers", [STALE, EMPTY, CONSTANT])
def test_a_wrong_answer_ends_the_contest(answers: str) -> None:
    """Stale, empty and constant answers fail; right ones of another candidate do not help."""
    entrants = [
        Entrant("right", KIND, Fake, own_process=False),
        Entrant("wrong", KIND, lambda: Fake(answers), own_process=False),
    ]
    with loaded(entrants, lambda text: None), pytest.raises(BenchDisagreesError):
        contest(entrants, lambda round_: {KIND: right(round_)}, rounds=2, warmup=0)


def test_candidates_take_turns_and_only_rounds_after_the_warm_up_count() -> None:
    """The first candidate of a round changes; the first round of all is marked."""
    entrants = [Entrant(name, KIND, Fake, own_process=False) for name in "abc"]
    told: list[str] = []
    with loaded(entrants, lambda text: None):
        samples = contest(
            entrants,
            lambda round_: {KIND: right(round_)},
            rounds=2,
            warmup=1,
            tell=lambda text: told.append(text.split()[2]),
        )
    assert told == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert {name: len(one.all) for name, one in samples.items()} == {"a": 2, "b": 2, "c": 2}


@pytest.mark.soak
def test_a_process_that_fails_is_named() -> None:
    """The error of a candidate in a process of its own reaches the caller with its name."""
    entrant = Entrant("bad", KIND, Failing, own_process=True)
    with loaded([entrant], lambda text: None), pytest.raises(BenchFailedError) as failed:
        entrant.run(0)
    assert failed.value.details["candidate"] == "bad"


class Failing(Fake):
    """Fails in each round."""

    def __init__(self) -> None:
        super().__init__("fails")


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda rows: rows.with_columns(n=pl.col("n") + 1), id="a value"),
        pytest.param(lambda rows: rows.with_columns(n=pl.lit(None)), id="null"),
        pytest.param(lambda rows: rows.head(1), id="a record less"),
        pytest.param(lambda rows: rows.with_columns(n=pl.col("n").reverse()), id="swapped values"),
        pytest.param(lambda rows: pl.concat([rows, rows]), id="twice"),
    ],
)
def test_a_digest_is_of_the_records_and_not_of_their_order(
    other: Callable[[pl.DataFrame], pl.DataFrame],
) -> None:
    """The same records in another order have the same digest, other records another one."""
    rows = pl.DataFrame({"url": ["a", "b"], "n": [1, 2]})
    assert digest(rows.reverse().select("n", "url")) == digest(rows)
    assert digest(other(rows)) != digest(rows)


@pytest.mark.part(every=2)
@pytest.mark.parametrize("name", ["increments", "reading", "kept", "timers"])
def test_a_figure_has_a_line_of_each_candidate(name: str, tmp_path: Path) -> None:
    """All candidates without Spark are right at small sizes, and ratios are reported."""
    call = Call(SMALL, tmp_path, spark=False, own_process=False, more=True, tell=lambda text: None)
    lines = measure(call, [name], tmp_path / "figures.json")
    assert all(0 < line.least <= line.seconds <= line.most for line in lines)
    assert {line.candidate for line in lines} == CANDIDATES[name]
    assert any(line.goal for line in lines)
    assert len(markdown(lines, day=date(2026, 11, 23)).splitlines()) == 2 + len(lines)


CANDIDATES = {
    "increments": {
        "state and output",
        "view",
        "ours, look-up",
        "polars-append",
        "polars-memory",
        "polars-merge",
        "duckdb",
    },
    "reading": {
        f"{reader}, {table}"
        for reader in ("polars", "duckdb")
        for table in ("view", "last per key of the log", "plain Parquet of the same records")
    },
    "kept": {"emitted again", "kept", "a key of one row"},
    "timers": {"50 pending", "500 pending"},
}
