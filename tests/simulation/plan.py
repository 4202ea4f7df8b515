"""What one simulation does, as data: a dataflow, files, steps. A seed determines all of it.

    plan = plan_of(17)
    plan.steps[3]          # ("fault", "crash", "intention.after", 2)

Steps:

    ("drop", source, file)            a producer renames a file into place; files come twice too
    ("upload", source, file)          the same over the API, acknowledged when it returns
    ("scan",) ("tick",) ("work", r)   what the service's threads do; `work` ends one run of those
                                      under way, the r-th
    ("sleep", seconds)                the clock; it may go back
    ("pause",) ("resume",) ("priority", stage, priority)
    ("within", r)                     as `work`, from the last; while its tasks run, others start,
                                      end, and files that nobody needs are collected
    ("twice",)                        the next run's tasks are executed twice, as by speculation
    ("fault", kind, point, nth)       the n-th passage of a failpoint from now on fails; "*" is any,
                                      `statement` the end of one inside a transaction
    ("stall", point, nth)             the instance that leads halts at a failpoint for longer
                                      than its lease; another one takes over
    ("suspend", point, nth)           the same with its clock, as a virtual machine does
    ("continue",)                     and then it goes on
    ("late",)                         the lease is not renewed in time, once
    ("kill",) ("stop",) ("lose",)     killed between effects; stopped; killed, and the database lost
    ("power",)                        killed, and what was not synced is lost
    what operators do                 see `operations`, `asides`, `decisions` and `sinking`
    what another system does          see `followed_tables`
    files that replace others         see `replaced_files`
    tables that are built beside      see `builds`

Kinds of fault: `crash`; `enospc`, `eio`; `unknown`, the effect happened and the caller gets an
error; `power`, a crash that loses what was not synced. Several may be due at once, so that some
strike during a recovery.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.simulation.asides import with_asides
from tests.simulation.builds import with_builds
from tests.simulation.decisions import with_decisions
from tests.simulation.faults import STATEMENT
from tests.simulation.followed_tables import with_followed_table, with_versions
from tests.simulation.lookups import with_lookups, with_runs_within
from tests.simulation.operations import Step, operated
from tests.simulation.priorities import with_priorities
from tests.simulation.replaced_files import replaceable, with_replaced_files
from tests.simulation.sinking import sinkable, with_sinks
from tests.simulation.stages import SCHEMA, TRANSLATORS

__all__ = ["Plan", "Step", "plan_of"]

Rows = list[dict[str, int]]

# Faults are aimed at what happens next: any passage would mostly be one of the store's.
INGESTION = ("claim", "rename", "increment_file", "source_log", "sql_commit")
RUNS = (
    "job",
    "data_file",
    "data_sync",
    "vectors_file",
    "intention",
    "log_entry",
    "checkpoint",
    "sql_commit",
)
HOUSEKEEPING = ("dead_file", "dead_entry", "dead_record", "snapshot", "clean_up")
# Between the question whether it leads and the effect: the worst place to stand still.
STALLS = {
    "scan": ("claim.after", "rename.before", "increment_file.before", "source_log.before"),
    "work": ("log_entry.before", "log_entry.before", "job.after", "intention.after"),
    "within": ("log_entry.before", "job.before", "intention.after"),
    "tick": tuple(f"{effect}.before" for effect in HOUSEKEEPING),
    "correct": ("correction.after", "log_entry.before", "intention.after"),
    "close": ("punctuation.before", "punctuation.after"),
    "back": ("generation.before", "generation.after", "log_entry.before", "log_entry.after"),
    "change": ("data_file.after", "description.before", "description.after", "log_entry.before"),
}
LONG_SHARE = 0.06
OPERATED_SHARE = 0.25
STATEMENTS_SHARE = 0.4
SINGLES_SHARE = 0.3
SINGLES = {"pair": "posted", "either": "postal"}
TIMED_SHARE = 0.25
TIMED = {"total": "wakes", "fickle": "wakes"}
VIEWED_SHARE = 0.2
VIEWED = {"total": "listed", "fickle": "stocked"}
BATCHED_SHARE = 0.15
BAGS_SHARE = 0.5
LOOPS_SHARE = 0.5
LOOKED_SHARE = 0.07
KEPT_SHARE = 0.04
KEPT_FILES = 12
DECIDED_SHARE = 0.12
PRIORITIZED_SHARE = 0.12
SUNK_SHARE = 0.15
FOLLOWED_SHARE = 0.15
REPLACED_SHARE = 0.12
BUILT_SHARE, BUILT_OF_REPLACED = 0.1, 0.6
ASIDE_SHARE = 0.12
KEEPS = ({"hours": 0}, {"hours": 0}, {"hours": 5 / 3600}, {"bytes": 1})
LEASED_SHARE = 0.3
BAD = ("{", '{"k": "x", "n": 1}\n', '{"k": 1, "n": 1.5}\n', '{"k": 1}{"k": 2}\n', "\x00\x01")
ONE_INPUT = ("note", "note", "total", "total", "fickle", "ages", "frames", "mail")


@dataclass(frozen=True)
class Plan:
    """One simulation.

    Attributes:
        document: The dataflow, as it is registered.
        files: Content of each file; those with `None` in `rows` are bad.
        rows: The records of each file, as they are to be read.
        collect_every: Epochs between collections.
        settle: Seconds that a file must be unchanged.
        lose_in_the_end: Whether the database is lost at the very end.
        leased: Whether instances take turns by a lease.
        kept: Whether the past of tables stays, so that there is something to go back to.
        inputs_seconds: For how long inputs are kept; `None`: for good.
        builds: Whether tables are built beside.
    """

    seed: int
    document: dict[str, Any]
    files: list[bytes]
    rows: list[Rows | None]
    steps: list[Step]
    collect_every: int
    settle: float
    lose_in_the_end: bool
    leased: bool = False
    kept: bool = False
    inputs_seconds: float | None = None
    builds: bool = False

    @property
    def collects(self) -> bool:
        """Whether something goes that is not kept for good: inputs, increments, or messages."""
        return self.inputs_seconds is not None or any(
            "keep" in stage or TRANSLATORS[stage["translator"]]().spec().loopbacks
            for stage in self.document["stages"].values()
        )


def plan_of(seed: int, *, power: bool = False) -> Plan:
    """Return the plan of a seed; with `power`, the machine loses its power instead of crashing."""
    rng = random.Random(f"{'power' if power else 'plan'} {seed}")
    long = rng.random() < LONG_SHARE
    document = _late(rng) if long else _document(rng)
    singles = random.Random(f"singles {power} {seed}")
    if singles.random() < SINGLES_SHARE:
        for stage in document["stages"].values():
            stage["translator"] = SINGLES.get(stage["translator"], stage["translator"])
    timed = random.Random(f"timers {power} {seed}")
    if timed.random() < TIMED_SHARE:
        for stage in document["stages"].values():
            stage["translator"] = TIMED.get(stage["translator"], stage["translator"])
    viewed = random.Random(f"views {power} {seed}")
    if viewed.random() < VIEWED_SHARE:
        document = _with_views(viewed, document)
    batched = random.Random(f"batches {power} {seed}")
    if batched.random() < BATCHED_SHARE:
        for source in document["sources"].values():
            source["batch"] = {"files": batched.choice((2, 2, 3))}
    looked = random.Random(f"lookups {power} {seed}")
    if looks_up := looked.random() < LOOKED_SHARE:
        document = with_lookups(looked, document, partial(_stage, looked))
    _let_be_bags(random.Random(f"bags {power} {seed}"), document)
    _let_be_loops(random.Random(f"loops {power} {seed}"), document)
    files, rows = _files(rng, rng.choice((10, 12)) if long else rng.choice((2, 3, 3, 4)))
    sources = list(document["sources"])
    follower = random.Random(f"tables {power} {seed}")
    if follows := follower.random() < FOLLOWED_SHARE:
        document = with_followed_table(follower, document, partial(_stage, follower))
    steps = _queueing(rng, len(files), power) if long else _steps(rng, sources, len(files), power)
    kept, inputs_seconds = False, None
    # Others: what producers and the machine do stays what the seed always did.
    operators = random.Random(f"operators {power} {seed}")
    if operators.random() < OPERATED_SHARE:
        actual = operated(operators, document, steps, lambda at: _fault(operators, power, at))
        document, steps = actual.document, actual.steps
        kept, inputs_seconds = actual.kept, actual.inputs_seconds
    if operators.random() < STATEMENTS_SHARE:
        steps = _with_statements(operators, steps)
    keeper = random.Random(f"outputs {power} {seed}")
    if keeper.random() < KEPT_SHARE:
        document = _with_retention(keeper, document)
        steps = _longer(keeper, steps, sources, files, rows, power)
    if looks_up:
        steps = with_runs_within(looked, steps)
    frail = random.Random(f"asides True {seed}" if power else f"frail {seed}")
    if frail.random() < ASIDE_SHARE:
        document, steps = with_asides(frail, document, steps, lambda at: _fault(frail, power, at))
    leased = not power and rng.random() < LEASED_SHARE
    if leased:
        steps = _with_rivals(rng, steps)
    deaths = ("power", "lose") if power else ("kill", "lose")
    if follows:
        fault = partial(_fault, follower, power)
        steps = with_versions(follower, steps, deaths, fault, leased=leased)
    decider = random.Random(f"decisions {power} {seed}")
    if decider.random() < DECIDED_SHARE:
        decided = with_decisions(
            decider,
            sources,
            steps,
            len(files),
            BAD,
            deaths,
            lambda at: _fault(decider, power, at),
        )
        files, rows, steps = files + decided.files, rows + decided.rows, decided.steps
    priorities = random.Random(f"priorities {power} {seed}")
    if priorities.random() < PRIORITIZED_SHARE:
        stages = list(document["stages"])
        steps = with_priorities(priorities, stages, steps, lambda at: _fault(priorities, power, at))
    sunk = random.Random(f"sinks {power} {seed}")
    if sunk.random() < SUNK_SHARE and sinkable(steps):
        document, steps = with_sinks(
            sunk, document, steps, power, lambda at: _fault(sunk, power, at)
        )
    replacing = random.Random(f"replaced {power} {seed}")
    replaces = replacing.random() < REPLACED_SHARE and replaceable(steps, inputs_seconds)
    if replaces:
        replaced = with_replaced_files(
            replacing,
            document,
            steps,
            len(files),
            deaths,
            lambda at: _fault(replacing, power, at),
        )
        document, steps = replaced.document, replaced.steps
        files, rows = files + replaced.files, rows + replaced.rows
    building = random.Random(f"builds {power} {seed}")
    if builds := building.random() < (BUILT_OF_REPLACED if replaces else BUILT_SHARE):
        steps = with_builds(building, steps, deaths, lambda at: _fault(building, power, at))
    return Plan(
        seed=seed,
        document=document,
        files=files,
        rows=rows,
        steps=list(steps),
        collect_every=rng.choice((1, 1, 2, 4)),
        settle=rng.choice((0.0, 0.0, 0.0, 1.0)),
        lose_in_the_end=rng.random() < 0.25,
        leased=leased,
        kept=kept,
        inputs_seconds=inputs_seconds,
        builds=builds,
    )


def _document(rng: random.Random) -> dict[str, Any]:
    sources = ["a", "b"][: rng.choice((1, 1, 2))]
    flows = list(sources)
    stages: dict[str, Any] = {}
    if rng.random() < 0.15:
        stages["turn"] = _stage(rng, "turn", items=rng.choice(flows), back="fall.o")
        stages["fall"] = _stage(rng, "fall", items="turn.o")
        flows += ["turn.o", "fall.o"]
    for number in range(rng.choice((1, 1, 2, 2, 3)) - (len(stages) > 0)):
        name = f"s{number}"
        # The newest flow most of the time: chains are deeper, and are fused.
        first = flows[-1] if rng.random() < 0.6 else rng.choice(flows)
        if rng.random() < 0.25 or (len(sources) > 1 and number == 0):
            kind = rng.choice(("pair", "either"))
            stages[name] = _stage(rng, kind, left=first, right=rng.choice(flows))
        else:
            stages[name] = _stage(rng, rng.choice(ONE_INPUT), items=first)
        flows.append(f"{name}.o")
    document: dict[str, Any] = {
        "name": "sim",
        "sources": {name: {"schema": SCHEMA} for name in sources},
        "stages": stages,
    }
    if rng.random() < 0.4:
        document["publish"] = {"epochs": rng.choice((2, 3)), "seconds": 30}
    return document


def _with_views(rng: random.Random, document: dict[str, Any]) -> dict[str, Any]:
    """Return a dataflow some stages of which have views, each with a reader of its changes."""
    stages: dict[str, Any] = {}
    for name, stage in document["stages"].items():
        kind = VIEWED.get(stage["translator"], stage["translator"])
        stages[name] = {**stage, "translator": kind}
        if kind in VIEWED.values():
            stages[f"{name}v"] = _stage(rng, "balance", moved=f"{name}.top")
    return {**document, "stages": stages}


def _let_be_bags(rng: random.Random, document: dict[str, Any]) -> None:
    """Let some views have no key, unless a join reads them by it."""
    stages = document["stages"]
    joined = {s["inputs"]["table"] for s in stages.values() if s["translator"] == "joins"}
    for name, stage in stages.items():
        able = stage["translator"] in VIEWED.values() and f"{name}.top" not in joined
        if able and rng.random() < BAGS_SHARE:
            stage["translator"] = "heaped"


def _let_be_loops(rng: random.Random, document: dict[str, Any]) -> None:
    """Let some stages read their messages in the run that wrote them."""
    for stage in document["stages"].values():
        if stage["translator"] == "mail" and rng.random() < LOOPS_SHARE:
            stage["translator"] = "rounds"


def _stage(rng: random.Random, translator: str, **inputs: str) -> dict[str, Any]:
    stage: dict[str, Any] = {"translator": translator, "inputs": inputs, "buckets": 2}
    if rng.random() < 0.2:
        stage["fuse"] = False
    return stage


def _late(rng: random.Random) -> dict[str, Any]:
    """Return a dataflow whose second stage waits for a source that brings little."""
    first = _stage(rng, rng.choice(("total", "fickle", "note")), items="a") | {"fuse": False}
    return {
        "name": "sim",
        "sources": {name: {"schema": SCHEMA} for name in "ab"},
        "stages": {"s0": first, "s1": _stage(rng, "pair", left="s0.o", right="b")},
    }


def _files(rng: random.Random, many: int) -> tuple[list[bytes], list[Rows | None]]:
    files: list[bytes] = []
    rows: list[Rows | None] = []
    for number in range(many):
        if rng.random() < 0.15:
            files.append(rng.choice(BAD).encode())
            rows.append(None)
            continue
        # The number of the file is in it: two files are the same only if one comes twice.
        count = rng.choice((0, 1, 2, 3, 5))
        made = [{"k": rng.randrange(5), "n": number * 10 + rng.randrange(10)} for _ in range(count)]
        files.append("".join(json.dumps(row) + "\n" for row in made).encode())
        rows.append(made)
    return files, rows


def _steps(rng: random.Random, sources: list[str], files: int, power: bool) -> list[Step]:
    steps: list[Step] = []
    if rng.random() < 0.1:
        steps.append(_fault(rng, power, ("log_entry", "sql_commit")))  # during registration
    for number in range(files):
        if rng.random() < 0.5:
            steps.append(_fault(rng, power, INGESTION))
        source = rng.choice(sources)
        verb = "upload" if rng.random() < 0.2 else "drop"
        steps.append((verb, source, number))
        if rng.random() < 0.2:
            steps.append(("drop", source, rng.randrange(number + 1)))
        for usual in (("scan",), ("tick",), ("work", 0), ("tick",), ("work", rng.randrange(4))):
            if usual[0] == "work" and rng.random() < 0.6:
                steps.append(_fault(rng, power, RUNS))
            if rng.random() < 0.85:
                steps.append(usual)
            if rng.random() < 0.3:
                steps.append(_move(rng, power))
    return steps


def _queueing(rng: random.Random, files: int, power: bool) -> list[Step]:
    """Let a queue grow long, and be read in the end, while old files are merged and collected."""
    steps: list[Step] = []
    for number in range(files):
        source = "b" if number > files - 4 else "a"
        steps += [("drop", source, number), ("scan",), ("tick",), ("work", 0), ("tick",)]
        if rng.random() < 0.3:
            steps.append(_fault(rng, power, RUNS + HOUSEKEEPING))
    return steps


def _with_rivals(rng: random.Random, steps: list[Step]) -> list[Step]:
    """Let instances stand still in the middle of a step, and go on some steps later."""
    made: list[Step] = []
    stands = False
    for step in steps:
        if stands and rng.random() < 0.15:
            made.append(("continue",))
            stands = False
        elif not stands and step[0] in STALLS and rng.random() < 0.3:
            point, nth = rng.choice(STALLS[step[0]]), rng.choice((1, 1, 1, 2, 3))
            kind = rng.choice(("stall", "suspend"))
            made.append((kind, point if rng.random() < 0.8 else "*", nth))
            stands = True
        if rng.random() < 0.05:
            made.append(("late",))
        made.append(step)
    return made


def _with_retention(rng: random.Random, document: dict[str, Any]) -> dict[str, Any]:
    """Let some outputs go, messages among them, as soon or nearly as soon as they are consumed."""
    changed = copy.deepcopy(document)
    for stage in changed["stages"].values():
        spec = TRANSLATORS[stage["translator"]]().spec()
        keep = {one.name: rng.choice(KEEPS) for one in spec.outputs if rng.random() < 0.6}
        if keep:
            stage["keep"] = keep
    return changed


def _longer(
    rng: random.Random,
    steps: Sequence[Step],
    sources: Sequence[str],
    files: list[bytes],
    rows: list[Rows | None],
    power: bool,
) -> list[Step]:
    """Let more come before and after what happens anyway: what is young does not go."""
    before: list[Step] = []
    after: list[Step] = []
    for number in range(KEPT_FILES):
        made = [{"k": rng.randrange(5), "n": len(files) * 10 + rng.randrange(10)}]
        part = after if number % 4 == 3 else before
        part += [("drop", rng.choice(sources), len(files)), ("scan",), ("tick",), ("work", 0)]
        files.append((json.dumps(made[0]) + "\n").encode())
        rows.append(made)
        if rng.random() < 0.15:
            part.append(_fault(rng, power, RUNS + HOUSEKEEPING))
        part += [("tick",), ("work", 0), ("tick",), ("work", 0), ("tick",)]
        if rng.random() < 0.4:
            part.append(("sleep", rng.choice((1.0, 5.0, 40.0))))
    return [*before, *steps, *after]


def _with_statements(rng: random.Random, steps: Sequence[Step]) -> list[Step]:
    """Let a transaction or two die, or be refused, between its statements."""
    made = list(steps)
    for _ in range(rng.choice((1, 1, 2))):
        kind = rng.choice(("crash", "crash", "eio"))
        fault = ("fault", kind, STATEMENT, 1 + min(int(rng.expovariate(0.1)), 40))
        made.insert(rng.randrange(len(made) + 1), fault)
    return made


def _move(rng: random.Random, power: bool) -> Step:
    moves: list[tuple[int, Step]] = [
        (8, ("tick",)),
        (8, ("work", rng.randrange(4))),
        (4, ("scan",)),
        (5, ("sleep", rng.choice((1.0, 1.0, 5.0, 40.0, -3.0)))),
        (3, ("twice",)),
        (2, ("pause",)),
        (3, ("resume",)),
        (2, ("power",) if power else ("kill",)),
        (1, ("stop",)),
        (1, ("lose",)),
    ]
    return rng.choices([step for _, step in moves], [weight for weight, _ in moves])[0]


def _fault(rng: random.Random, power: bool, effects: Sequence[str]) -> Step:
    if power:
        kind = rng.choice(("power", "power", "power", "crash", "eio"))
    else:
        kind = rng.choice(("crash", "crash", "crash", "enospc", "eio", "unknown"))
    if rng.random() < 0.3:
        return ("fault", kind, "*", 1 + min(int(rng.expovariate(0.08)), 60))
    point = f"{rng.choice(effects)}.{rng.choice(('before', 'after'))}"
    return ("fault", kind, point, rng.choice((1, 1, 1, 2, 3)))
