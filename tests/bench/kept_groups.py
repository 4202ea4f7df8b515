"""What one more row of a key costs, by the rows that the key has: emitted again, or kept.

    python -m tests.bench.kept_groups --rows 1000,10000,100000 --rounds 20

The forms are run in turn in one process, on tables of their own. The task of a run reads one record
of one key, looks up its state, calls the author, and writes what changed; merges of files are among
the rounds, as in a service. A figure is the median of the milliseconds that the processor works in
the task, and in brackets the least time that a task took. The last column is what a task costs in
any case: a key that has one row, and replaces it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from cbp import DataflowBuilder, Input, State, Translate
from cbp.engine.direct import LocalEngine
from tests.bench.in_turn import task_seconds
from tests.driver import Driver

SCHEMA = "site STRING, page BIGINT, url STRING, score DOUBLE"


class Emits(Translate):
    """Is handed all pages of a site, and emits all of them again, with the scores summed up."""

    pages = Input(SCHEMA, route_by="site")
    known = State(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the pages that came."""
        new = {page.page: page for page in group.pages}
        for page in group.known:
            if (after := new.get(page.page)) is None:
                out.known(*page)
            else:
                new[page.page] = after._replace(score=after.score + page.score)
        for page in new.values():
            out.known(*page)


class Keeps(Translate):
    """Puts the pages that came; the others stay."""

    pages = Input(SCHEMA, route_by="site")
    known = State(SCHEMA, keep=True, key="site, page")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the pages that came, and look one up."""
        for page in group.pages:
            before = group.known.get(page=page.page)
            out.known(*page._replace(score=page.score + (before.score if before else 0.0)))


class Replaces(Translate):
    """Keeps the page that came last."""

    pages = Input(SCHEMA, route_by="site")
    known = State(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Forget the page before."""
        for page in list(group.pages)[-1:]:
            out.known(*page)


def page(number: int) -> dict[str, Any]:
    """Return one page of the only site."""
    url = f"https://example.org/pages/{number:012d}"
    return {"site": "example.org", "page": number, "url": url, "score": 1.0}


class Candidate:
    """One form, on its own tables, whose key has some rows."""

    def __init__(self, translator: Translate, folder: Path, rows: int, records: int = 1) -> None:
        builder = DataflowBuilder("kept")
        builder.stage("stage", translator, pages=builder.source("pages", SCHEMA), buckets=8)
        engine = LocalEngine(cache=f"{folder}/cache")
        self.driver = Driver(engine, builder.build(), folder / "tables")
        self.translator, self.rows, self.records = translator, rows, records
        self.driver.feed("pages", [page(number) for number in range(rows)])
        self.driver.run_until_idle()

    def round(self, number: int) -> float:
        """Add pages, or put some again in every other round; return milliseconds of the task."""
        is_new = bool(number % 2)
        first = self.rows + number * self.records if is_new else number * 7919
        pages = range(first, first + self.records)
        self.driver.feed("pages", [page(each if is_new else each % self.rows) for each in pages])
        self.driver.run_until_idle()
        figures = self.driver.figures[-1]
        written = 1 if isinstance(self.translator, Replaces) else self.records
        assert figures["state_written"] == written
        return 1000 * float(figures["seconds_task"])

    def scores(self) -> dict[int, float]:
        """Return the score of each page in the published state."""
        return {row["page"]: row["score"] for row in self.driver.state("stage", "known")}


def expected_scores(rows: int, records: int, rounds: int) -> dict[int, float]:
    """Return the score of each page after some rounds: how often it was put."""
    scores = dict.fromkeys(range(rows), 1.0)
    for number in range(1, 1 + rounds):
        for each in range(records):
            is_new = bool(number % 2)
            one = rows + number * records + each if is_new else (number * 7919 + each) % rows
            scores[one] = scores.get(one, 0.0) + 1.0
    return scores


def measure(
    rows: int, records: int, rounds: int, warmup: int
) -> tuple[list[tuple[float, float]], ...]:
    """Return the milliseconds of each task by form: of the processor, and elapsed.

    In the end the state of both forms that have all rows is compared with the right one.
    """
    with tempfile.TemporaryDirectory() as folder, task_seconds() as spent:
        forms = (Emits(), Keeps(), Replaces())
        candidates = [
            Candidate(form, Path(folder) / f"{at}", rows, records) for at, form in enumerate(forms)
        ]
        times: list[list[tuple[float, float]]] = [[] for _ in candidates]
        for number in range(1, 1 + warmup + rounds):
            for each, mine in zip(candidates, times, strict=True):
                spent.clear()
                elapsed = each.round(number)
                mine.append((1000 * sum(spent.values()), elapsed))
        right = expected_scores(rows, records, warmup + rounds)
        for each in candidates[:2]:
            assert each.scores() == right, f"{type(each.translator).__name__} has other scores"
    return tuple(mine[warmup:] for mine in times)


def shown(mine: list[tuple[float, float]]) -> str:
    """Return the median of the processor's milliseconds, and the least time."""
    return f"{statistics.median(work for work, _ in mine):.1f} ({min(e for _, e in mine):.1f})"


def main() -> None:
    """Print a line for each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="1000,10000,100000")
    parser.add_argument("--records", type=int, default=1, help="records of a round")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    options = parser.parse_args()
    print("| rows of the key | emitted again, ms | kept, ms | one row, ms |")
    print("| --- | --- | --- | --- |")
    for rows in map(int, options.rows.split(",")):
        results = measure(rows, options.records, options.rounds, options.warmup)
        print(f"| {rows:,} | {' | '.join(map(shown, results))} |", flush=True)


if __name__ == "__main__":
    main()
