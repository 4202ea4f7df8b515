"""The measured service: a process of its own, with a dataflow and a state, reached as users do.

The dataflow is URL count over JSON lines, with default settings. The state is written as files
before the first increment; no run has made it. For a backlog there is a second dataflow: two stages
count one source, whose waiting files become one increment, and a third stage counts another source.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cbp.client.errors import ServiceProblemError
from cbp.model.dataflow.dataflow import StageNode
from controller.client.service_client import ServiceClient
from controller.server.service_process import ServiceProcess, free_port, settings_of
from controller.settings import Settings
from tests.bench.candidates.ours.initial_state import load_counts
from tests.bench.end_to_end.options import ServiceBenchOptions
from tests.bench.errors import BenchDisagreesError, BenchFailedError
from tests.bench.workloads.dataflows import compiled
from tests.bench.workloads.workload import UrlCount

__all__ = ["BACKLOG", "BESIDE", "IDLE", "NAME", "Counted", "MeasuredService", "measured_service"]


@dataclass(frozen=True, slots=True)
class Counted:
    """A source with the stages that count its URLs.

    Attributes:
        stages: At least one; each has the state `counts`.
        batch: Whether waiting files become one increment.
        form: Of the stages' translator: groupwise or arrow.
    """

    dataflow: str
    source: str
    stages: tuple[str, ...]
    batch: bool = False
    form: str = "groupwise"

    @property
    def translator(self) -> str:
        """Name of the stages' translator."""
        return "url_count" if self.form == "groupwise" else f"url_count_{self.form}"


IDLE = Counted("bench_service", "urls", ("count",))
BACKLOG = Counted("bench_backlog", "lines", ("count", "again"), batch=True)
BESIDE = Counted("bench_backlog", "beside", ("count_beside",))

NAME = IDLE.dataflow
_STATE = "counts"
_MARK = "http://mark.example.com/"
POLL_SECONDS = 0.01
"""Each question takes the service a millisecond or two, which is part of what is measured."""

_PATIENCE_SECONDS = 300.0
"""So long no file may be applied while files wait."""


def _document(*counted: Counted) -> dict[str, Any]:
    """Return the document of one dataflow."""
    source = {"schema": "url STRING", "format": "jsonl"}
    return {
        "name": counted[0].dataflow,
        "sources": {c.source: source | ({"batch": {}} if c.batch else {}) for c in counted},
        "stages": {
            stage: {"translator": one.translator, "inputs": {"urls": one.source}}
            for one in counted
            for stage in one.stages
        },
    }


class MeasuredService:
    """A running service, and one of its sources with what counts it; used by one thread.

    Args:
        settings: Those of the service.
        client: Talks to it.
        check_alive: Raises if it has ended.
        keys: Keys in the first state.
        seed: Of the drawn keys.
        counted: The source, and the stages that count it.
        process_id: Of the service, which leads its session.
    """

    def __init__(
        self,
        settings: Settings,
        client: ServiceClient,
        check_alive: Callable[[], None],
        *,
        keys: int,
        seed: int,
        counted: Counted = IDLE,
        process_id: int = 0,
    ) -> None:
        self.settings, self.client, self.process_id = settings, client, process_id
        self._check_alive, self._counted_by = check_alive, counted
        self.urls = UrlCount(keys, seed)
        self._written = self._dropped = 0
        self._incoming = settings.drop_root / counted.dataflow / counted.source / "incoming"
        self._staged = settings.root / "staged" / counted.source
        self._staged.mkdir(parents=True, exist_ok=True)

    def of(self, counted: Counted, client: ServiceClient, seed: int) -> MeasuredService:
        """Return another source of the same service, for a thread with a client of its own."""
        return MeasuredService(
            self.settings,
            client,
            self._check_alive,
            keys=self.urls.state_keys,
            seed=seed,
            counted=counted,
            process_id=self.process_id,
        )

    def register(self, *beside: Counted) -> None:
        """Register the dataflow, with other sources of it, and fill the states."""
        document = _document(self._counted_by, *beside)
        answer = self.client.post_json("dataflows", value=document)
        nodes: Mapping[str, StageNode] = compiled(document).stages
        for node in nodes.values():
            load_counts(Path(answer["folder"]), node, self.urls.state_keys, spark=None)

    def write_file(self, lines: int, *, durable: bool = True) -> Path:
        """Write the next file beside the drop folder; return it.

        Its last line is a URL that every file has once: its count is the number of files applied.
        """
        number, self._written = self._written, self._written + 1
        drawn = self.urls.urls(self.urls.ids(number, lines - 1)) if lines > 1 else []
        path = self._staged / f"{number:06d}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f'{{"url": "{url}"}}\n' for url in (*drawn, _MARK))
            file.flush()
            if durable:
                os.fsync(file.fileno())
        return path

    def rename_in(self, path: Path) -> None:
        """Rename a file into the drop folder, as a producer that has finished it."""
        path.rename(self._incoming / path.name)
        self._dropped += 1

    def wait_until_readable(
        self, poll_seconds: float = POLL_SECONDS, given_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Return once a look-up over REST shows the result of all files that were renamed in.

        Returns before that if `given_up` returns true.

        Raises:
            BenchFailedError: If the service ends, refuses a file, or takes minutes.
            BenchDisagreesError: If it counts more than came.
        """
        until, before = time.monotonic() + _PATIENCE_SECONDS, 0
        while (counted := self.counted()) < self._dropped and not given_up():
            self._check_alive()
            if counted > before:
                until, before = time.monotonic() + _PATIENCE_SECONDS, counted
            if time.monotonic() > until:
                why = f"{counted} of {self._dropped} files were applied: {self._refused()}"
                raise BenchFailedError("service", why)
            time.sleep(poll_seconds)
        if counted > self._dropped:
            raise BenchDisagreesError([f"{self._dropped} files came, {counted} were counted"])

    def counted(self) -> int:
        """Return how many files were applied by all stages, as look-ups show it."""
        counts = {self._counted_in(stage) for stage in self._counted_by.stages}
        if max(counts) > self._dropped:
            return max(counts)
        return min(counts)

    def _counted_in(self, stage: str) -> int:
        path = ("dataflows", self._counted_by.dataflow, "state", stage, _STATE)
        try:
            answer = self.client.get(*path, url=_MARK)
        except ServiceProblemError as problem:  # before the first file is applied
            if problem.error_code != "not_found":
                raise
            return 0
        (record,) = answer["items"]
        return int(record["n"])

    def _refused(self) -> str:
        path = ("dataflows", self._counted_by.dataflow, "claims")
        answer = self.client.get(*path, status="quarantined", limit=1)
        return json.dumps(answer["items"])

    def claim_of(self, path: Path) -> Mapping[str, Any]:
        """Return the claim of one of the newest files."""
        claims = self._items("dataflows", self._counted_by.dataflow, "claims", limit=10)
        return next(one for one in claims if Path(one["path"]).name == path.name)

    def increment(self, index: int) -> Mapping[str, Any]:
        """Return an increment of the source."""
        path = ("dataflows", self._counted_by.dataflow, "increments", self._counted_by.source)
        answer: Mapping[str, Any] = self.client.get(*path, str(index))
        return answer

    def run_of(self, index: int) -> Mapping[str, Any]:
        """Return the run that read an increment, one of the newest; waits until it has ended."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < until:
            dataflow = self._counted_by.dataflow
            runs = self._items("runs", dataflow=dataflow, limit=10, status="COMMITTED")
            for run in runs:
                if index in run["read"].get("urls", ()):
                    return run
            time.sleep(POLL_SECONDS)
        raise BenchFailedError("service", f"no run read increment {index}")

    def _items(self, *path: str, **query: Any) -> Sequence[Mapping[str, Any]]:
        items: Sequence[Mapping[str, Any]] = self.client.get(*path, **query)["items"]
        return items

    @property
    def reads(self) -> dict[str, str]:
        """Kind of request to its path and query, for clients that read: `{}` is a key's URL."""
        look_up = f"/api/v1/dataflows/{NAME}/state/{self._counted_by.stages[0]}/{_STATE}"
        return {
            "look-up": f"{look_up}?url={{}}",
            "dataflows": "/api/v1/dataflows",
            "increments": f"/api/v1/dataflows/{NAME}/increments?limit=20",
            "runs": f"/api/v1/runs?dataflow={NAME}&limit=20",
        }


def _wait_for_readers(count: int, log: Path, check_alive: Callable[[], None]) -> None:
    """Return once the service says that so many readers are ready: their start is no reading."""
    while log.read_text(encoding="utf-8", errors="replace").count('"reader.ready"') < count:
        check_alive()
        time.sleep(0.1)


@contextmanager
def measured_service(
    options: ServiceBenchOptions, folder: Path, on_start: Callable[[int], object]
) -> Iterator[MeasuredService]:
    """Start a service in a folder, register its dataflow, and stop the service in the end.

    A service that was not measured to the end is killed: nobody needs what it has.

    Args:
        options: What is measured.
        folder: A working folder.
        on_start: Called with the id of its process, which leads a session.

    Raises:
        ServiceFailedError: If the service does not come up.
    """
    root = folder / "service"
    root.mkdir(parents=True)
    settings = settings_of(
        root,
        port=free_port(),
        engine=options.engine,
        readers=options.readers,
        settle_seconds=Settings.model_fields["settle_seconds"].default,
    )
    process = ServiceProcess(settings, log=folder / "service.log")
    try:
        on_start(process.pid)
        process.wait_until_ready()
        _wait_for_readers(options.readers or 0, folder / "service.log", process.check_alive)
        with ServiceClient(settings) as client:
            service = MeasuredService(
                settings,
                client,
                process.check_alive,
                keys=options.state_keys,
                seed=options.seed,
                process_id=process.pid,
            )
            service.register()
            yield service
    except BaseException:
        with suppress(ProcessLookupError):  # it has ended by itself
            process.kill()
        raise
    process.stop()
