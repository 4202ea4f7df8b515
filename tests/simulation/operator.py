"""Who operates the service of a simulation: asks, asks again, and knows what may be refused.

What was asked for may have happened, what was answered must have; `history` and `check` hold
the service to both. A refusal is accepted where its reason is documented and holds, and
nowhere else: whatever does not, leaves `do` as it came.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.storage.files import LocalFiles
from cbp.errors import (
    ChangeRefusedError,
    DataflowBusyError,
    DefinitionError,
    FlowUnframedError,
    NotFoundError,
    RollbackImpossibleError,
)
from cbp.model.run.correction import Correction
from cbp.model.version.version_change import Choice
from controller.loop.records.version_log import Descriptions
from controller.store.base import DataflowRecord
from tests.simulation.asides import mended
from tests.simulation.model import Broken
from tests.simulation.operations import framed_flows, next_version
from tests.simulation.world import NAME, World

__all__ = ["Back", "Operator", "milliseconds"]


def milliseconds(goal: str) -> int:
    """Return a time that a roll-back goes to, since 1970."""
    return int(datetime.fromisoformat(goal).timestamp() * 1000)


@dataclass(frozen=True)
class Back:
    """A roll-back that was asked for.

    Attributes:
        later: What arrived since is dropped.
    """

    goal: str
    later: bool


class Operator:
    """The operator of one world.

    Attributes:
        corrections: Request to the stage, the state and what is put right.
        gives: Requests to give back what a stage set aside.
        closes: Keys of closes that were asked for.
        backs: Request to the roll-back.
        answered: Requests, and keys of closes, that were answered: they are durable.
        markers: Source to the markers that were left there.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.corrections: dict[str, tuple[str, str, Correction]] = {}
        self.gives: set[str] = set()
        self.closes: set[str] = set()
        self.backs: dict[str, Back] = {}
        self.answered: set[str] = set()
        self.markers: dict[str, int] = {}
        self._versions: list[tuple[int, Mapping[str, Any], Choice]] = []
        self._asked: dict[int, tuple[int, dict[str, Any], Choice]] = {}

    def choice(self, version: int, document: Mapping[str, Any]) -> Choice | None:
        """Return what was said with a version of a document; `None`: it was not asked for."""
        said = [c for v, d, c in self._versions if v == version and d == document]
        return said[-1] if said else None

    def do(self, verb: str, *arguments: Any) -> None:
        """Do one of the steps of `operations`."""
        getattr(self, f"_{verb}")(*arguments)

    def _correct(
        self, number: int, stage: str, state: str, key: int, kind: Any, records: Any
    ) -> None:
        request = f"c{number}"
        correction = Correction({"k": key}, kind, records)
        self.corrections[request] = stage, state, correction
        node = self.world.controller.dataflow(NAME).stages.get(stage)
        there = node is not None and any(one.name == state for one in node.translator.states)
        try:
            made = self.world.controller.amendments.correct(
                NAME, stage, state, [correction], who="o", why="wrong", request=request
            )
        except NotFoundError:
            if there:
                raise
            return
        if not there or made.note.request != request:
            message = f"P5: {made} is told of {request}"
            raise Broken(message)
        self.answered.add(request)

    def _give(self, number: int, stage: str) -> None:
        request = f"g{number}"
        self.gives.add(request)
        try:
            made = self.world.controller.amendments.give_back(
                NAME, stage, who="o", why="mended", request=request
            ).made
        except NotFoundError:
            node = self.world.controller.dataflow(NAME).stages.get(stage)
            if node is not None and self.world.set_aside(node):
                raise
            return
        if made is None or made.note.request != request:
            message = f"P5: {made} is told of {request}"
            raise Broken(message)
        self.answered.add(request)

    def _close(self, number: int, flow: str) -> None:
        key = f"request/{number}"
        framed = flow in framed_flows(self.world.store.dataflow(NAME).document)
        self.closes.add(key)
        try:
            made = self.world.controller.close(NAME, flow, key=str(number))
        except (FlowUnframedError, NotFoundError):
            if framed:
                raise
            return
        if not framed or made.key != key:
            message = f"P5: {made} is told of {key}"
            raise Broken(message)
        self.answered.add(key)

    def _marker(self, source: str) -> None:
        if self.world.leave_marker(source):
            self.markers[source] = self.markers.get(source, 0) + 1

    def _collect(self) -> None:
        self.world.controller.housekeeping.collect(NAME)

    # roll-back

    def _back(self, number: int, kind: str, distance: int, later: bool) -> None:
        request = f"b{number}"
        known = self.backs.get(request)
        # Where to is said once: asking again means the same.
        goal = known.goal if known is not None else self._goal(kind, distance)
        self.backs[request] = Back(goal, later)
        try:
            made = self.world.controller.amendments.roll_back(
                NAME, goal, who="o", why="wrong", drop_later=later, request=request
            )
        except RollbackImpossibleError as error:
            # Nothing is there of a version before its beginning: frames stay as they are by then.
            held = later and bool({"close", "framed"} & error.details.keys()) and self._framed()
            if self._reaches(goal) and not held:
                raise
            return
        except DefinitionError:
            if not self._lies_ahead(goal) and not self._splits_a_moment(goal):
                raise
            return
        if made.request != request:
            message = f"P5: {made} is told of {request}"
            raise Broken(message)
        self.answered.add(request)

    def _framed(self) -> bool:
        """Tell whether a version of a dataflow that frames began."""
        record = self.world.store.dataflow(NAME)
        return record.version > 1 and bool(framed_flows(record.document))

    def _goal(self, kind: str, distance: int) -> str:
        stages = self.world.store.stages(NAME)
        stage = stages[distance % len(stages)]
        if kind == "stage" and stage.epoch > distance:
            return f"{stage.stage}:{stage.epoch - 1 - distance}"
        if kind == "time":
            return (self.world.now - timedelta(seconds=distance)).isoformat()
        return str(max(0, sum(one.epoch for one in stages) - distance))

    def _reaches(self, goal: str) -> bool:
        """Tell whether a roll-back to there must not be refused.

        It may be where records that it needs are gone, or behind the begin of the version.
        """
        if not self.world.plan.kept:
            return False
        log = self.world.log()
        description = Descriptions(LocalFiles()).newest(self.world.folder)
        begins = {} if description is None else description.begins
        stages = [one.stage for one in self.world.store.stages(NAME)]
        oldest = {stage: log.oldest(stage) or 0 for stage in stages}
        whole = all(not epoch or epoch < begins.get(stage, 0) for stage, epoch in oldest.items())
        # What is let go stays as far back as a position does, however far records do.
        if whole and not self.world.plan.collects:
            return not self._is_before(goal, begins, log)
        position = log.oldest_position()
        if position is None or "-" in goal:
            return False
        stage, _, epoch = goal.partition(":")
        if epoch:
            # The last run that a position has of a stage may lie before the last of another one.
            return int(epoch) >= position.stages[stage].epoch
        return int(goal) >= position.number

    def _is_before(self, goal: str, begins: Mapping[str, int], log: IntentionLog) -> bool:
        """Return whether a goal comes after what some stage did before a version began."""
        stage, _, epoch = goal.partition(":")
        if "-" not in goal and not epoch:
            return int(goal) < sum(begins.values())
        actual = (log.read(one, begin - 1) for one, begin in begins.items() if begin)
        last = max((one.prepared_ms for one in actual if one is not None), default=0)
        if "-" in goal:
            return milliseconds(goal) < last
        named = log.read(stage, int(epoch))
        return named is None or named.prepared_ms < last

    def _splits_a_moment(self, goal: str) -> bool:
        """Return whether a number is between those before and after runs of one millisecond."""
        if not goal.isdigit():
            return False
        log = self.world.log()
        total, times = 0, list[int]()
        for stage in self.world.store.stages(NAME):
            oldest = log.oldest(stage.stage)
            first = stage.epoch if oldest is None else oldest
            records = [log.read(stage.stage, epoch) for epoch in range(first, stage.epoch)]
            times += [record.prepared_ms for record in records if record is not None]
            total += first
        numbers = {total, *(total + sum(one <= at for one in times) for at in times)}
        return int(goal) not in numbers

    def _lies_ahead(self, goal: str) -> bool:
        """Tell whether what was named was undone since, by another roll-back."""
        epochs = {one.stage: one.epoch for one in self.world.store.stages(NAME)}
        stage, _, epoch = goal.partition(":")
        if epoch:
            return int(epoch) >= epochs.get(stage, 0)
        return "-" not in goal and int(goal) > sum(epochs.values())

    # versions

    def _change(self, number: int) -> None:
        record = self.world.store.dataflow(NAME)
        again = number in self._asked
        if not again:
            rng = random.Random(f"version {self.world.plan.seed} {number}")
            self._asked[number] = record.version, *next_version(rng, record.document)
        self._take_version(number, record)

    def _mend_code(self, number: int, stage: str) -> None:
        record = self.world.store.dataflow(NAME)
        if number not in self._asked:
            version = mended(record.document, stage)
            if version is None:
                return
            self._asked[number] = record.version, *version
        self._take_version(number, record)

    def _take_version(self, number: int, record: DataflowRecord) -> None:
        """Ask for a version that was chosen before; it was there, or is refused with reason."""
        expected, document, choice = self._asked[number]
        self._versions.append((expected + 1, document, choice))
        try:
            made = self.world.controller.change(document, choice=choice, expected_version=expected)
        except DataflowBusyError:
            if record.version == expected:
                raise
            return
        except ChangeRefusedError as error:
            if not self._may_be_refused(error):
                raise
            return
        if record.version != expected or made.version != expected + 1:
            message = f"P5: version {made.version} came instead of {expected + 1}"
            raise Broken(message)

    def _may_be_refused(self, error: ChangeRefusedError) -> bool:
        """Tell whether what a refused version needs may be gone."""
        gone = self.world.losses or self.world.plan.collects
        return bool(gone) and {one.code for one in error.mistakes} == {"input_not_retained"}
