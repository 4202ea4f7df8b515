"""Random versions and arrivals, killed anywhere: stages keep what plain Python keeps.

The model knows no epochs, buckets or files: a stage is a list of what waits for it, and a
Counter of what it has added up. Small domains; the example that fails is printed.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.engine.storage.failpoints import NO_FAULTS
from tests.controller.changing import ONE, POINTS, Changing, document
from tests.planned_faults import Crash, PlannedFaults
from tests.sampling import examples

pytestmark = pytest.mark.usefixtures("without_syncs")

FACTOR = {"sum": 1, "double": 2}
Increment = tuple[tuple[str, int], ...]


@dataclass
class Stage:
    """What the model knows of a stage.

    Attributes:
        waiting: Increments that it has not read.
    """

    translator: str
    waiting: list[Increment] = field(default_factory=list)
    sums: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        for word, n in (record for increment in self.waiting for record in increment):
            self.sums[word] += FACTOR[self.translator] * n
        self.waiting = []


@dataclass
class Model:
    """A dataflow whose stages all read the same source.

    Attributes:
        doubled: Names whose output has, or once had, the column that only one translator has.
    """

    stages: dict[str, Stage] = field(default_factory=lambda: {"sum": Stage("sum")})
    doubled: set[str] = field(default_factory=set)
    arrived: list[Increment] = field(default_factory=list)

    def arrive(self, increment: Increment) -> None:
        self.arrived.append(increment)
        for stage in self.stages.values():
            stage.waiting.append(increment)

    def run(self) -> None:
        for stage in self.stages.values():
            stage.run()

    def change(self, version: dict[str, Any], choice: dict[str, list[str]]) -> None:
        """Take over a version: stage to (translator, buckets)."""
        old, self.stages = self.stages, {}
        for name, (translator, _) in version.items():
            stage = self.stages[name] = Stage(translator)
            self.doubled |= {name} if translator == "double" else set()
            if name in choice["rebuild"] or (name in choice["retained"] and name not in old):
                stage.waiting = list(self.arrived)
            elif name in old:
                stage.waiting, stage.sums = old[name].waiting, old[name].sums


versions = st.dictionaries(
    st.sampled_from(["sum", "p", "q"]),
    st.tuples(st.sampled_from(sorted(FACTOR)), st.sampled_from([2, 4, 16])),
    min_size=1,
)
increments = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-3, 9)), min_size=1, max_size=4
).map(tuple)
faults = st.none() | st.tuples(st.sampled_from(POINTS), st.integers(1, 6))
steps = st.lists(
    st.tuples(st.just("arrive"), increments, faults)
    | st.tuples(st.just("run"), st.none(), faults)
    | st.tuples(st.just("change"), st.tuples(versions, st.booleans(), st.booleans()), faults),
    min_size=3,
    max_size=9,
)


@settings(max_examples=examples(8), deadline=None, print_blob=True)
@given(script=steps)
def test_any_versions_and_crashes_give_what_plain_python_gives(script: list[Any]) -> None:
    """Kept stages lose and repeat nothing, rebuilt and added ones begin where they should."""
    with tempfile.TemporaryDirectory() as folder:
        world, model = Changing(Path(folder) / "world"), Model()
        try:
            world.controller.register(ONE)
            for what, value, fault in [*script, ("run", None, None)]:
                if fault is not None:
                    world.faults.to = PlannedFaults(fault[0], passage=fault[1])
                if what == "arrive":
                    arrive(world, model, value)
                elif what == "run":
                    survive(world, world.ticks)
                    model.run()
                else:
                    change(world, model, *value)
                world.faults.to = NO_FAULTS
            for name, stage in model.stages.items():
                assert Counter(world.sums(name)) == stage.sums, name
        finally:
            world.close()


def survive(world: Changing, step: Callable[[], object]) -> None:
    """Repeat a step after each crash, as its caller would."""
    crashed = False
    while True:
        try:
            if crashed:
                world.controller.recover()
            step()
            return
        except Crash:
            crashed, world.faults.to = True, NO_FAULTS
            world.restart()


def arrive(world: Changing, model: Model, increment: Increment) -> None:
    index = len(model.arrived)

    def step() -> None:
        if world.store.next_index("d", "a") <= index:
            world.arrive("d", "a", *increment)

    survive(world, step)
    model.arrive(increment)


def change(
    world: Changing, model: Model, version: dict[str, Any], rebuild: bool, retained: bool
) -> None:
    replaced = [
        name
        for name, (translator, _) in version.items()
        if name in model.stages and model.stages[name].translator != translator
    ]
    both = [name for name in version if name in model.stages]
    choice: dict[str, Any] = {
        "keep": [] if rebuild else replaced,
        "rebuild": both if rebuild else [],
        "retained": [n for n in version if n not in model.stages] if retained else [],
    }
    if any(name in model.doubled and t == "sum" for name, (t, _) in version.items()):
        return  # a column would be lost: refused, and tested elsewhere
    stages = {name: {"translator": t, "buckets": b} for name, (t, b) in version.items()}
    expected = world.store.dataflow("d").version + 1

    def step() -> None:
        if world.store.dataflow("d").version < expected:
            world.change(document(**stages), **choice)

    survive(world, step)
    model.change(version, choice)
