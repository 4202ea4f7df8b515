"""Files that replace others in a simulation, woven as steps into a plan, and what must count then.

Steps:

    ("overwrite", name, file)     a producer writes a file anew, under the name of an earlier one
    ("retract", name, file)       an operator takes the file of a name back; `file` is an empty one

They come to a source of their own, whose files replace those of their name, with a stage that
computes groups anew, and one behind it that adds up its changes.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.ingest.source_log import SourceEntry
from tests.simulation.model import Record
from tests.simulation.operations import Step
from tests.simulation.stages import SCHEMA
from tests.simulation.weaving import weave

__all__ = [
    "REPLACED_SOURCE",
    "Replaced",
    "difference",
    "replaceable",
    "takes_place",
    "with_replaced_files",
]

REPLACED_SOURCE = "r"
EFFECTS = ("claim", "increment_file", "source_log", "data_file", "intention", "sql_commit")
"""Where a fault is aimed that is to strike while a file is replaced."""

ROUND = (("scan",), ("tick",), ("work", 0), ("tick",), ("work", 0))


@dataclass(frozen=True)
class Replaced:
    """A plan with files that replace others.

    Attributes:
        files, rows: The files that come with it; the plan's own are before them.
    """

    document: dict[str, Any]
    files: list[bytes]
    rows: list[list[dict[str, int]] | None]
    steps: list[Step]


def replaceable(steps: Sequence[Step], inputs_seconds: float | None) -> bool:
    """Tell whether files of a plan can be replaced: nothing of the past changes its meaning."""
    return inputs_seconds is None and not any(step[0] == "change" for step in steps)


def with_replaced_files(
    rng: random.Random,
    document: Mapping[str, Any],
    steps: Sequence[Step],
    first_file: int,
    deaths: Sequence[str],
    fault: Callable[[Sequence[str]], Step],
) -> Replaced:
    """Weave files, those that replace them, and retractions, into a plan.

    Args:
        rng: Random numbers of this alone: the other steps stay what the seed made of them.
        document: The dataflow.
        steps: What happens anyway.
        first_file: Number of the first file that is added.
        deaths: Verbs of deaths.
        fault: Returns a fault that strikes at one of these effects.
    """
    source: dict[str, Any] = {"schema": SCHEMA, "same_name": "replace"}
    if rng.random() < 0.3:
        source["batch"] = {"files": 3}
    held = {"translator": "held", "inputs": {"items": REPLACED_SOURCE}, "any_order": True}
    behind = {"translator": "balance", "inputs": {"moved": "held.top"}}
    made = Replaced(
        {
            **document,
            "sources": {**document["sources"], REPLACED_SOURCE: source},
            "stages": {
                **document["stages"],
                "held": {**held, "buckets": 2},
                "heldv": {**behind, "buckets": 2},
            },
        },
        [],
        [],
        [],
    )
    counts: dict[str, list[dict[str, int]]] = {}
    retracted: set[str] = set()
    parcels: list[list[Step]] = []
    for number in range(rng.choice((4, 5, 7))):
        name = f"r{rng.randrange(2)}"
        verb = "overwrite"
        if counts.get(name) and name not in retracted and rng.random() < 0.2:
            verb = "retract"
            retracted.add(name)
        kept = [row for row in counts.get(name, []) if rng.random() < 0.6]
        rows = kept + [
            {"k": rng.randrange(5), "n": rng.randrange(4)} for _ in range(rng.randrange(3))
        ]
        # Its number is in it: a file comes twice only if the same step is taken twice.
        rows = [] if verb == "retract" else [*rows, {"k": 7, "n": 100 + number}]
        counts[name] = rows
        made.rows.append(rows)
        made.files.append("".join(json.dumps(row) + "\n" for row in rows).encode())
        step = (verb, name, first_file + number)
        parcel: list[Step] = [fault(EFFECTS)] if rng.random() < 0.5 else []
        parcel.append(step)
        if rng.random() < 0.2:
            parcel.append(fault(EFFECTS))
        parcel += [one for one in ROUND if rng.random() < 0.7]
        if rng.random() < 0.3:
            parcel.append((rng.choice(deaths),))
        parcels.append(parcel)
    made.steps.extend(weave(rng, steps, parcels))
    return made


def takes_place(entry: SourceEntry) -> bool:
    """Tell whether an entry of a source's log replaces an earlier file, or takes it back."""
    return (entry.files[0].same_as or {}).get("by") in ("replaced", "retracted")


def difference(
    entry: SourceEntry,
    rows: list[Record],
    rows_of: Callable[[str], list[Record]],
) -> tuple[list[Record], list[Record]]:
    """Return the records that an entry must bring, and those that it must take back.

    Args:
        entry: Of the source's log.
        rows: The records of its files.
        rows_of: Returns the records of the file of a claim.
    """
    if not takes_place(entry):
        return rows, []
    earlier = rows_of((entry.files[0].same_as or {})["claim"])
    return _without(rows, earlier), _without(earlier, rows)


def _without(rows: list[Record], others: list[Record]) -> list[Record]:
    left = Counter(tuple(row.items()) for row in others)
    made = []
    for row in rows:
        if left[tuple(row.items())]:
            left[tuple(row.items())] -= 1
        else:
            made.append(row)
    return made
