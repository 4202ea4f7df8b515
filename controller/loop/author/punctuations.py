"""Punctuations: each is made durable once, between two increments of a flow.

    (1) its place is decided         at = index of the flow's next increment
    (2) log entry put                <dataflow>/_punctuations/<number>.json: the truth
    (3) store: row, and a place at every framed input of the flow

Nothing is framed between these steps (`lock`), so no later frame can contain records from both
sides of the punctuation.
After a crash `recover` does step (3) before anything is framed. If the store fails at step (3)
and the service lives on, nothing of the dataflow is framed until `catch_up` has done the step.
The same holds in a new process or term whose recovery failed.

Guaranteed: a second request with the same key makes no second punctuation, also after a restart
(tests/controller/loop/author/test_punctuations.py). If the store is lost, the keys of punctuations
before the newest position are forgotten.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

import structlog

from cbp.engine.storage.checked_json import digested, parsed, read_record, record_numbers
from cbp.engine.storage.files import Exists, Files
from cbp.errors import FlowUnframedError, LogConflictError, NotFoundError
from cbp.model.flow.punctuation import Punctuation, Reason
from controller.loop.leadership.terms import Terms
from controller.loop.records.compiled_dataflows import Catalog
from controller.store.base import DataflowRecord, Store

_log = structlog.get_logger(__name__)


class PunctuationLog:
    """Reads and puts the entries in `<folder>/_punctuations`."""

    def __init__(self, folder: str, files: Files) -> None:
        self._folder, self._files = f"{folder}/_punctuations", files

    def put(self, punctuation: Punctuation, *, staged: str = "") -> None:
        """Make a punctuation durable; idempotent; raises `LogConflictError`."""
        path = self._path(punctuation.number)
        self._files.make_dirs(self._folder)
        data = digested(json.dumps(punctuation.to_json(), separators=(",", ":")).encode(), path)
        result = self._files.put_if_absent(path, data, what="punctuation", staged=staged)
        if isinstance(result, Exists) and (
            parsed(result.data, path, Punctuation.from_json) != punctuation
        ):
            raise LogConflictError(path)

    def since(self, number: int) -> Iterator[Punctuation]:
        """Yield the punctuations from `number` on, in order, up to the first missing number."""
        while self._files.exists(path := self._path(number)):
            yield read_record(self._files, path, Punctuation.from_json)
            number += 1

    def before(self, number: int) -> Iterator[Punctuation]:
        """Yield the punctuations before `number`, newest first, down to the first missing one."""
        while self._files.exists(path := self._path(number - 1)):
            number -= 1
            yield read_record(self._files, path, Punctuation.from_json)

    def trim(self, number: int) -> None:
        """Remove the entries before `number`; a durable position replaces them."""
        for entry_number in record_numbers(self._files.list_names(self._folder)):
            if entry_number < number:
                self._files.remove(self._path(entry_number), what="dead_record")

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:020d}.json"


@dataclass(kw_only=True, eq=False)
class Punctuations:
    """Makes punctuations in the leader's term; safe to use from several threads."""

    store: Store
    files: Files
    terms: Terms
    clock: Callable[[], datetime]
    catalog: Catalog

    def __post_init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        # Dataflows whose log is completely in the store; empty in a new term.
        self._current: set[str] = set()

    def lock(self, dataflow: str) -> threading.RLock:
        """Return the lock that guards making punctuations and recording frames."""
        with self._guard:
            return self._locks[dataflow]

    def log(self, folder: str) -> PunctuationLog:
        """Return the log of a dataflow's folder."""
        return PunctuationLog(folder, self.files)

    def close(
        self, record: DataflowRecord, flow: str, *, key: str, reason: Reason, input_: str = ""
    ) -> Punctuation:
        """Close the open frames of a flow, as `Controller.close` says; durable once this returns.

        Args:
            input_: `stage.input`, the only input that is closed; `""` means all.
        """
        self.require_framed(record, flow)
        with self.lock(record.name):
            self.catch_up(record)
            recorded = self.store.punctuation(record.name, key)
            if recorded is not None:
                return recorded
            made = Punctuation(
                number=self.store.next_punctuation(record.name),
                flow=flow,
                at=self.store.next_index(record.name, flow),
                reason=reason,
                key=key,
                closed_ms=int(self.clock().timestamp() * 1000),
                input=input_,
            )
            self._current.discard(record.name)
            self.log(record.folder).put(made, staged=self.terms.folder)
            self.store.punctuate(record.name, made)
            self._current.add(record.name)
        _log.info("flow.closed", dataflow=record.name, flow=flow, at=made.at, reason=reason)
        return made

    def catch_up(self, record: DataflowRecord) -> None:
        """Bring the store up to date with the log, if needed; the caller holds the lock."""
        if record.name not in self._current:
            self.recover(record)

    def recover(self, record: DataflowRecord) -> None:
        """Bring the store up to date with the log; idempotent."""
        with self.lock(record.name):
            self._current.discard(record.name)
            number = self.store.next_punctuation(record.name)
            for punctuation in self.log(record.folder).since(number):
                self.store.punctuate(record.name, punctuation)
            self._current.add(record.name)

    def forget(self, dataflow: str) -> None:
        """Forget a dataflow that was deleted, or that another instance has led since."""
        with self._guard:
            self._current.discard(dataflow)

    def inputs(self, record: DataflowRecord, flow: str) -> list[str]:
        """Return the framed inputs that read a flow, as `stage.input`; raises `NotFoundError`."""
        dataflow = self.catalog.compiled(record)
        if flow not in dataflow.flows():
            raise NotFoundError(kind="flow", name=f"{record.name}/{flow}")
        return [
            f"{stage}.{input_}"
            for stage, input_ in dataflow.consumers(flow)
            if dataflow.stages[stage].translator.input(input_).frame_by is not None
        ]

    def require_framed(self, record: DataflowRecord, flow: str) -> None:
        """Raise `FlowUnframedError` if no input frames a flow, `NotFoundError` without a flow."""
        if not self.inputs(record, flow):
            flows = self.catalog.compiled(record).flows()
            raise FlowUnframedError(flow, [f for f in flows if self.inputs(record, f)])
