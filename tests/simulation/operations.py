"""What operators do in a simulation, woven as steps into a plan. A seed determines all of it.

Steps, each with the number of the request, by which it is asked again after a death:

    ("correct", number, stage, state, key, kind, values)     put records of a state right
    ("close", number, flow)                                  close the open frames of a flow
    ("marker", source)                                       the same, by a file
    ("back", number, kind, distance, later)                  roll back; `later`: what arrived
                                                             since is dropped
    ("change", number)                                       a new version; see `next_version`
    ("collect",)                                             remove what nobody needs

What a roll-back and a new version are is decided when they are asked for, by what is there
then: `distance` counts runs back, and `next_version` alters the document of that moment.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cbp.model.version.version_change import Choice
from tests.simulation.stages import STATES

__all__ = ["OPERATIONS", "Operated", "Step", "framed_flows", "next_version", "operated"]

Step = tuple[Any, ...]

OPERATIONS: dict[str, tuple[str, ...]] = {
    "correct": ("correction", "correction", "intention", "data_file", "log_entry", "sql_commit"),
    "close": ("punctuation", "sql_commit"),
    "marker": ("rename", "punctuation", "sql_commit"),
    "back": ("generation", "generation", "log_entry", "vectors_file", "sql_commit"),
    "change": ("description", "data_file", "log_entry", "log_entry", "dead_record", "sql_commit"),
    "collect": ("dead_file", "dead_entry", "dead_record", "snapshot", "clean_up", "sql_commit"),
}
"""Verb to the effects that it has: where a fault is aimed that is to strike in it."""

MIXES: tuple[tuple[str, ...], ...] = (
    ("correct",),
    ("back",),
    ("change",),
    ("correct", "back"),
    ("correct", "change"),
    ("back", "change"),
    ("close", "marker"),
    ("close", "marker", "back"),
    ("close", "marker", "correct", "change"),
    ("correct", "back", "change", "collect"),
)
"""What one operator does; few things each, so that they meet."""

STEPS_MEAN = 5
FRAMED_SHARE = 0.5
NEW = {"n0": "total", "n1": "fickle", "n2": "note", "n3": "ages"}
"""Stages that versions add, to their translator: who comes back is the same as before."""
_ONE_INPUT = ("note", "total", "twice", "fickle", "ages", "mail")


@dataclass(frozen=True)
class Operated:
    """A plan with what operators do.

    Attributes:
        kept: Whether the past stays readable, so that there is something to go back to.
        inputs_seconds: For how long inputs are kept; `None`: for longer than anything here.
    """

    document: dict[str, Any]
    steps: list[Step]
    kept: bool
    inputs_seconds: float | None


def operated(
    rng: random.Random,
    document: Mapping[str, Any],
    steps: Sequence[Step],
    fault: Callable[[Sequence[str]], Step],
) -> Operated:
    """Weave operations into a plan.

    Args:
        rng: The seed's random numbers.
        document: The dataflow; some stage of it may become one that frames.
        steps: What happens anyway.
        fault: Returns a fault that strikes at one of these effects.
    """
    changed = copy.deepcopy(dict(document))
    verbs = rng.choice(MIXES)
    if "close" in verbs:
        _let_frame(rng, changed)
    made: list[Step] = []
    again: list[Step] = []
    number = 0
    for step in steps:
        made.append(step)
        if again and rng.random() < 0.3:
            made.append(again.pop())
        if rng.random() >= min(0.5, STEPS_MEAN / len(steps)):
            continue
        verb = rng.choice(verbs)
        asked = _operation(rng, verb, number, changed)
        number += 1
        if asked is None:
            continue
        for chance in (0.65, 0.25):
            if rng.random() < chance:
                made.append(fault(OPERATIONS[verb]))
        made.append(asked)
        if rng.random() < 0.3 and verb != "marker":
            again.append(asked)
    kept = "back" in verbs and rng.random() < 0.9
    inputs_seconds = rng.choice((0.0, 5.0)) if rng.random() < 0.25 else None
    return Operated(changed, made, kept, inputs_seconds)


def framed_flows(document: Mapping[str, Any]) -> list[str]:
    """Return the flows that some stage frames."""
    return [
        stage["inputs"]["items"]
        for stage in document["stages"].values()
        if stage["translator"] in ("frames", "cracked", "chipped")
    ]


def next_version(rng: random.Random, document: Mapping[str, Any]) -> tuple[dict[str, Any], Choice]:
    """Return another version of a document, and what its author says about it.

    A stage is added, taken away, gets other code or another number of buckets. What is behind
    a stage that is rebuilt is rebuilt too.
    """
    changed = copy.deepcopy(dict(document))
    stages = changed["stages"]
    read = {flow.partition(".")[0] for s in stages.values() for flow in s["inputs"].values()}
    free = [name for name in NEW if name not in stages]
    idle = [name for name in stages if name not in read and len(stages) > 1]
    swapped = [n for n, stage in stages.items() if stage["translator"] in ("total", "twice")]
    kinds = ["buckets", *(["add"] if free else []), *(["remove"] if idle else [])]
    kinds += ["replace", "replace"] if swapped else []
    kind = rng.choice(kinds)
    if kind == "buckets":
        stage = stages[rng.choice(list(stages))]
        stage["buckets"] = rng.choice([n for n in (2, 4, 8) if n != stage["buckets"]])
        return changed, Choice()
    if kind == "remove":
        del stages[rng.choice(idle)]
        return changed, Choice()
    if kind == "add":
        name = rng.choice(free)
        flows = [*changed["sources"], *(f"{stage}.o" for stage in stages)]
        stages[name] = {
            "translator": NEW[name],
            "inputs": {"items": rng.choice(flows)},
            "buckets": 2,
        }
        return changed, Choice(retained=frozenset([name] if rng.random() < 0.5 else []))
    name = rng.choice(swapped)
    stage = stages[name]
    stage["translator"] = "twice" if stage["translator"] == "total" else "total"
    if rng.random() < 0.5:
        return changed, Choice(keep=frozenset([name]))
    return changed, Choice(rebuild=_behind(stages, name))


def _behind(stages: Mapping[str, Any], name: str) -> frozenset[str]:
    """Return a stage and all that read what it writes, however far behind it."""
    actual, moved = {name}, True
    while moved:
        more = {
            other
            for other, stage in stages.items()
            if any(flow.partition(".")[0] in actual for flow in stage["inputs"].values())
        }
        moved = not more <= actual
        actual |= more
    return frozenset(actual)


def _let_frame(rng: random.Random, document: dict[str, Any]) -> None:
    """Let a stage frame its input, and at times close it when nothing comes.

    It keeps no table that another stage looks up.
    """
    stages = document["stages"]
    tables = {stage["inputs"].get("table", "").partition(".")[0] for stage in stages.values()}
    able = [
        stage
        for name, stage in stages.items()
        if stage["translator"] in _ONE_INPUT and name not in tables
    ]
    if able and (not framed_flows(document) or rng.random() < FRAMED_SHARE):
        rng.choice(able)["translator"] = "frames"
    for stage in stages.values():
        if stage["translator"] == "frames" and rng.random() < 0.4:
            stage["close_idle_seconds"] = {"items": rng.choice((3, 30))}


def _operation(
    rng: random.Random, verb: str, number: int, document: Mapping[str, Any]
) -> Step | None:
    match verb:
        case "correct":
            able = [n for n, s in document["stages"].items() if s["translator"] in STATES]
            if not able:
                return None
            stage = rng.choice(able)
            state = STATES[document["stages"][stage]["translator"]]
            kind = rng.choice(("records", "records", "set"))
            records = tuple(
                {column: rng.randrange(10) for column in state.columns}
                for _ in range(1 if kind == "set" else rng.choice((0, 1, 1, 2)))
            )
            if state.key is not None:
                records = _with_keys(records, state.key, named=kind == "records")
            return ("correct", number, stage, state.name, rng.randrange(6), kind, records)
        case "close":
            flows = framed_flows(document)
            if not flows or rng.random() < 0.05:
                flows = list(document["sources"])
            return ("close", number, rng.choice(flows))
        case "marker":
            return ("marker", rng.choice(list(document["sources"])))
        case "back":
            kind = rng.choice(("number", "stage", "time"))
            return ("back", number, kind, rng.choice((0, 1, 1, 2, 3, 5)), rng.random() < 0.3)
        case "change":
            return ("change", number)
        case _:
            return (verb,)


def _with_keys(
    records: tuple[dict[str, int], ...], key: tuple[str, ...], *, named: bool
) -> tuple[dict[str, int], ...]:
    """Return records of which no two have one key; without it, if all of a group are set."""
    if not named:
        return tuple({n: v for n, v in one.items() if n not in key} for one in records)
    by_key = {tuple(one[name] for name in key): one for one in records}
    return tuple(by_key.values())
