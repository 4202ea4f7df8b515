"""One service on one disk, in one thread: the real controller, store, ingestion and tables.

What is not real: Spark (tasks run here, in turn, sometimes twice), the clock, and syncing,
which is recorded or left out. A kill throws every object away; what stays is the disk
and what SQLite has committed.
"""

from __future__ import annotations

import io
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.delta.log import DeltaLog
from cbp.engine.direct import DirectEngine
from cbp.engine.interface.garbage_collector import Retention
from cbp.engine.interface.runs import RunPlan
from cbp.engine.state.index_cache import index_cache
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.engine.storage.files import LocalFiles
from cbp.engine.storage.table_names import state_table
from cbp.errors import NotFoundError
from cbp.model.dataflow.nodes import ONE_FILE, FileBatch, StageNode
from cbp.model.flow.retention import FlowRetention
from cbp.model.schedule.lease import Role
from cbp.model.schedule.parallel_runs import Places
from controller.allowed_folders import AllowedFolders
from controller.ingest.drop_folder import DropFolder
from controller.ingest.folder.eligible_files import CLOSE_NAME
from controller.ingest.folder.folder_report import ScanReport
from controller.ingest.folder.source_place import SourcePlace
from controller.ingest.quarantine_decisions import Decided
from controller.ingest.source_log import ArrivedFile
from controller.ingest.uploads import Author
from controller.loop import (
    Controller,
    Environment,
    Fence,
    LeaseKeeper,
    LoopLimits,
    Parts,
    RetryPolicy,
)
from controller.loop.housekeeping.input_retention import SEVEN_DAYS, Keep
from tests.simulation.bench import Bench, Clock
from tests.simulation.disk import Disk
from tests.simulation.executors import Here, Tasks, Waiting
from tests.simulation.faults import Strikes
from tests.simulation.followed_tables import SOURCE, FollowedTable
from tests.simulation.model import Broken, Deliveries, Record
from tests.simulation.plan import Plan
from tests.simulation.replaced_files import REPLACED_SOURCE

NAME = "sim"
# Everything that can go goes at once, so that a collection that takes too much is seen.
RETENTION = Retention(versions_min=1, versions_max=1, seconds=0, attempt_seconds=0)
# Everything stays: a dataflow can go back to wherever it has a position.
KEPT = Retention(versions_min=1000, versions_max=10_000, seconds=86_400, attempt_seconds=0)
RECORDS_KEPT = 2
FANOUT = 2
LEASE_SECONDS = 10.0
LIMITS = EngineLimits(
    message_rows_min=1,
    inline_deletes_bytes=100,
    checkpoint_entries=2,
    state_fanout=FANOUT,
    output_fanout=FANOUT,
    superstep_log_ms=0,
)
"""Few deletes of a task stand in its record, the others in a file; each superstep is logged."""


class World:
    """One service; `start` is what happens after a kill.

    Args:
        bench: What simulations share.
        plan: What is played.
        disk: Records what is durable; `None`: everything is.
        trace: Told what happens.

    Attributes:
        followed: The table of another system that a source follows, if there is one.
        injured: Whether an error was injected that is no crash: stages may have stopped.
        losses: How often the database was lost.
    """

    def __init__(
        self, bench: Bench, plan: Plan, *, disk: Disk | None, trace: Callable[[str], None]
    ) -> None:
        self.bench, self.plan, self.disk = bench, plan, disk
        self.root = bench.root / "disk"
        self.strikes = Strikes(trace)
        self.rng = random.Random(plan.seed)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.deliveries = Deliveries(plan.files, plan.rows)
        self.foreign = bench.root / "foreign"
        self.followed = _followed(plan, self.foreign)
        self.tables, self.folder = str(self.root / "tables"), str(self.root / "tables" / NAME)
        self._ids = self._mtimes = self.losses = 0
        self.injured = self._known = False
        self._turn = self._instances = 0
        for store in bench.stores:
            store._database._fault = self.strikes
        bench.empty()
        bench.on_statement = self.strikes.statement
        self.start()

    def start(self) -> None:
        """Make the objects of a new process; nothing is recovered yet."""
        self._known = False
        self._instances += 1
        self.store = self.bench.stores[self._turn]
        self.store.fence(None)
        self.leadership: LeaseKeeper | None = None
        self._clock = Clock(self.bench)
        if self.plan.leased:
            self.leadership = LeaseKeeper(
                store=self.store,
                address=f"http://{self._instances}",
                seconds=LEASE_SECONDS,
                clock=self._clock,
                holder=f"{self._instances}",
            )
        check = self.leadership.check if self.leadership is not None else lambda: None
        self.fence = fence = Fence(self.strikes, check)
        self.files = LocalFiles(fence)
        self.bench.disconnect()
        index_cache.cache_clear()
        self.executor = Waiting()
        kept = self.plan.inputs_seconds
        self.cluster = Tasks(self.rng, self._require_newest)
        self.engine = DirectEngine(
            self.cluster,
            cache=str(self.bench.root / "cache"),
            files=self.files,
            faults=fence,
            clock_ms=lambda: int(self.now.timestamp() * 1000),
            limits=LIMITS,
        )
        self.drop_folder = DropFolder(
            store=self.store,
            files=self.files,
            clock=lambda: self.now,
            drop_root=self.root / "drop",
            on_accept=self._wake,
            on_close=self._close_marked,
            settle_seconds=self.plan.settle,
            tables=AllowedFolders("CBP_SOURCE_ROOTS", (self.foreign,)),
            faults=fence,
            new_id=self._new_id,
        )
        self.parts = Parts(
            Environment(
                store=self.store,
                engine=self.engine,
                registry=self.bench.registry,
                files=self.files,
                clock=lambda: self.now,
                tables_root=self.tables,
                places=Places(3),
                retry=RetryPolicy(3, (1.0, 5.0)),
                executor=self.executor,
                verifier=Here(),
                arrivals=self.drop_folder,
                faults=fence,
                random_hex=lambda size: self._new_id()[-2 * size :],
                retention=KEPT if self.plan.kept else RETENTION,
                keep=SEVEN_DAYS if kept is None else Keep(FlowRetention(kept), 10_000),
                collect_every=self.plan.collect_every,
                limits=LoopLimits(
                    records_kept=RECORDS_KEPT, settle_seconds=0.0, checkpoint_seconds=0.0
                ),
            )
        )
        self.controller = Controller(self.parts)

    def work_within(self, number: int) -> None:
        """End the n-th run from the last; in the middle of it others start, end, are collected."""
        cluster = self.cluster
        cluster.meanwhile = partial(self._others, cluster, self.executor, self.controller)
        try:
            self.executor.end(-1 - number)
        finally:
            cluster.meanwhile = None

    def _others(self, cluster: Tasks, executor: Waiting, controller: Controller) -> None:
        for _ in range(2):
            if cluster is self.cluster and not self.unsure:
                controller.tick()
            executor.end(0)
        if cluster is self.cluster and not self.unsure and self.registered:
            controller.housekeeping.collect(NAME)

    def _require_newest(self, cluster: Tasks, plan: RunPlan) -> None:
        """Check that a run is about to look up what the tables show, before others go on."""
        if cluster is not self.cluster or plan.folder != self.folder:
            return  # it led before, and stood still; or it is a verification
        for name, one in plan.lookups.items():
            table = f"{self.folder}/{state_table(one.node.name, one.state)}"
            newest = DeltaLog(table, LocalFiles()).latest_version()
            if one.moment is None or one.moment.version != newest:
                message = f"P8: {plan.run} looks {name} up as of {one.moment}, not of {newest}"
                raise Broken(message)

    def _wake(self) -> None:
        self.controller.wake()

    def lead(self) -> None:
        """Recover, once nobody else leads any more."""
        if self.leadership is None:
            self.controller.recover()
            return
        self.leadership.begin()
        if self.leadership.role is not Role.LEADS:
            self.bench.seconds += LEASE_SECONDS + 1
            self.leadership.begin()
        self.controller.lead(self.leadership.epoch)

    def keep(self) -> None:
        """Renew the lease, as its thread does all the time."""
        if self.leadership is not None:
            self.leadership.keep()

    @property
    def unsure(self) -> bool:
        """Whether this instance may not act, since its lease was not renewed."""
        return self.leadership is not None and self.leadership.role is not Role.LEADS

    def stand_in(self, *, suspended: bool) -> None:
        """Give the next instance the other connection: the old one may go on."""
        self._turn = 1 - self._turn
        if suspended:
            self._clock.stands_at = self.bench.seconds

    @property
    def registered(self) -> bool:
        """Whether the store knows the dataflow."""
        try:
            self.store.dataflow(NAME)
        except NotFoundError:
            return False
        return True

    def register(self) -> None:
        """Register the dataflow, unless it is."""
        if not self._known and not self.registered:
            self.controller.register(self.plan.document)
        self._known = True

    def drop(self, source: str, file: int) -> None:
        """Bring a file as a good producer does: written aside, synced, renamed."""
        incoming = self.place(source, "incoming")
        number = 0
        while os.path.lexists(target := incoming / f"f{file}-{number}.jsonl"):
            number += 1
        self._bring(target, self.plan.files[file])
        self.deliveries.bring(source, target.name, file, certain=True)

    def leave_marker(self, source: str) -> bool:
        """Ask for a close by a file behind those that are there; `False`: one is there already."""
        target = self.place(source, "incoming") / CLOSE_NAME
        if os.path.lexists(target):
            return False
        self._bring(target, b"")
        return True

    def _bring(self, target: Path, data: bytes) -> None:
        aside = target.parent / ".new.part"
        aside.write_bytes(data)
        self._mtimes += 1
        os.utime(aside, ns=(self._mtimes * 10**9, self._mtimes * 10**9))
        self._sync(aside)
        aside.rename(target)
        self._sync(target.parent)

    def _close_marked(self, dataflow: str, source: str, key: str) -> None:
        self.controller.close(dataflow, source, key=key, reason="marker")

    def _place(self, source: str) -> SourcePlace:
        record, dataflow = self.store.dataflow(NAME), self.controller.dataflow(NAME)
        return self.drop_folder.place(record, dataflow, source)

    def upload(self, source: str, file: int) -> None:
        """Bring a file over the API; what it returns for is durable."""
        self.deliveries.bring(source, f"u{file}", file, certain=False)
        stream = io.BytesIO(self.plan.files[file])
        self.drop_folder.upload(self._place(source), f"u{file}", stream)
        self.deliveries.bring(source, f"u{file}", file, certain=True)

    def overwrite(self, name: str, file: int) -> None:
        """Bring a file that replaces the one of its name, if there is one."""
        self._bring_replaced(name, file, self.drop_folder.upload, io.BytesIO(self.plan.files[file]))

    def retract(self, name: str, file: int) -> None:
        """Take a file back, if it counts."""
        with suppress(NotFoundError):
            self._bring_replaced(
                name, file, self.drop_folder.replacements.ask, None, Author("o", "wrong")
            )

    def _bring_replaced(self, name: str, file: int, bring: Any, *more: Any) -> None:
        self.deliveries.bring(REPLACED_SOURCE, name, file, certain=False)
        bring(self._place(REPLACED_SOURCE), name, *more)
        self.deliveries.bring(REPLACED_SOURCE, name, file, certain=True)

    def rows(self, source: str, file: ArrivedFile) -> list[Record]:
        """Return the records that an accepted file must have."""
        if self.followed is not None and source == SOURCE:
            return self.followed.rows(file)
        return self.deliveries.rows(source, file.path, file.sha256)

    def decide(self, verb: str, source: str, claim: str, mended: int | None) -> Decided:
        """Decide about a quarantined file; `verb` is one of `decisions`."""
        given, author = (self._place(source), claim), Author("o", "wrong")
        if verb == "discard":
            return self.drop_folder.quarantine.discard(*given, author)
        if verb == "restore":
            return self.drop_folder.quarantine.restore(*given)
        stream = None if mended is None else io.BytesIO(self.plan.files[mended])
        return self.drop_folder.readmit(*given, stream, author)

    def scan(self) -> ScanReport:
        """List the drop folders once."""
        record, dataflow = self.store.dataflow(NAME), self.controller.dataflow(NAME)
        return self.drop_folder.scan(record, dataflow)

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def lose_power(self) -> None:
        """Leave on the disk what survives; index copies do not outlive a boot."""
        assert self.disk is not None
        self.disk.lose(self.rng)
        shutil.rmtree(self.bench.root / "cache", ignore_errors=True)

    def lose_store(self) -> None:
        """Kill the service and its database."""
        self.losses += 1
        self.bench.empty()
        self.start()

    def place(self, source: str, folder: str) -> Path:
        """Return a folder of a source's drop folder."""
        return self.root / "drop" / NAME / source / folder

    def set_aside(self, node: StageNode) -> list[Record]:
        """Return what a stage has set aside, as published."""
        return self.engine.records.set_aside(self.folder, node)

    def log(self) -> IntentionLog:
        """Return the intention log, read past all faults."""
        return IntentionLog(self.folder, LocalFiles())

    def _new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:012x}"

    def _sync(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def _followed(plan: Plan, folder: Path) -> FollowedTable | None:
    source = plan.document["sources"].get(SOURCE)
    if source is None:
        return None
    batch = ONE_FILE if "batch" not in source else FileBatch(**source["batch"])
    return FollowedTable(folder / SOURCE, plan.seed, batch.files)
