"""Verification jobs: recompute a dataflow from its retained input, and compare every table.

    cut -> recompute in a folder of its own -> compare, table by table
                                                 '- differs -> recompute again, compare both

There is one verification at a time. It takes no lock that a run needs, and shares only the
executor's slots with the runs.

Guaranteed: it ends within its time limit plus `GIVE_UP_SECONDS`. Work that hangs beyond that is
left alone, and its result is dropped. The scratch folder is removed, at the next start at the
latest. The results of the last `KEPT_MAX` verifications of a dataflow outlive the process, in the
store. A verification that was under way when the process died is listed with the error
`verification_interrupted`.

Invariants: tests/controller/loop/verification/test_verification.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any

import structlog
from pydantic import TypeAdapter

from cbp.clock import MACHINE
from cbp.engine.interface.readers import Contents
from cbp.engine.read.compare import column_names, compare
from cbp.engine.storage.failpoints import Faults
from cbp.errors import CbpError, NotFoundError, RunCancelledError
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.verification import (
    Comparison,
    Request,
    Status,
    TableVerdict,
    Verification,
    behind,
    comparisons,
    first_stage,
    reading_runs,
)
from controller.loop.records.correction_log import is_undone, read_notes
from controller.loop.records.dataflow_folder import remove_scratch, scratch_folder
from controller.loop.records.job_table import KEPT_MAX, JobTable
from controller.loop.runs.retry_policy import describe_error
from controller.loop.runs.time_limit import GIVE_UP_SECONDS
from controller.loop.verification.errors import (
    DataflowUnsettledError,
    VerificationBusyError,
    VerificationInterruptedError,
)
from controller.loop.verification.recomputation import (
    JobEndedError,
    Recomputation,
    Side,
    Subject,
    VerificationParts,
    Watched,
    first_kept,
)
from controller.loop.verification.repetition import Repetition
from controller.store.base import DataflowRecord, Event, VerificationRecord

DIFFERENCES_MAX = 1_000
"""Number of differing keys that a verification keeps; each table may keep `FEW` in any case."""

FEW = 5

_log = structlog.get_logger(__name__)


@dataclass(eq=False)
class _Job(Watched):
    """One verification under way, beside its entry in the table.

    Attributes:
        why: Why `stop` was set.
        patience: Timer that gives the job up; started when the job is asked to end.
    """

    begun: Verification
    table: JobTable[Verification]
    lock: threading.Lock = field(default_factory=threading.Lock)
    why: Status = "cancelled"
    patience: threading.Timer | None = None
    verdicts: dict[str, TableVerdict] = field(default_factory=dict)
    tell_progress: Callable[[], None] = lambda: None

    @property
    def shown(self) -> Verification:
        """Its public view; a job that was given up may be forgotten before its thread ends."""
        return self.table.get(self.begun.id) or replace(self.begun, status=self.why)

    def wait(self, busy: Mapping[str, str]) -> None:
        """Wait a moment for stages to become idle; raises an error when the time is up."""
        try:
            super().wait(busy)
        except JobEndedError:
            if self.why == "timed_out":
                raise DataflowUnsettledError(self.shown.dataflow, busy) from None
            raise

    def show(self, **changed: Any) -> None:
        """Change the visible status; the status of an ended job stays."""
        self.table.show(self.begun.id, **changed)

    @property
    def differences(self) -> int:
        """Number of differing keys that are kept."""
        return sum(len(verdict.differing) for verdict in self.verdicts.values())

    def show_tables(self) -> None:
        """Show the verdicts so far."""
        self.show(tables=tuple(self.verdicts.get(v.table, v) for v in self.shown.tables))
        self.tell_progress()


@dataclass(kw_only=True, eq=False)
class Verifications(VerificationParts):
    """Starts verifications and reports their progress; safe to use from several threads."""

    tables_root: str
    random_hex: Callable[[int], str]
    faults: Faults
    executor: Executor
    settle_seconds: float
    monotonic: Callable[[], float] = MACHINE.seconds

    def __post_init__(self) -> None:
        self._give_up_seconds = GIVE_UP_SECONDS
        self._table: JobTable[Verification] = JobTable(self.monotonic)
        self._job: _Job | None = None

    def start(self, name: str, request: Request) -> Verification:
        """Begin to verify a dataflow; returns at once."""
        record, dataflow = self.catalog.find(name)
        self.catalog.require_same(record)
        built, valid_to, altered = self._altered(record, dataflow)
        changed = behind(dataflow, altered | reading_runs(dataflow))

        def refuse(other: str, known: Verification) -> None:
            raise VerificationBusyError(other, known.dataflow)

        id_ = f"v{self.random_hex(6)}"
        units = self.catalog.units(record)
        taken_back = self.descriptions.taken_back(record)
        subject = Subject(
            id_, record, dataflow, units, changed, request, built, valid_to, taken_back
        )
        collected = first_kept(subject, self.engine)
        tables = _open(_comparisons(subject, collected))
        begun = Verification(
            id_, name, request, "waiting", "waits to begin", began_at=self.clock(), tables=tables
        )
        self._table.begin(id_, begun, refuse)
        job = self._job = _Job(begun, self._table, settle_seconds=self.settle_seconds)
        job.tell_progress = partial(self._announce, name, id_)
        # This result counts if the process dies before the verification ends.
        cut_off = VerificationInterruptedError(id_, name)
        self._keep(replace(job.shown, status="failed", error=describe_error(cut_off)))
        try:
            self.executor.submit(self._guarded, job, subject)
        except RuntimeError:  # no thread can be started, or the service stops
            self._table.forget(id_)
            raise
        return job.shown

    def _altered(
        self, record: DataflowRecord, dataflow: Dataflow
    ) -> tuple[Mapping[str, int] | None, Mapping[str, int], set[str]]:
        """Return `built` and `valid_to` of the `Subject`, and stages to repeat.

        The stages are those that cannot be recomputed from scratch, for reasons other than their
        input. If all input can still be read, changes before the last swap do not count, nor does
        a swap that was taken back.
        """
        complete = all(self._complete(record, one) for one in dataflow.sources)
        since = self.descriptions.since_built(record) if complete else None
        if since is None:
            corrected = self._corrected(record, {})
            altered = self.descriptions.anew(record, every=not complete) | corrected
            return None, {}, {*altered, *self._set_aside(record, dataflow)}
        begin, altered = since
        stages = begin.position.stages
        units = self.catalog.units(record).items()
        built = {
            name: stages[leader].epoch
            for leader, unit in units
            if leader in stages
            for name in unit.names
        }
        corrected = self._corrected(record, built)
        newest = begin.position.newest
        valid_to = {one.flow: one.index + 1 for one in newest if "." not in one.flow}
        return built, valid_to, {*altered, *corrected, *self._set_aside(record, dataflow)}

    def _complete(self, record: DataflowRecord, source: str) -> bool:
        """Return whether the first increment of a source is kept, if any arrived."""
        oldest = self.store.oldest_increments(record.name, source, limit=1)
        first = oldest[0].increment.index if oldest else 0
        return not first and (bool(oldest) or not self.store.next_index(record.name, source))

    def _corrected(self, record: DataflowRecord, first: Mapping[str, int]) -> set[str]:
        """Return the stages with corrections from these epochs on that still count."""
        generations = self.open_log(record.folder).generations
        taken_back = self.descriptions.taken_back(record)
        return {
            one.leader
            for one in read_notes(self.files, record.folder)
            if one.epoch >= first.get(one.leader, 0) and not is_undone(one, generations, taken_back)
        }

    def _set_aside(self, record: DataflowRecord, dataflow: Dataflow) -> set[str]:
        """Return the stages with records that are set aside.

        Which calls fail depends on how input was cut, so their epochs are repeated as they were.
        """
        return {
            name
            for name, node in dataflow.stages.items()
            if node.sets_aside and self.engine.records.set_aside(record.folder, node)
        }

    def show(self, id_: str) -> Verification:
        """Return one verification; raises `NotFoundError`."""
        shown = self._table.get(id_) or result_of(self.store.verification(id_).result)
        if shown is None:
            raise NotFoundError(kind="verification", name=id_)
        return shown

    def all(self, name: str) -> list[Verification]:
        """Return the verifications of a dataflow, newest first; raises `NotFoundError`."""
        self.store.dataflow(name)
        remembered = [one for one in reversed(self._table.all()) if one.dataflow == name]
        ids = {one.id for one in remembered}
        stored = [
            result_of(record.result)
            for record in self.store.verifications(name)
            if record.id not in ids
        ]
        return [*remembered, *(one for one in stored if one is not None)][:KEPT_MAX]

    def cancel(self, id_: str) -> Verification:
        """Ask a verification to end, unless it has ended; returns at once."""
        shown = self.show(id_)
        if self._job is None or self._job.begun.id != id_:
            return shown
        self._end(self._job, "cancelled")
        return self.show(id_)

    def _announce(self, dataflow: str, id_: str) -> None:
        event = Event(kind="verification.progress", dataflow=dataflow, subject=id_)
        try:
            self.store.announce(event)
        except CbpError as error:  # it can be asked for, too
            _log.warning("events.not_announced", error=error.as_dict())

    def stop(self) -> None:
        """End the verification under way, since the service stops."""
        if self._job is not None and not self._job.shown.ended:
            self._end(self._job, "cancelled")

    def forget(self, name: str) -> None:
        """End and forget the verifications of a dataflow that was deleted; returns at once."""
        job = self._job
        is_under_way = job is not None and job.begun.dataflow == name and not job.shown.ended
        self._table.forget_all(name)  # first, so that its result is not kept
        if job is not None and is_under_way:
            self._end(job, "cancelled")

    def _end(self, job: _Job, why: Status) -> None:
        with job.lock:
            if job.stop.is_set() or job.shown.ended:
                return
            job.why = why
            with suppress(RuntimeError):  # no thread can be started: then it is not given up
                job.patience = _after(self._give_up_seconds, self._give_up, job)
            job.stop.set()
        if job.run:
            self.engine.control.cancel(job.run)

    def _give_up(self, job: _Job) -> None:
        """Stop waiting for a thread that was asked to end; its result is dropped."""
        if not job.shown.ended:
            _log.warning("verification.abandoned", verification=job.shown.id, step=job.shown.step)
            job.show(status=job.why, step=f"{job.shown.step}; did not stop when asked to")
            self._keep(job.shown)

    def _keep(self, ended: Verification) -> None:
        """Keep a result over a restart; if that fails, this process remembers it."""
        record = VerificationRecord(ended.id, ended.dataflow, as_json(ended))
        try:
            self.store.keep_verification(record, most=KEPT_MAX)
        except CbpError as error:
            _log.warning("verification.not_stored", verification=ended.id, error=error.as_dict())

    # one verification

    def _guarded(self, job: _Job, subject: Subject) -> None:
        timer: threading.Timer | None = None
        status: Status = "failed"
        error: dict[str, object] | None = None
        scratch = scratch_folder(self.tables_root, job.shown.id)
        try:
            timer = _after(job.shown.request.seconds_max, self._end, job, "timed_out")
            status = self._verify(job, subject, scratch)
        except JobEndedError:
            status = job.why
        except Exception as cause:  # author's code and engines may raise anything
            if job.stop.is_set() and isinstance(cause, RunCancelledError):
                status = job.why
            else:
                error = describe_error(cause)
                _log.warning("verification.failed", dataflow=subject.record.name, exc_info=cause)
        if timer is not None:
            timer.cancel()
        self._clean(scratch)
        differing = [v.table for v in job.verdicts.values() if v.status == "differs"]
        if differing and status in ("equal", "undecided", "timed_out", "cancelled"):
            status = "differs"
        suspect = first_stage(subject.dataflow, differing)
        if not job.shown.ended:
            result = replace(job.shown, status=status, suspect=suspect, error=error)
            try:
                # First: a client that has seen a result finds it after a restart.
                self._keep(result)
            finally:
                job.show(status=status, suspect=suspect, error=error, seconds=result.seconds)
        with job.lock:  # `_end` sets it only before the job is shown as ended
            if job.patience is not None:
                job.patience.cancel()
        job.tell_progress()
        _log.info(
            "verification.ended", dataflow=subject.record.name, status=status, suspect=suspect
        )

    def _clean(self, scratch: str) -> None:
        try:
            remove_scratch(self.files, scratch, faults=self.faults)
        except CbpError as error:  # another instance leads now, and removes it at its next start
            _log.warning("verification.scratch_not_removed", folder=scratch, error=error.as_dict())

    def _verify(self, job: _Job, subject: Subject, scratch: str) -> Status:
        recomputation, repetition = Recomputation(subject, self), Repetition(subject, self)
        cut = recomputation.cut(job)
        # Ask again: since the request, garbage collection may have removed more increments.
        collected = first_kept(subject, self.engine, cut)
        dataflow, request = subject.dataflow, subject.request
        every = _comparisons(subject, collected)
        every = [
            replace(one, left_out=cut.not_run.get(one.stage, one.left_out))
            for one in repetition.chosen(every, cut, collected)
        ]
        without_difference: Status = "equal"
        if any(one.undecided for one in every):
            without_difference = "undecided"
        job.show(status="running", epochs=dict(cut.snapshot.epochs), tables=_open(every))
        wanted = [one for one in every if not one.left_out]
        if not wanted:
            return without_difference

        def made(number: int) -> Side:
            """Recompute the requested tables: from scratch if possible, otherwise from a state."""
            whole = repeated = None
            if any(one.since is None for one in wanted):
                whole = recomputation.recompute(cut, f"{scratch}/{number}", job)
            if any(one.since is not None for one in wanted):
                repeated = repetition.repeat(f"{scratch}/r{number}", job)

            def side(one: Comparison) -> Contents:
                contents_of = whole if one.since is None else repeated
                assert contents_of is not None, f"{one.table} was not computed again"
                return contents_of(one)

            return side

        first = made(1)
        differs = self._compare(job, dataflow, wanted, first, recomputation.tables(cut))
        if not differs and not request.twice:
            return without_difference
        # Two recomputations of one input separate wrong tables from unstable translators.
        earlier, job.verdicts = job.verdicts, {}
        try:
            second = made(2)
            if self._compare(job, dataflow, wanted, first, second):
                earlier = {}
                return "not_deterministic"
        finally:
            job.verdicts = {**job.verdicts, **earlier}
            job.show_tables()
        return "differs" if differs else without_difference

    def _compare(
        self,
        job: _Job,
        dataflow: Dataflow,
        wanted: Sequence[Comparison],
        expected: Side,
        actual: Side,
    ) -> bool:
        """Compare tables and keep the verdicts; return whether one differs."""
        for number, one in enumerate(wanted):
            job.tell(f"compares {one.table}", number, len(wanted), "tables")
            compared = 0

            def counting(rows: int) -> None:
                nonlocal compared
                compared += rows
                job.check()

            spec = dataflow.stages[one.stage].translator
            try:
                differing = compare(
                    one, spec, expected=expected(one), actual=actual(one), counting=counting
                )
            except FileNotFoundError as error:  # collected, or purged with the dataflow
                raise NotFoundError(kind="file", name=str(error.filename or error)) from error
            columns, key = column_names(one, spec)
            shown_max = max(FEW, DIFFERENCES_MAX - job.differences)
            job.verdicts[one.table] = TableVerdict(
                one.table,
                one.kind,
                "differs" if differing else "undecided" if one.undecided else "equal",
                compared,
                tuple(differing[:shown_max]),
                within=one.within,
                since=one.since,
                columns=columns,
                key=key,
            )
            job.show_tables()
        return any(verdict.status == "differs" for verdict in job.verdicts.values())


def _comparisons(subject: Subject, collected: Mapping[str, int]) -> list[Comparison]:
    """Return the comparisons of a verification.

    A swap hides the increments before it, since its records count as older than every increment.
    """
    built, split = subject.built, subject.request.split
    if built is not None:
        collected = {
            flow: first
            for flow, first in collected.items()
            if first > built.get(flow.partition(".")[0], 0)
        }
    every = comparisons(
        subject.dataflow, split, subject.changed, collected, built=built is not None
    )
    return [
        # Readers see older records, too, but it is no longer known where these begin.
        replace(one, whole=False) if one.first and subject.is_return(one.stage, one.first) else one
        for one in every
    ]


def _open(every: Iterable[Comparison]) -> tuple[TableVerdict, ...]:
    return tuple(
        TableVerdict(
            one.table,
            one.kind,
            "open" if not one.left_out else "undecided" if one.undecided else "left_out",
            because=one.left_out,
            within=one.within,
            since=one.since,
        )
        for one in every
    )


def _after(seconds: float, call: Callable[..., object], *arguments: object) -> threading.Timer:
    timer = threading.Timer(seconds, call, arguments)
    timer.daemon = True
    timer.start()
    return timer


_RESULT = TypeAdapter(Verification)
_FIELDS = {one.name for one in fields(Verification)}
_NEEDED = {"request", "began_at", "tables"}


def as_json(one: Verification) -> dict[str, Any]:
    """Return an ended verification as a JSON value."""
    began_at = None if one.began_at is None else one.began_at.isoformat()
    return {**asdict(one), "began_at": began_at}


def result_of(value: Mapping[str, Any]) -> Verification | None:
    """Build a verification from a JSON value; `None` if another release wrote other fields.

    Fields of the request, of a table or of a difference that this release does not know are left
    out; the rest of such a result still holds.
    """
    try:
        if not _NEEDED <= value.keys() <= _FIELDS:
            message = f"the fields are {', '.join(value)}"
            raise ValueError(message)
        return _RESULT.validate_python(value)
    except ValueError as error:
        _log.warning("verification.unreadable", error=f"{type(error).__name__}: {error}")
        return None
