"""What the simulations of one process share, and how the process is made fit for them."""

from __future__ import annotations

import functools
import inspect
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from sqlalchemy import Connection, literal

from cbp.engine.storage import parquet_writer as sink
from cbp.model.dataflow.dataflow import Dataflow
from controller.loop.recovery import past_position as past
from controller.loop.runs import in_flight as underway
from controller.registry import Registry
from controller.store.base import Store, open_store
from controller.store.methods import leases
from tests.simulation.disk import Disk
from tests.simulation.executors import Serial, wait_for
from tests.simulation.stages import TRANSLATORS


class Documents(Registry):
    """Compiles a document once: processes come and go, what is installed stays."""

    def __init__(self) -> None:
        super().__init__(["cbp"], entry_points=_entry_points)
        self._compiled: dict[str, Dataflow] = {}

    def compile(self, document: Any, duplicates: Iterable[str] = ()) -> Dataflow:
        """See `Registry.compile`."""
        key = json.dumps(document)
        if key not in self._compiled:
            self._compiled[key] = super().compile(document, duplicates)
        return self._compiled[key]

    def compile_registered(
        self, document: Any, fits: Callable[[Dataflow], bool] = lambda _: True
    ) -> Dataflow:
        """See `Registry.compile_registered`."""
        return self.compile(document)


class Bench:
    """What the simulations of one process share: a folder, and one open SQLite file.

    The file's content is replaced from simulation to simulation; compiled statements
    and the connection's set-up are kept, which is most of what opening a store costs.

    Attributes:
        stores: Two on one file: of the instance that leads, and of one that led before.
        seconds: The clock by which leases end; it never goes back.
        on_statement: Told the end of every statement of a transaction that writes.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.rmtree(root, ignore_errors=True)
        (root / "db").mkdir(parents=True)
        self._file, self._template = root / "db" / "cbp.db", root / "empty.db"
        url, self.seconds = f"sqlite:///{self._file}", 0.0
        self.stores: list[Store] = [open_store(url, exclusive=False) for _ in range(2)]
        self.on_statement: Callable[[], None] = lambda: None
        self._scratch = open_store(f"sqlite:///{root}/db/scratch.db", exclusive=False)
        bench, execute = self, Connection.execute

        def _execute(connection: Connection, *args: Any, **more: Any) -> Any:
            actual = execute(connection, *args, **more)
            if connection.get_execution_options().get("cbp_writes"):
                try:
                    bench.on_statement()
                except BaseException:
                    actual.close()  # a process that ends leaves no cursor open
                    raise
            return actual

        self._execute = _execute
        self.disconnect()
        shutil.copy(self._file, self._template)
        self.registry = Documents()

    @contextmanager
    def patched(self, disk: Disk | None) -> Iterator[None]:
        """Make the process fit for simulations: no threads, no syncs, early clean-up.

        What is for large increments only is done for small ones too.
        """
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", disk.fsync if disk else lambda handle: None)
            patch.setattr(sink, "_threads", Serial)
            patch.setattr(Connection, "execute", self._execute)
            patch.setattr(past, "open_scratch", self._open_scratch)
            patch.setattr(underway, "wait", wait_for)
            patch.setattr(inspect, "getsourcelines", _source_lines)
            patch.setattr(leases, "_now_ms", lambda _: literal(int(self.seconds * 1000)))
            structlog.configure(
                processors=[_drop], wrapper_class=structlog.make_filtering_bound_logger(50)
            )
            try:
                yield
            finally:
                structlog.reset_defaults()

    def disconnect(self) -> None:
        """Do to SQLite what the end of the process does."""
        for store in self.stores:
            store._database._engine.dispose()
            store._database.kept._disconnect()

    def clear(self) -> Path:
        """Return the folder of the next simulation's disk, empty."""
        self.registry = Documents()
        for name in ("disk", "cache", "shadow", "foreign"):
            shutil.rmtree(self.root / name, ignore_errors=True)
            (self.root / name).mkdir()
        return self.root / "disk"

    def empty(self) -> None:
        """Give the store an empty database."""
        self.disconnect()
        self._empty(self._file)

    def _empty(self, file: Path) -> None:
        for suffix in ("-wal", "-shm"):
            Path(f"{file}{suffix}").unlink(missing_ok=True)
        shutil.copy(self._template, file)

    def _open_scratch(self, url: str) -> Store:
        """Stand in for `open_scratch` where a roll-back redoes records."""
        self._scratch.close()
        self._empty(self.root / "db" / "scratch.db")
        return self._scratch

    def close(self) -> None:
        for store in (*self.stores, self._scratch):
            store.close()
        shutil.rmtree(self.root, ignore_errors=True)


@dataclass(slots=True)
class Clock:
    """The clock of one instance.

    Attributes:
        stands_at: Where it stands still, if it does.
    """

    bench: Bench
    stands_at: float | None = None

    def __call__(self) -> float:
        return self.bench.seconds if self.stands_at is None else self.stands_at


# Where a translator stands is asked at every registration, and answered by parsing its module.
_source_lines = functools.cache(inspect.getsourcelines)


def _entry_points() -> list[Any]:
    cbp = SimpleNamespace(name="cbp")
    return [
        SimpleNamespace(name=n, value=f"tests:{n}", dist=cbp, load=lambda c=c: c)
        for n, c in TRANSLATORS.items()
    ]


def _drop(logger: Any, method: str, event: Any) -> Any:
    raise structlog.DropEvent
