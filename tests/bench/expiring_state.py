"""What the age of a state costs a call: URL count with `expire="30 days"`, and without.

    python -m tests.bench.expiring_state --keys 200000 --records 10000 --rounds 11 [--profile FILE]

The candidates count the same URLs on tables of their own, in turn in one process. `same` is the
usual round: the timers of the called groups stay as they are. In a round of `new` so much time has
passed that each of them is written anew, which happens to a group at most sixteen times within its
age. A figure is the median over the rounds of the processor's seconds in a run's tasks, and in
brackets of a whole run with its publication; a ratio is the median of the ratios of each round.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from cbp import Input, Output, State, Translate, TranslateArrow
from tests.bench.in_turn import UrlCounts, medians, rounds_in_turn, task_seconds

SCHEMA = "url STRING, n BIGINT"
BEGIN_MS = 1_800_000_000_000
STEP_MS = 2 * 24 * 3_600_000
"""More than a sixteenth of the age."""


class Counts(Translate):
    """Counts how often each URL was seen."""

    urls = Input("url STRING", route_by="url")
    totals = Output(SCHEMA, key="url")

    def __init__(self, age: str | None = None) -> None:
        self.counts = State(SCHEMA, expire=age)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add the new sightings of one URL to its count."""
        n = sum(1 for _ in group.urls) + sum(row.n for row in group.counts)
        out.counts(url=key.url, n=n)
        out.totals(url=key.url, n=n)


class CountsArrow(TranslateArrow):
    """The same by tables."""

    urls, totals = Counts.urls, Counts.totals

    def __init__(self, age: str | None = None) -> None:
        self.counts = State(SCHEMA, expire=age)

    def translate(self, groups: Any, out: Any) -> None:
        """Add the new sightings to the counts."""
        n = groups.sizes("urls") + groups.sums("counts", "n")
        counts = groups.keys.append_column("n", pa.array(n))
        out.counts(counts)
        out.totals(counts)


FORMS: dict[str, Any] = {"groupwise": Counts, "arrow": CountsArrow}
CANDIDATES = ((None, 0), ("30 days", 0), ("30 days", STEP_MS))
"""The age, and the time that passes from round to round."""


def measure(form: str, keys: int, records: int, rounds: int, profile: str) -> None:
    """Print the seconds of all candidates, and their ratios to the first."""
    measuring = False
    with (
        tempfile.TemporaryDirectory() as folder,
        task_seconds(lambda task: bool(task.plan.spec.expiries) and measuring, profile) as spent,
    ):
        candidates = [
            UrlCounts(
                FORMS[form](age), Path(folder) / f"{at}", keys, time_ms=BEGIN_MS, step_ms=step_ms
            )
            for at, (age, step_ms) in enumerate(CANDIDATES)
        ]
        measuring = True
        times = rounds_in_turn(candidates, spent, keys=keys, records=records, rounds=rounds)
    cells = [f"{task:.3f} ({whole:.3f})" for task, whole in map(medians, times)]
    for mine in times[1:]:
        pairs = list(zip(mine, times[0], strict=True))
        task, whole = (statistics.median(one[at] / no[at] for one, no in pairs) for at in (0, 1))
        cells.append(f"{task:.2f} ({whole:.2f})")
    print(f"| {form} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print a line for each form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=11, help="13 at most: then groups expire")
    parser.add_argument("--forms", default="groupwise,arrow")
    parser.add_argument("--profile", default="", help="file for a profile of tasks with an age")
    options = parser.parse_args()
    print("| form | no age, s | same, s | new, s | same, ratio | new, ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    for form in options.forms.split(","):
        measure(form, options.keys, options.records, options.rounds, options.profile)


if __name__ == "__main__":
    main()
