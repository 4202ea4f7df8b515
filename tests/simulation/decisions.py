"""What an operator decides about quarantined files, woven as steps into a plan.

Steps, each with the number of the request, by which it is asked again:

    ("readmit", number, which)       the file is admitted as it is, and refused again
    ("mend", number, which, file)    a good file is admitted in its place
    ("discard", number, which)       it is not wanted
    ("restore", number, which)       a decision is taken back

The file is chosen when it is asked for, by what is in quarantine then, or was decided.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.simulation.operations import Step
from tests.simulation.weaving import weave

__all__ = ["DECISIONS", "Decided", "with_decisions"]

DECISIONS = ("readmit", "mend", "discard", "restore")
EFFECTS = ("decision", "decision", "rename", "rename", "claim", "sql_commit")
"""Where a fault is aimed that is to strike in a decision."""

VERBS = ("mend", "mend", "mend", "discard", "discard", "readmit", "restore", "restore", "restore")
ROUND = (("scan",), ("tick",), ("work", 0), ("tick",))
FILES = (1, 2, 2, 3)


@dataclass(frozen=True)
class Decided:
    """A plan with what an operator decides.

    Attributes:
        files, rows: The files that come with it; the plan's own are before them.
    """

    files: list[bytes]
    rows: list[list[dict[str, int]] | None]
    steps: list[Step]


def with_decisions(
    rng: random.Random,
    sources: Sequence[str],
    steps: Sequence[Step],
    first_file: int,
    bad: Sequence[str],
    deaths: Sequence[str],
    fault: Callable[[Sequence[str]], Step],
) -> Decided:
    """Weave bad files, and decisions about them, into a plan.

    Args:
        rng: Random numbers of this alone: the other steps stay what the seed made of them.
        sources: Where bad files come.
        steps: What happens anyway.
        first_file: Number of the first file that is added.
        bad: Contents of bad files.
        deaths: Verbs of deaths.
        fault: Returns a fault that strikes at one of these effects.
    """
    made = Decided([], [], [])

    def number_of(data: str, rows: list[dict[str, int]] | None) -> int:
        made.files.append(data.encode())
        made.rows.append(rows)
        return first_file + len(made.files) - 1

    parcels: list[list[Step]] = []
    for _ in range(rng.choice(FILES)):
        file = number_of(rng.choice(bad), None)
        verb = "upload" if rng.random() < 0.2 else "drop"
        parcels.append([(verb, rng.choice(sources), file), ("scan",), ("sleep", 1.0), ("scan",)])
    again: list[Step] = []
    for number in range(rng.choice((3, 4, 5))):
        verb = rng.choice(VERBS)
        asked: Step = (verb, number, rng.choice((0, 0, 1, 2)))
        if verb == "mend":
            rows = [{"k": rng.randrange(5), "n": 1000 + number * 10 + rng.randrange(10)}]
            asked += (number_of(json.dumps(rows[0]) + "\n", rows),)
        parcel: list[Step] = [fault(EFFECTS)] if rng.random() < 0.6 else []
        parcel.append(asked)
        again.append(asked)
        if rng.random() < 0.4:
            parcel.append(rng.choice(again))
        if rng.random() < 0.4:
            parcel.append((rng.choice(deaths),))
        parcels.append([*parcel, *(one for one in ROUND if rng.random() < 0.7)])
    made.steps.extend(weave(rng, steps, parcels))
    return made
