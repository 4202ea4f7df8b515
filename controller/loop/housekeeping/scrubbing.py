"""Scrubbing: reads everything on disk again, slowly, to find damage early.

Damage in a file that is rarely read is found before the copy that could repair it is gone. A
*round* reads the folders of all dataflows, file by file, at `RATE_BYTES` a second, or faster if
needed to end within its time. The next round begins an hour later, or after the time of a round if
that is shorter. A finding stays until a later round finds the file repaired. It is written beside
the tables, so it is known after a restart. It is a trouble of its dataflow: `status`, `ready` and
the metrics show it. No stage stops for it; a run stops only when it reads the damaged file.
Damage that a user's read finds first is a finding, too (`note`), until a round that begins later
has read everything.

A scrub that is requested (`Scrubs`) reads one dataflow at once, as fast as the disk allows. Both
keep their findings in one place, so that `ready`, state and metrics agree.

Guaranteed: no tick waits for it; one step reads at most `STEP_BYTES` and one file; nothing is
changed except the note. At most one requested scrub of a dataflow is under way; a second request
returns that one (tests/controller/loop/housekeeping/test_scrubs.py).
"""

import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

import structlog

from cbp.engine.read.scrub import Damage, ScrubbedFile, scrub
from cbp.engine.storage.checked_json import digested, read_record
from cbp.engine.storage.files import Files
from cbp.errors import CbpError, FileDamagedError, FileLostError, InvariantError, NotFoundError
from cbp.errors.counts import format_count
from cbp.model.schedule.backoff import Rest
from controller.loop.records.job_table import JobTable
from controller.loop.runs.isolation import Trouble
from controller.store.base import DataflowRecord, Store

DAMAGES_MAX = 1_000
"""Number of damages of one dataflow that reads may note; a round finds the others."""
RATE_BYTES = 2 << 20
STEP_BYTES = 8 << 20
_BETWEEN = timedelta(hours=1)
_FOLDER = ".scrub"

Status = Literal["never", "running", "whole", "damaged", "failed"]

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Progress:
    """The progress of a round in one dataflow.

    Attributes:
        began_at: When this round began to read it; `None` if it has not begun yet.
        ended_at: When a round last finished reading all of it.
        damages: Damages by path; those of the last round until this round has read everything.
    """

    began_at: datetime | None = None
    ended_at: datetime | None = None
    files: int = 0
    bytes: int = 0
    damages: dict[str, Damage] = field(default_factory=dict)
    met_at: dict[str, datetime] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class Scrubbing:
    """Reads some files at each step; `step` is called by one thread, other methods by any."""

    files: Files
    tables_root: str
    clock: Callable[[], datetime]
    dataflows: Callable[[], Collection[DataflowRecord]]
    needed: Callable[[DataflowRecord], Collection[str]]
    scrub_seconds: float
    executor: Executor

    def __post_init__(self) -> None:
        self._round = timedelta(seconds=self.scrub_seconds)
        self._looks: Iterator[int] | None = None
        self._rate = float(RATE_BYTES)
        self._rest: Rest | None = None
        self._read_at: datetime | None = None
        self._progress: dict[str, Progress] = {}
        self._step: Future[None] | None = None
        self._taking = threading.RLock()

    def step(self) -> None:
        """Start to read the files that are due, in another thread; returns at once."""
        if self._round and (self._step is None or self._step.done()):
            try:
                self._step = self.executor.submit(self._read)
            except RuntimeError:
                return  # no thread can be started, or the service stops

    def _read(self) -> None:
        try:
            self._read_on()
        except Exception:  # idle work: if the error lasts, the next step logs it again
            self._looks = None
            self._rest_from(self.clock())
            _log.exception("scrub.failed")

    def _read_on(self) -> None:
        now = self.clock()
        if self._looks is None:
            if self._rest is not None and self._rest.lasts(now):
                return
            self._begin(now)
        assert self._read_at is not None
        self._read_at = min(self._read_at, now)  # the clock was set back: start again
        left = min((now - self._read_at).total_seconds() * self._rate, STEP_BYTES)
        if left <= 0:
            return
        self._read_at = now
        assert self._looks is not None
        for bytes_ in self._looks:
            left -= max(bytes_, 4096)
            if left <= 0:
                return
        self._looks = None
        self._rest_from(now)

    def _rest_from(self, now: datetime) -> None:
        self._rest = Rest(now, now + min(_BETWEEN, self._round))

    def progress(self, name: str) -> Progress:
        """Return the progress of the round in a dataflow, and its damaged files."""
        if (known := self._progress.get(name)) is not None:
            return known
        with self._taking:
            if name not in self._progress:
                self._progress[name] = self._remembered(name)
            return self._progress[name]

    def trouble(self, name: str) -> Trouble | None:
        """Return the damage of a dataflow as a trouble, or `None`."""
        progress = self.progress(name)
        damages = progress.damages.copy()  # other threads change it
        if not damages:
            return None
        first = damages[min(damages)]
        kind = FileLostError if first.code == FileLostError.code else FileDamagedError
        since = progress.began_at or self.clock()
        again, error = self._rest or Rest(self.clock(), self.clock()), kind(first.path, first.why)
        return DamageTrouble(name, "scrubbed", error, since, len(damages), again)

    def forget(self, name: str) -> None:
        """Forget a deleted dataflow; a failure is logged."""
        with self._taking:
            self._progress.pop(name, None)
            try:
                if self.files.exists(path := self._note(name)):
                    self.files.remove(path)
            except CbpError as error:
                _log.warning("scrub.result_not_removed", dataflow=name, error=error.as_dict())

    def _is_current(self, record: DataflowRecord) -> bool:
        """Return whether a dataflow is still registered, and was not deleted in between."""
        made = {one.name: one.created_at for one in self.dataflows()}
        return made.get(record.name) == record.created_at

    def _begin(self, now: datetime) -> None:
        records = sorted(self.dataflows(), key=lambda record: record.name)
        for name in self._progress.keys() - {record.name for record in records}:
            self.forget(name)
        sizes = (file.bytes for r in records for file in self.files.list_files(r.folder))
        self._rate = max(RATE_BYTES, 2 * sum(sizes) / self._round.total_seconds())
        self._looks, self._read_at = self._look(records), self._read_at or now

    def _look(self, records: Collection[DataflowRecord]) -> Iterator[int]:
        """Check the files of all dataflows; yield the size of each."""
        for record in records:
            progress = self.progress(record.name)
            began_at, damages = self.clock(), dict[str, Damage]()
            progress.began_at, progress.files, progress.bytes = began_at, 0, 0
            try:
                for looked in self.looks(record):
                    self._count(record, progress, looked, damages)
                    yield looked.bytes
                self.take(record, damages, self.clock(), since=began_at)
            except CbpError as error:
                # Most likely the folder was removed; otherwise the next round reports it again.
                _log.warning("scrub.failed", dataflow=record.name, error=error.as_dict())

    def _count(
        self,
        record: DataflowRecord,
        progress: Progress,
        looked: ScrubbedFile,
        damages: dict[str, Damage],
    ) -> None:
        progress.files += 1
        progress.bytes += looked.bytes
        if (damage := looked.damage) is None:
            return
        damages[damage.path] = damage
        with self._taking:  # a deletion then removes what is noted here, or nothing is noted
            if damage.path not in progress.damages and self._is_current(record):
                progress.damages[damage.path] = damage
                _log.error("damage.found_by_scrub", **damage.to_json())
                self._remember(record.name, progress)

    def looks(self, record: DataflowRecord) -> Iterator[ScrubbedFile]:
        """Check every file of a dataflow, as fast as the result is iterated; raises `CbpError`."""
        return scrub(record.folder, self.files, needed=self.needed(record))

    def size(self, record: DataflowRecord) -> tuple[int, int]:
        """Return how many files and bytes a dataflow has on disk."""
        there = [one.bytes for one in self.files.list_files(record.folder) if not one.temporary]
        return len(there), sum(there)

    def note(self, error: FileDamagedError) -> None:
        """Add damage that a read has found to the findings of its dataflow.

        Does nothing if the damage is known, if no dataflow has the file, or if a missing file
        exists again.
        """
        damage = Damage.of(error, "")
        with self._taking:
            owners = [one for one in self.dataflows() if damage.path.startswith(f"{one.folder}/")]
            if not owners or (damage.code == FileLostError.code and self.files.exists(damage.path)):
                return
            progress = self.progress(owners[0].name)
            if damage.path in progress.damages or len(progress.damages) >= DAMAGES_MAX:
                return
            progress.damages[damage.path] = damage
            progress.met_at[damage.path] = self.clock()
            _log.error("damage.found_by_read", **damage.to_json())
            self._remember(owners[0].name, progress)

    def take(
        self,
        record: DataflowRecord,
        damages: Mapping[str, Damage],
        now: datetime,
        *,
        since: datetime,
    ) -> None:
        """Replace the findings of a dataflow by the result of a complete reading.

        Does nothing if the dataflow was deleted since the reading began.

        Args:
            record: The dataflow as it was when the reading began.
            since: When it began; findings of reads after that stay.
        """
        name = record.name
        with self._taking:
            if not self._is_current(record):
                return
            progress = self.progress(name)
            progress.met_at = {path: at for path, at in progress.met_at.items() if at > since}
            met = {p: progress.damages[p] for p in progress.met_at if p in progress.damages}
            damages = {**met, **damages}
            for path in damages.keys() - progress.damages.keys():
                _log.error("damage.found_by_scrub", **damages[path].to_json())
            for path in progress.damages.keys() - damages.keys():
                _log.info("damage.repaired", dataflow=name, path=path)
            progress.damages, progress.ended_at = dict(damages), now
            self._remember(name, progress)

    def _note(self, name: str) -> str:
        return f"{self.tables_root}/{_FOLDER}/{name}.json"

    def _remember(self, name: str, progress: Progress) -> None:
        value = {
            "damages": [damage.to_json() for damage in progress.damages.values()],
            "ended_at": progress.ended_at and progress.ended_at.isoformat(),
        }
        path = self._note(name)
        try:
            data = digested(json.dumps(value).encode(), path)
            self.files.write_durable(path, data, what="clean_up")
        except CbpError as error:
            _log.warning("scrub.result_not_stored", dataflow=name, error=error.as_dict())

    def _remembered(self, name: str) -> Progress:
        try:
            return read_record(self.files, self._note(name), _progress_of)
        except (NotFoundError, FileDamagedError):
            return Progress()


class DamageTrouble(Trouble):
    """Damaged files of a dataflow; `tries` is their number."""

    @property
    def words(self) -> str:
        """The trouble in words, for an operator."""
        files = format_count(self.tries, "file is", "files are")
        return f"{files} damaged (see `cbp scrub {self.dataflow}`): {self.error.message}"


def _progress_of(value: Mapping[str, Any]) -> Progress:
    damages = (Damage(**damage) for damage in value["damages"])
    ended_at = value.get("ended_at")  # notes of earlier versions lack it
    return Progress(
        ended_at=datetime.fromisoformat(ended_at) if ended_at else None,
        damages={damage.path: damage for damage in damages},
    )


@dataclass(frozen=True, slots=True)
class Scrub:
    """The progress or the result of a scrub.

    Attributes:
        status: `never`: no complete reading was ever noted for this dataflow.
        began_at, ended_at: Aware, in UTC; `ended_at` is the end of the last complete reading.
        files_total, bytes_total: Files and bytes when it began; 0 if unknown.
    """

    dataflow: str
    status: Status
    by: Literal["request", "idle work"]
    began_at: datetime | None = None
    ended_at: datetime | None = None
    files: int = 0
    bytes: int = 0
    files_total: int = 0
    bytes_total: int = 0
    damages: tuple[Damage, ...] = ()
    error: CbpError | None = None
    seconds: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether it is no longer running."""
        return self.status != "running"


@dataclass(kw_only=True, eq=False)
class Scrubs:
    """Starts scrubs and reports their progress; safe to use from several threads."""

    store: Store
    scrubbing: Scrubbing
    clock: Callable[[], datetime]
    executor: Executor

    def __post_init__(self) -> None:
        self._asked: JobTable[Scrub] = JobTable(most=None)

    def note(self, error: FileDamagedError) -> None:
        """Add damage that a read has found to the findings; a failure is logged."""
        try:
            self.scrubbing.note(error)
        except CbpError as failure:
            _log.warning("damage.not_stored", error=failure.as_dict())

    def forget(self, name: str) -> None:
        """Forget a dataflow whose folder was removed."""
        self._asked.forget(name)

    def start(self, name: str) -> Scrub:
        """Start to read a dataflow's folder; returns at once. Raises `NotFoundError`."""
        record = self.store.dataflow(name)
        scrub = Scrub(name, "running", "request", self.clock())
        known = self._asked.begin(name, scrub)
        if known is not scrub:
            return known
        try:
            self.executor.submit(self._read, record)
        except RuntimeError:  # no thread can be started, or the service stops
            self._asked.forget(name)
            raise
        return scrub

    def show(self, name: str) -> Scrub:
        """Return the last requested scrub, or the last background round if that is newer."""
        self.store.dataflow(name)
        return self.last(name)

    def last(self, name: str) -> Scrub:
        """Like `show`, for a dataflow that is known to exist."""
        progress = self.scrubbing.progress(name)
        asked = self._asked.get(name)
        damages = tuple(sorted(progress.damages.values(), key=lambda damage: damage.path))
        if asked is not None and (
            not asked.ended
            or asked.status == "failed"
            or progress.ended_at is None
            or asked.ended_at == progress.ended_at
        ):
            # A read may have found damage since that scrub.
            judged: Status = "damaged" if damages and asked.status == "whole" else asked.status
            ended_at = asked.ended_at or progress.ended_at
            return replace(asked, status=judged, damages=damages, ended_at=ended_at)
        status: Status = "damaged" if damages else "whole"
        if progress.ended_at is None and not damages:
            status = "never"
        figures = (progress.began_at, progress.ended_at, progress.files, progress.bytes)
        return Scrub(name, status, "idle work", *figures, damages=damages)

    def _read(self, record: DataflowRecord) -> None:
        name, damages, began = record.name, dict[str, Damage](), self.clock()
        files = bytes_ = 0
        try:
            files_total, bytes_total = self.scrubbing.size(record)
            self._asked.show(name, files_total=files_total, bytes_total=bytes_total)
            for looked in self.scrubbing.looks(record):
                if looked.damage is not None:
                    damages[looked.damage.path] = looked.damage
                files, bytes_ = files + 1, bytes_ + looked.bytes
                self._asked.show(name, files=files, bytes=bytes_)
            self.scrubbing.take(record, damages, now := self.clock(), since=began)
        except CbpError as error:
            _log.warning("scrub.failed", dataflow=name, error=error.as_dict())
            self._asked.show(name, status="failed", error=error)
        except Exception as unforeseen:
            _log.exception("scrub.failed", dataflow=name)
            cause = f"{type(unforeseen).__name__}: {unforeseen}"
            unexpected = InvariantError(f"the scrub stopped with an unexpected error: {cause}")
            self._asked.show(name, status="failed", error=unexpected)
        else:
            self._asked.show(name, status="damaged" if damages else "whole", ended_at=now)
