"""The operator who has tables built beside in a simulation, and what must become of them.

P5  a build that was accepted goes on after every death, and one that was ended does not
P9  what is built is what is there: tables that do not depend on when runs began are equal
P9  a swap shows all of it, wherever a death came between, and leaves nothing behind
"""

from __future__ import annotations

import random

from cbp.engine.storage.files import LocalFiles
from cbp.errors import ChangeRefusedError, DataflowBusyError
from controller.loop.rebuild.build_in_progress import RebuildJob
from controller.loop.rebuild.build_order import open_order
from tests.planned_faults import Crash
from tests.simulation.history import require
from tests.simulation.world import NAME, World

__all__ = ["Builder"]

REFUSED = {"beside_framed", "input_not_retained", "replacement_unfollowed", "code_drifted"}
"""Why a build may be refused: frames of flows that stages write, and input that is gone."""

SAME = ("held",)
"""Stages that compute groups anew: their states do not depend on when runs began."""

DEATHS = ("build_order", "data_file", "description", "log_entry", "sql_commit", "clean_up")
TRIES_MAX = 30


class Builder:
    """The operator who rebuilds in one world.

    Attributes:
        builds: How many builds were accepted.
        swaps: How many were swapped in.
    """

    def __init__(self, world: World) -> None:
        self.world, self.builds, self.swaps = world, 0, 0
        self._open = ""

    def do(self, verb: str) -> None:
        """Do one of the steps of `builds`."""
        getattr(self, f"_{verb}")()

    def _build(self) -> None:
        if (job := self._start()) is not None:
            self._open = job.id
            self.builds += 1
            self._look(job)

    def _unbuild(self) -> None:
        if (job := self._under_way()) is not None:
            self._open = ""  # from here on it may be gone
            self.world.controller.rebuild_jobs.cancel(NAME, job.id)

    def look(self) -> None:
        """Note whether the build that is under way has ended by itself."""
        if self._open and self.world.registered:
            for job in self.world.controller.rebuild_jobs.all(NAME):
                if job.id == self._open:
                    self._look(job)

    def _look(self, job: RebuildJob) -> None:
        job = self.world.controller.rebuild_jobs.show(NAME, job.id)
        if job.ended:
            self._open = ""
            struck = self.world.injured or self.world.strikes.struck or self.world.unsure
            error = job.error
            outdated = isinstance(error, ChangeRefusedError) or job.status == "cancelled"
            require(struck or outdated, f"P9: build {job.id} {job.status}: {error}")

    def recovered(self) -> None:
        """Check that what was accepted goes on; called once a recovery has returned."""
        if not self.world.registered or self.world.injured:
            return
        order = open_order(LocalFiles(), self.world.folder)
        job = self._under_way()
        same = (order.id if order else "") == (job.id if job else "")
        require(same, f"P5: {order} is to be built, and {job} is")
        if self._open:
            require(order and order.id == self._open, f"P5: build {self._open} is lost")

    def end(self) -> None:
        """End what is under way, so that inputs may go again."""
        self._unbuild()

    def finish(self) -> None:
        """Build once more, compare, swap it in with deaths on the way, and look at the tables."""
        world = self.world
        job, rng = self._start(), random.Random(f"swap {world.plan.seed}")
        if job is None:
            return
        self._look(job)
        job = world.controller.rebuild_jobs.show(NAME, job.id)
        require(job.status == "ready", f"P9: the last build {job.status}: {job.error}")
        for one in job.tables:
            if one.table.startswith(tuple(f"state/{stage}." for stage in SAME)):
                differs = one.added or one.gone or one.changed or one.because
                require(not differs, f"P9: the tables that were built differ: {one}")
        before, version = self._same(), world.store.dataflow(NAME).version
        world.strikes.plan("crash", f"{rng.choice(DEATHS)}.{rng.choice(('before', 'after'))}", 1)
        world.strikes.plan("crash", "*", rng.randrange(1, 60))
        for _ in range(TRIES_MAX):
            try:
                if self._swap_or_tick():
                    break
            except Crash:
                self._restart()
        world.strikes.clear()
        now, job = world.store.dataflow(NAME).version, self._under_way()
        if now == version and job is not None and isinstance(job.error, DataflowBusyError):
            require(job.status == "ready", f"P9: a swap that has to wait {job.status}")
            return
        require(now == version + 1, f"P9: version {now} came of a swap of {version}")
        require(self._same() == before, f"P9: {self._same()} is shown, and not {before}")
        require(open_order(LocalFiles(), world.folder) is None, "P9: an order is left")
        self.swaps += 1

    def _swap_or_tick(self) -> bool:
        """Go on; tell whether the swap is done."""
        world = self.world
        world.keep()
        job = self._under_way()
        if job is None:
            return True
        order = open_order(LocalFiles(), world.folder)
        if job.status == "ready" and order is not None and not order.swaps:
            world.controller.rebuild_jobs.swap(NAME, job.id)
        world.controller.tick()
        while world.executor.end(0):
            pass
        return False

    def _restart(self) -> None:
        while True:
            try:
                self.world.start()
                self.world.lead()
                return
            except Crash:
                continue

    def _start(self) -> RebuildJob | None:
        """Ask for a build of the present version; `None` if it is refused with reason."""
        world = self.world
        jobs, document = world.controller.rebuild_jobs, world.store.dataflow(NAME).document
        try:
            return jobs.start(document, world.controller.dataflow(NAME))
        except DataflowBusyError:
            if self._under_way() is None:
                raise
        except ChangeRefusedError as error:
            codes = {one.code for one in error.mistakes}
            require(codes <= REFUSED, f"P9: a build is refused: {error}")
        return None

    def _under_way(self) -> RebuildJob | None:
        if not self.world.registered:
            return None
        jobs = self.world.controller.rebuild_jobs.all(NAME)
        return next((one for one in jobs if not one.ended), None)

    def _same(self) -> dict[str, list[str]]:
        """Return the records of the states that a swap must not change."""
        world = self.world
        shown = {}
        for name, node in world.controller.dataflow(NAME).stages.items():
            for state in node.translator.states if name in SAME else ():
                rows = world.engine.records.read_state(world.folder, node, state.name)
                shown[f"{name}.{state.name}"] = sorted(map(repr, rows))
        return shown
