"""The store against a model of dictionaries, under random calls that collide.

Names come from tiny domains, so that most calls meet something that is there, was
there, or is about to be. After each call the result (or the code of the error) and
everything that the store shows must agree.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cbp.errors import CbpError
from cbp.model.run.intention import RunStatus
from controller.store.base import PAUSED_BY_HAND, IncrementRecord, Store
from tests.conformance.records import (
    START,
    a_claim,
    a_dataflow,
    a_run,
    an_increment,
    an_intention,
    at,
    waiting,
)
from tests.sampling import examples

WIRINGS: list[dict[str, dict[str, str]]] = [
    {"s": {"i": "x"}, "t": {"i": "s.out", "j": "x"}},
    {"s": {"i": "x", "back": "s.out"}, "t": {"i": "x", "j": "x"}},
    {"s": {"i": "t.out", "j": "x"}, "t": {"i": "s.out"}},
]
dataflows = st.sampled_from(["a", "b"])
stages = st.sampled_from(["s", "t"])
sources = st.sampled_from(["x", "y"])
ids = st.sampled_from([f"r{n}" for n in range(6)])
# A stage that is left out, and a name that is no stage.
priorities = st.dictionaries(st.sampled_from(["s", "t", "u"]), st.sampled_from(["low", "high"]))
# Mostly what is due; now and then something that came too late or too early.
offsets = st.sampled_from([0, 0, 0, 0, -1, 1])


class Refused(Exception):
    """The model's errors: just a code."""


@dataclass
class Stage:
    """What the model keeps of a stage; queues hold `[index, read mark]`."""

    wiring: dict[str, str]
    queues: dict[str, list[list[Any]]]
    epoch: int = 0
    failures: int = 0
    paused: str = ""
    priority: str = "normal"
    memo: Any = None


@dataclass
class Flow:
    """What the model keeps of a dataflow."""

    stages: dict[str, Stage]
    desired: str = "running"
    indexes: dict[str, int] = field(default_factory=dict)
    claims: dict[str, tuple[str, int, str]] = field(default_factory=dict)


class Model:
    """The store as dictionaries; every call is all or nothing by copying first."""

    def __init__(self) -> None:
        self.flows: dict[str, Flow] = {}
        self.runs: dict[str, tuple[str, str, int, RunStatus]] = {}

    def flow(self, name: str) -> Flow:
        if name not in self.flows:
            raise Refused("not_found")
        return self.flows[name]

    def register(self, name: str, wiring: dict[str, dict[str, str]]) -> None:
        if name in self.flows:
            raise Refused("already_exists")
        stages = {s: Stage(w, {i: [] for i in w}) for s, w in wiring.items()}
        self.flows[name] = Flow(stages)

    def delete(self, name: str) -> None:
        self.flow(name)
        del self.flows[name]
        self.runs = {id_: run for id_, run in self.runs.items() if run[0] != name}

    def set_desired(self, name: str, desired: str) -> None:
        self.flow(name).desired = desired
        for stage in self.flow(name).stages.values():
            if desired == "running":
                stage.failures, stage.paused = 0, ""

    def pause_stage(self, name: str, stage: str, because: str) -> None:
        paused = self.flow(name).stages[stage]
        if paused.paused != PAUSED_BY_HAND:
            paused.paused = because

    def retry_stage(self, name: str, stage: str) -> None:
        if self.flow(name).stages[stage].paused == PAUSED_BY_HAND:
            raise Refused("stage_paused")
        self.flow(name).stages[stage].paused = ""

    def resume_stage(self, name: str, stage: str) -> None:
        self.flow(name).stages[stage].paused, self.flow(name).stages[stage].failures = "", 0

    def set_priorities(self, name: str, priorities: dict[str, str]) -> None:
        for stage, actual in self.flow(name).stages.items():
            actual.priority = priorities.get(stage, "normal")

    def add_claim(self, name: str, source: str, id_: str) -> int:
        flow = self.flow(name)
        if any(id_ in other.claims for other in self.flows.values()):
            raise Refused("already_exists")
        number = sum(claim[0] == source for claim in flow.claims.values())
        flow.claims[id_] = source, number, "claiming"
        return number

    def store(self, name: str, flow: str, index: int) -> bool:
        due = self.flow(name).indexes.get(flow, 0)
        if index > due:
            raise Refused("invariant_broken")
        if index < due:
            return False
        self.flow(name).indexes[flow] = due + 1
        for stage in self.flow(name).stages.values():
            for input_, wired in stage.wiring.items():
                if wired == flow:
                    stage.queues[input_].append([index, False])
        return True

    def accept(self, name: str, source: str, id_: str, index: int) -> None:
        if self.store(name, source, index):
            self.flow(name).claims[id_] = source, self.flow(name).claims[id_][1], "accepted"

    def intend(self, name: str, stage: str, epoch: int, id_: str) -> None:
        if self.flow(name).stages[stage].epoch != epoch:
            raise Refused("invariant_broken")
        if id_ in self.runs:
            raise Refused("already_exists")
        self.runs[id_] = name, stage, epoch, RunStatus.INTENDED

    def commit(self, name: str, stage: str, epoch: int, id_: str, chosen: Any) -> None:
        actual = self.flow(name).stages[stage]
        if actual.epoch > epoch:
            return
        read, remove = chosen
        waits = {i: {index for index, _ in queue} for i, queue in actual.queues.items()}
        if actual.epoch < epoch or any(
            not set(v) <= waits[k] for part in chosen for k, v in part.items()
        ):
            raise Refused("invariant_broken")
        for input_, queue in actual.queues.items():
            for item in queue:
                item[1] = item[1] or item[0] in read.get(input_, ())
            actual.queues[input_] = [q for q in queue if q[0] not in remove.get(input_, ())]
        self.store(name, f"{stage}.out", epoch)
        actual.epoch, actual.failures, actual.memo = epoch + 1, 0, {"n": epoch}
        self.runs[id_] = name, stage, epoch, RunStatus.COMMITTED

    def fail(self, id_: str, pause: str) -> None:
        if id_ not in self.runs:
            raise Refused("not_found")
        name, stage, epoch, status = self.runs[id_]
        if status is RunStatus.COMMITTED:
            raise Refused("invariant_broken")
        if status is RunStatus.FAILED:
            return
        self.runs[id_] = name, stage, epoch, RunStatus.FAILED
        actual = self.flow(name).stages[stage]
        if actual.epoch == epoch:
            actual.failures += 1
            if actual.paused != PAUSED_BY_HAND:
                actual.paused = pause or actual.paused


class StoreMachine(RuleBasedStateMachine):
    """Every rule makes one call on both, with the same arguments."""

    store: Store

    @initialize()
    def empty(self) -> None:
        for record in self.store.dataflows():
            self.store.delete(record.name)
        self.model = Model()
        self.read: dict[tuple[str, int], Any] = {}

    def both(self, real: Callable[[], Any], model: Callable[[Model], Any]) -> None:
        attempt = copy.deepcopy(self.model)
        try:
            expected = model(attempt)
            self.model = attempt
        except Refused as refused:
            expected = str(refused)
        try:
            got = real()
        except CbpError as error:
            got = error.code
        assert got == expected

    @rule(name=dataflows, wiring=st.sampled_from(WIRINGS))
    def register(self, name: str, wiring: dict[str, dict[str, str]]) -> None:
        self.both(
            lambda: self.store.register(a_dataflow(name), wiring),
            lambda model: model.register(name, wiring),
        )

    # Rarer than the others, or nothing would ever grow.
    @precondition(lambda self: len(self.model.runs) > 3)
    @rule(name=dataflows)
    def delete(self, name: str) -> None:
        self.both(lambda: self.store.delete(name), lambda model: model.delete(name))

    @rule(name=dataflows, desired=st.sampled_from(["running", "paused"]))
    def set_desired(self, name: str, desired: Any) -> None:
        self.both(
            lambda: self.store.set_desired(name, desired),
            lambda model: model.set_desired(name, desired),
        )

    @rule(name=dataflows, stage=stages, because=st.sampled_from(["why", PAUSED_BY_HAND]))
    def pause_stage(self, name: str, stage: str, because: str) -> None:
        self.both(
            lambda: self.store.pause_stage(name, stage, because),
            lambda model: model.pause_stage(name, stage, because),
        )

    @rule(name=dataflows, stage=stages)
    def retry_stage(self, name: str, stage: str) -> None:
        self.both(
            lambda: self.store.retry_stage(name, stage),
            lambda model: model.retry_stage(name, stage),
        )

    @rule(name=dataflows, stage=stages)
    def resume_stage(self, name: str, stage: str) -> None:
        self.both(
            lambda: self.store.resume_stage(name, stage),
            lambda model: model.resume_stage(name, stage),
        )

    @rule(name=dataflows, given=priorities)
    def set_priorities(self, name: str, given: Any) -> None:
        self.both(
            lambda: self.store.set_priorities(name, given),
            lambda model: model.set_priorities(name, given),
        )

    @rule(name=dataflows, source=sources, offset=offsets, id_=ids, claimed=st.booleans())
    def arrive(self, name: str, source: str, offset: int, id_: str, claimed: bool) -> None:
        claim = a_claim(id_, dataflow=name, source=source)
        if claimed or not self._claimed(name, source, id_):
            self.both(
                lambda: self.store.add_claim(claim).sequence,
                lambda model: model.add_claim(name, source, id_),
            )
        if self._claimed(name, source, id_):
            index = max(0, self.model.flows[name].indexes.get(source, 0) + offset)
            record = IncrementRecord(name, an_increment(source, index), START)
            self.both(
                lambda: self.store.accept_all([(claim, record)]),
                lambda model: model.accept(name, source, id_, index),
            )

    def _claimed(self, name: str, source: str, id_: str) -> bool:
        flow = self.model.flows.get(name)
        return flow is not None and id_ in flow.claims and flow.claims[id_][0] == source

    @rule(name=dataflows, stage=stages, offset=offsets, id_=ids)
    def intend(self, name: str, stage: str, offset: int, id_: str) -> None:
        epoch = self._epoch(name, stage, offset)
        run = a_run(id_, dataflow=name, stage=stage, epoch=epoch, started_at=at(epoch))
        self.both(
            lambda: self.store.intend(run), lambda model: model.intend(name, stage, epoch, id_)
        )

    @rule(name=dataflows, stage=stages, offset=offsets, id_=ids, data=st.data())
    def commit(self, name: str, stage: str, offset: int, id_: str, data: st.DataObject) -> None:
        epoch = self._epoch(name, stage, offset)
        if self.model.runs.get(id_, (name, stage, epoch))[:3] != (name, stage, epoch):
            return  # an id names one run of one epoch: the caller's promise
        read, remove = data.draw(self._subsets(name, stage)), data.draw(self._subsets(name, stage))
        run = a_run(id_, dataflow=name, stage=stage, epoch=epoch, read=read, remove=remove)
        intention = an_intention(run, an_increment(f"{stage}.out", epoch), memo={"n": epoch})
        self.both(
            lambda: self.store.commit(intention, finished_at=at(9)),
            lambda model: model.commit(name, stage, epoch, id_, (read, remove)),
        )

    @rule(id_=ids, pause=st.sampled_from(["", "gave up"]))
    def fail(self, id_: str, pause: str) -> None:
        self.both(
            lambda: self.store.fail(id_, {}, finished_at=at(1), retry_at=None, pause=pause),
            lambda model: model.fail(id_, pause),
        )

    def _epoch(self, name: str, stage: str, offset: int) -> int:
        flow = self.model.flows.get(name)
        return max(0, flow.stages[stage].epoch + offset) if flow else 0

    def _subsets(self, name: str, stage: str) -> st.SearchStrategy[dict[str, list[int]]]:
        """Some of what waits at each input, and now and then what does not."""
        flow = self.model.flows.get(name)
        queues = flow.stages[stage].queues if flow else {}
        some = {
            input_: st.lists(st.sampled_from([i for i, _ in queue] * 3 + [77]), max_size=2)
            for input_, queue in queues.items()
        }
        return st.fixed_dictionaries(some)

    @invariant()
    def what_was_read_is_current_while_its_revision_is(self) -> None:
        """Over a deletion and a new registration, too: no revision comes again with other rows."""
        for name, revision in self.store.revisions().items():
            record, claims = self.store.dataflow(name), self.store.claims(name).items
            runs = {run.id: run for run in self.store.runs(name).items}
            now = (record, self.store.stages(name), self.store.connectors(name), claims, runs)
            assert self.read.setdefault((name, revision), now) == now
        assert [one.name for one in self.store.dataflows()] == list(self.store.revisions())
        assert all(self.store.dataflow(one.name) == one for one in self.store.dataflows())

    @invariant()
    def shows_the_same(self) -> None:
        shown = {record.name: record.desired for record in self.store.dataflows()}
        assert shown == {name: flow.desired for name, flow in sorted(self.model.flows.items())}
        for name, flow in self.model.flows.items():
            assert waiting(self.store, name) == {
                stage: {
                    input_: [f"{actual.wiring[input_]}/{i}" + "*" * mark for i, mark in queue]
                    for input_, queue in actual.queues.items()
                }
                for stage, actual in flow.stages.items()
            }
            assert {
                s.stage: (s.epoch, s.failures, s.paused_because, s.memo, s.priority)
                for s in self.store.stages(name)
            } == {
                n: (s.epoch, s.failures, s.paused, s.memo, s.priority)
                for n, s in flow.stages.items()
            }
            claims = {c.id: (c.source, c.sequence, c.status) for c in self.store.claims(name).items}
            assert claims == flow.claims
            for stored, next_index in flow.indexes.items():
                assert self.store.next_index(name, stored) == next_index
        runs = {r.id: (r.dataflow, r.stage, r.epoch, r.status) for r in self.store.runs().items}
        assert runs == self.model.runs
        intended = [i for i, run in sorted(runs.items()) if run[3] is RunStatus.INTENDED]
        assert [run.id for run in self.store.intended_runs()] == intended


def test_the_store_does_what_the_model_does(store: Store) -> None:
    """Any sequence of calls has the results, errors and effects that the model says."""
    machine = type("Machine", (StoreMachine,), {"store": store})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples(8),
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
