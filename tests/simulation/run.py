"""Plays a plan, recovers after every death, and checks the promises each time."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cbp.errors import CbpError, DataflowBusyError, LeaseLostError, LogConflictError
from tests.planned_faults import Crash
from tests.simulation.asides import ASIDES
from tests.simulation.bench import Bench
from tests.simulation.builder import Builder
from tests.simulation.builds import BUILDS
from tests.simulation.check import Checker
from tests.simulation.decider import Decider
from tests.simulation.decisions import DECISIONS
from tests.simulation.disk import Disk
from tests.simulation.faults import STANDS, PowerLoss
from tests.simulation.model import Broken
from tests.simulation.operations import OPERATIONS, Step
from tests.simulation.operator import Operator
from tests.simulation.plan import Plan, plan_of
from tests.simulation.prioritizer import Prioritizer
from tests.simulation.sinker import Sinker
from tests.simulation.standstill import Standstill
from tests.simulation.world import LEASE_SECONDS, NAME, World

__all__ = ["Outcome", "simulate"]

ROUNDS_MAX = 80
STOPPABLE = ("work", "within", "tick", "scan", "upload", *OPERATIONS, *ASIDES, *BUILDS)
DEATHS_MAX = 200


@dataclass
class Outcome:
    """What one seed did.

    Attributes:
        failure: Which promise broke, with the stack; `""` if none.
        trace: Steps, passages of failpoints and strikes, in order.
        passed: Passages by point.
        figures: `deaths`, `errors`, `takeovers`, `epochs`, `files`, and what operators did:
            `corrections`, `closes`, `rollbacks`, `versions`, `decisions`, `priorities`,
            `asides` (records given back), `passes` of sinks, `rewrites`, `builds`, `swaps`;
            `versions_followed` of another system's table.
    """

    seed: int
    power: bool
    failure: str = ""
    trace: list[str] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)
    figures: Counter[str] = field(default_factory=Counter)

    def report(self) -> str:
        """Return the trace, the failure, and the command that plays it again."""
        more = " --power" if self.power else ""
        command = f"python -m tests.simulation --from {self.seed} --seeds 1{more} --trace"
        return "\n".join((*self.trace, self.failure, f"seed {self.seed}; again: {command}"))


def simulate(bench: Bench, seed: int, *, power: bool = False, plan: Plan | None = None) -> Outcome:
    """Play one seed.

    Args:
        bench: The bench of this process.
        seed: Determines everything.
        power: Whether machines lose their power.
        plan: Instead of the seed's own.
    """
    outcome = Outcome(seed, power)
    plan = plan or plan_of(seed, power=power)
    root = bench.clear()
    disk = Disk(root, bench.root / "shadow") if power else None
    with bench.patched(disk):
        world = World(bench, plan, disk=disk, trace=outcome.trace.append)
        play = _Play(world, outcome)
        try:
            play.all()
        except Exception as error:  # a failed check, or whatever the product let out
            outcome.failure = "".join(traceback.format_exception(error))
        play.abandon()
        outcome.passed = world.strikes.passed
    return outcome


class _Play:
    def __init__(self, world: World, outcome: Outcome) -> None:
        self.world, self.outcome = world, outcome
        self.operator = Operator(world)
        self.decider = Decider(world)
        self.prioritizer = Prioritizer(world)
        self.sinker = Sinker(world)
        self.builder = Builder(world)
        self.checker = Checker(world, self.operator, self.decider, self.prioritizer)
        self._lost = self._late = False
        self._deaths = 0
        self._stopped_work: Standstill | None = None
        self._rival = False
        self._told: list[Exception] = []

    def all(self) -> None:
        """Play every step, then let the service finish, and check that it did."""
        plan, world = self.world.plan, self.world
        self.outcome.trace.append(f"document {plan.document}")
        if plan.leased:
            self._recover()
        for step in plan.steps:
            self._step(step)
        self.outcome.trace.append("heal")
        world.strikes.clear()
        self._go_on()
        world.keep()
        world.register()
        if self.decider.files:
            self._recover()  # which ends the decisions that an error broke off
        if plan.builds:
            self.builder.end()
        self._settle()
        self._check_settled()
        if plan.lose_in_the_end:
            self._step(("lose",))
            self._settle()
            self._check_settled()
        history = self.checker.history
        self.outcome.figures["epochs"] = sum(r.stop for r in history.now.records.values())
        self.outcome.figures["files"] = sum(map(len, history.entries.values()))
        self.outcome.figures["wakes"] = history.wakes
        self.outcome.figures["lookups"] = history.lookups
        self.outcome.figures["bags"] = history.bags
        self.outcome.figures["replacements"] = history.replacements
        self.outcome.figures["asides"] = history.asides
        self.outcome.figures["corrections"] = len(history.corrections)
        self.outcome.figures["closes"] = len(history.closes)
        self.outcome.figures["rollbacks"] = history.now.generation
        self.outcome.figures["versions"] = history.now.version - 1
        self.outcome.figures["retentions"] = history.retentions
        self.outcome.figures["decisions"] = self.decider.answered
        self.outcome.figures["priorities"] = self.prioritizer.answered
        self.outcome.figures["passes"] = self.sinker.passes
        self.outcome.figures["rewrites"] = self.sinker.rewrites
        if plan.builds:
            self.builder.finish()
        self.outcome.figures["builds"] = self.builder.builds
        self.outcome.figures["swaps"] = self.builder.swaps
        if world.followed is not None:
            self.outcome.figures["versions_followed"] = world.followed.followed

    def abandon(self) -> None:
        """End what is still halted, as after a failed check."""
        if self._stopped_work is not None:
            self._stopped_work.abandon()

    def _step(self, step: Step) -> None:
        self.outcome.trace.append(f"{step}")
        world = self.world
        world.strikes.struck.clear()
        try:
            if step[0] == "fault":
                return world.strikes.plan(*step[1:])
            if step[0] in STANDS:
                # One at a time: what is halted already is the instance that led before.
                if self._stopped_work is None and not world.strikes.stalls:
                    world.strikes.plan(*step)
                return None
            if not self._late:
                world.keep()
            self._late = step[0] == "late"
            if step[0] in ("kill", "power", "lose"):
                self._kill(step[0])
            else:
                world.register()
                self._do_or_stop(step)
        except Crash as crash:
            self._die(crash)
        except (CbpError, OSError) as error:
            self._excuse(error)
        self._note_strikes()
        self.builder.look()
        if world.controller.problem and self._rival:
            self._recover()
        self.checker.observe()

    def _do_or_stop(self, step: Step) -> None:
        """Do a step; where it halts in the middle, another instance takes over."""
        strikes = self.world.strikes
        if step[0] not in STOPPABLE or not strikes.stalls:
            return self._do(*step)
        strikes.work = work = Standstill(lambda: self._do(*step))
        work.go_on()
        if work.done:
            strikes.work = None
            if work.error is not None:
                raise work.error
            return
        self._stopped_work = work
        self.outcome.figures["takeovers"] += 1
        self.world.stand_in(suspended=work.kind == "suspend")
        self._recover()

    def _go_on(self) -> None:
        """Let the instance that stood still go on: it does what it may, and ends."""
        work, self._stopped_work = self._stopped_work, None
        if work is None:
            return
        self._rival = True
        work.go_on()
        assert work.done
        self.world.strikes.work = None
        self.outcome.trace.append(f"    = {type(work.error).__name__}, of the one before")
        if not isinstance(work.error, CbpError | OSError | Crash | None):
            raise work.error
        self._note_strikes()
        self.world.strikes.struck.clear()

    def _do(self, verb: str, *arguments: Any) -> None:
        world = self.world
        match verb:
            case "drop":
                world.drop(*arguments)
            case "upload":
                world.upload(*arguments)
            case "overwrite":
                world.overwrite(*arguments)
            case "retract":
                world.retract(*arguments)
            case "version":
                if world.followed is not None:
                    world.followed.commit(*arguments)
            case "scan":
                self._scan()
            case "tick":
                if not world.unsure:
                    world.controller.tick()
            case "work":
                world.executor.end(*arguments)
            case "within":
                world.work_within(*arguments)
            case "sleep":
                world.sleep(*arguments)
            case "late":
                world.bench.seconds += 0.9 * LEASE_SECONDS
            case "continue":
                self._go_on()
            case "twice":
                world.cluster.twice = True
            case "priority":
                if not world.unsure:
                    self.prioritizer.do(*arguments)
            case "sink":
                if not world.unsure:
                    self.sinker.do(*arguments)
            case "pause":
                world.controller.pause(NAME)
            case "resume":
                world.controller.resume(NAME)
            case "stop":
                while world.executor.end(0):
                    pass
                world.controller.drain(0)
                self._recover()
            case _ if verb in (*OPERATIONS, *ASIDES):
                if not world.unsure:
                    self.operator.do(verb, *arguments)
            case _ if verb in BUILDS:
                if not world.unsure:
                    self.builder.do(verb)
            case _ if verb in DECISIONS:
                if not world.unsure:
                    self.decider.do(verb, *arguments)
            case _:
                raise NotImplementedError(verb)

    def _scan(self) -> None:
        """Scan; a source that rests after a failure reports the same one again."""
        for failure in self.world.scan().failures:
            if not any(failure is known for known in self._told):
                self._excuse(failure)
                self._told.append(failure)

    def _excuse(self, error: Exception) -> None:
        """Let an error pass that follows from a fault that struck; no other."""
        if isinstance(error, LogConflictError) and self._rival:
            return self._recover()
        if isinstance(error, LeaseLostError) and self.world.unsure:
            self.outcome.trace.append("    = unsure")
            return None
        if isinstance(error, DataflowBusyError) and self._is_busy():
            self.outcome.trace.append("    = busy")
            return None
        injected = any(kind not in ("crash", "power") for kind in self.world.strikes.struck)
        if not injected or isinstance(error, LogConflictError):
            raise error
        self.outcome.trace.append(f"    = {type(error).__name__}")

    def _is_busy(self) -> bool:
        """Tell whether something of the dataflow may be unfinished: an error, or a rival's work."""
        return self.world.injured or self._rival or bool(self.world.strikes.struck)

    def _note_strikes(self) -> None:
        for kind in self.world.strikes.struck:
            if kind not in ("crash", "power"):
                self.world.injured = True
                self.outcome.figures["errors"] += 1

    # death and recovery

    def _kill(self, how: str) -> None:
        if how == "lose":
            self._go_on()
        if how == "lose":
            self.checker.observe()
            self.world.lose_store()
            self._lost = True
        if how == "power":
            self.world.lose_power()
        self._recover()

    def _die(self, crash: Crash) -> None:
        self.outcome.figures["deaths"] += 1
        self._deaths += 1
        if self._deaths > DEATHS_MAX:
            message = f"dies again and again: {crash}"
            raise Broken(message)
        if isinstance(crash, PowerLoss):
            self.world.lose_power()
        self.checker.observe()
        self._recover()

    def _recover(self) -> None:
        """Start the service anew, as often as it takes, and check what it made of it."""
        while True:
            self._note_strikes()
            self.world.strikes.struck.clear()
            self.outcome.trace.append("  recover")
            self.world.start()
            try:
                self.world.lead()
                if self._lost:
                    self.world.controller.rebuild()
                    self._lost = False
                    self.world.controller.recover()
                self._rival = False
                break
            except Crash as crash:
                return self._die(crash)
            except (CbpError, OSError) as error:
                self._excuse(error)
        if not self.world.strikes.struck:
            self.builder.recovered()
            self.checker.recovered()
        self._note_strikes()

    # the end

    def _settle(self) -> None:
        """Let the service work without faults until nothing is left to do."""
        world = self.world
        for _ in range(ROUNDS_MAX):
            world.sleep(31)
            report = world.scan()
            _require_none(report.failures)
            if world.controller.problem and self._rival:
                self._recover()
            paused = world.store.dataflow(NAME).desired == "paused"
            if paused or self._stopped() or NAME in world.controller.held:
                world.controller.resume(NAME)
            busy = bool(world.controller.tick().starts)
            while world.executor.end(0):
                busy = True
            self.checker.observe()
            # A clock that went back puts a publication off.
            hidden = (
                any(world.parts.publisher.unpublished(NAME).values()) or world.controller.problem
            )
            held = NAME in world.controller.held
            if not (busy or hidden or report.waiting or self._stopped() or held):
                return
        message = f"still busy after {ROUNDS_MAX} rounds: {world.controller.waiting(NAME)}"
        raise Broken(message)

    def _check_settled(self) -> None:
        self.checker.settled()
        self.sinker.settle()
        self.sinker.check(self.checker.history)

    def _stopped(self) -> bool:
        parked = bool(self.world.parts.parked.all())
        return parked or any(s.paused_because for s in self.world.store.stages(NAME))


def _require_none(failures: Iterable[Exception]) -> None:
    for failure in failures:
        raise failure
