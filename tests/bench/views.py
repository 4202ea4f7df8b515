"""What a view costs more than a state with an output: URL count, both in turn in one process.

    python -m tests.bench.views --keys 1000000 --records 10000 --rounds 11 [--profile FILE]

Both count the same URLs on tables of their own. A figure is the median over the rounds of the
processor's seconds in a run's tasks, and in brackets of a whole run with its publication. The view
does more than the output: it has the current count per URL, and says of each URL what it was.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from cbp import TranslateArrow
from stages.translators.url_count import UrlCount
from stages.translators.url_count_arrow import UrlCountArrow
from stages.translators.url_count_view import UrlCountView
from tests.bench.in_turn import UrlCounts, medians, rounds_in_turn, task_seconds


class ViewCountArrow(TranslateArrow):
    """Counts how often each URL was seen, in a view, by tables."""

    urls, counts = UrlCountView.urls, UrlCountView.counts

    def translate(self, groups: Any, out: Any) -> None:
        """Add the new sightings to the counts."""
        n = groups.sizes("urls") + groups.sums("counts", "n")
        out.counts(groups.keys.append_column("n", pa.array(n)))


FORMS: dict[str, tuple[type, type]] = {
    "groupwise": (UrlCount, UrlCountView),
    "arrow": (UrlCountArrow, ViewCountArrow),
}


def measure(form: str, keys: int, records: int, rounds: int, profile: str) -> None:
    """Print both candidates' seconds, and their ratio."""
    measuring = False
    with (
        tempfile.TemporaryDirectory() as folder,
        task_seconds(lambda task: bool(task.plan.spec.views) and measuring, profile) as spent,
    ):
        candidates = [
            UrlCounts(translator(), Path(folder) / f"{at}", keys)
            for at, translator in enumerate(FORMS[form])
        ]
        measuring = True
        times = rounds_in_turn(candidates, spent, keys=keys, records=records, rounds=rounds)
    (output, output_whole), (view, view_whole) = map(medians, times)
    print(
        f"| {form} | {output:.3f} ({output_whole:.3f}) | {view:.3f} ({view_whole:.3f}) | "
        f"{view / output:.2f} ({view_whole / output_whole:.2f}) |",
        flush=True,
    )


def main() -> None:
    """Print a line for each form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--forms", default="groupwise,arrow")
    parser.add_argument("--profile", default="", help="file for a profile of the view's tasks")
    options = parser.parse_args()
    print("| form | state and output, s | view, s | ratio |")
    print("| --- | --- | --- | --- |")
    for form in options.forms.split(","):
        measure(form, options.keys, options.records, options.rounds, options.profile)


if __name__ == "__main__":
    main()
