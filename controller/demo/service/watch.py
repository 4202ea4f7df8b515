"""The demo's client: registers the dataflow, drops files, waits until all is applied.

All requests go over REST with the token, except the drop itself, which is a file.

Guaranteed: `drop` returns only after every stage consumed every increment so far.
These are errors that carry the service's own reason: a stage that stopped, a file in quarantine,
and a dataflow that makes no progress.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from controller.client.drop_folder import copy_into
from controller.client.service_client import ServiceClient
from controller.demo.errors import DemoStalledError
from controller.settings import Settings

__all__ = ["Applied", "DataflowWatch", "Progress", "Run"]

POLL_SECONDS = 0.2
STALLED_SECONDS = 120.0
RUNS_MAX = 500


@dataclass(frozen=True, slots=True)
class Run:
    """One committed run.

    Attributes:
        stages: All stages that ran together, the leader first.
        figures: Counts and bytes, see `cbp.engine.interface.runs.PreparedRun`.
    """

    stages: tuple[str, ...]
    epoch: int
    seconds: float
    finished_at: datetime
    figures: Mapping[str, float]

    @property
    def stage(self) -> str:
        """The stage that leads."""
        return self.stages[0]

    def count(self, name: str) -> int:
        """Return one of the figures as a whole number; 0 if it is missing."""
        return int(self.figures.get(name, 0))

    def count_of(self, stage: str, name: str) -> int:
        """Return one of a stage's own figures; if the stage ran alone, the run's."""
        return self.count(name if len(self.stages) == 1 else f"{stage}/{name}")


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of the dataflow.

    Attributes:
        accepted: Number of increments of the source.
        epochs: Stage to epochs done.
        queued: Number of increments that wait anywhere.
        note: Anything unusual, in words.
    """

    accepted: int
    epochs: Mapping[str, int]
    queued: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    """One increment from its arrival to the last run that it caused.

    Attributes:
        seconds: From the file's arrival in the folder to the last commit.
    """

    seconds: float
    runs: tuple[Run, ...]


class DataflowWatch:
    """One dataflow with one source, over REST.

    Args:
        alive: Raises when the service has ended.
        wait: Sleeps for some seconds.
        stalled_seconds: Without any progress for so long, the dataflow counts as stalled.
    """

    def __init__(
        self,
        client: ServiceClient,
        settings: Settings,
        document: Mapping[str, Any],
        *,
        alive: Callable[[], None],
        wait: Callable[[float], None] = time.sleep,
        stalled_seconds: float = STALLED_SECONDS,
    ) -> None:
        (self.source,) = document["sources"]
        self.name, self.stages = str(document["name"]), tuple(document["stages"])
        self._client, self._alive, self._wait = client, alive, wait
        self._stalled_seconds = stalled_seconds
        self._document = document
        self._incoming = settings.drop_root / self.name / self.source / "incoming"
        self._dropped = 0

    def register(self) -> tuple[str, list[str]]:
        """Register the dataflow; return the tables' folder and the stages that run together."""
        content = json.dumps(self._document).encode()
        answer = self._client.post("dataflows", content=content, content_type="application/json")
        units: dict[str, list[str]] = {}
        for stage in answer["stages"]:
            units.setdefault(stage["runs_with"], []).append(stage["name"])
        order = [name for name in self.stages if name in units]
        return str(answer["folder"]), [" + ".join(units[name]) for name in order]

    def drop(self, file: Path, on_progress: Callable[[Progress], None]) -> Applied:
        """Drop a file as the next increment; return once every stage has applied it.

        Raises:
            DemoStalledError: See the module header.
            ServiceFailedError: The service ended.
        """
        copy_into(self._incoming, file)
        arrived = datetime.now(UTC)
        self._dropped += 1
        self._wait_until_applied(on_progress)
        runs = tuple(run for run in self.runs() if run.epoch == self._dropped - 1)
        last = max((run.finished_at for run in runs), default=arrived)
        return Applied((last - arrived).total_seconds(), runs)

    def runs(self) -> list[Run]:
        """Return the newest `RUNS_MAX` committed runs, by epoch and then by time of their end."""
        answer = self._client.get("runs", dataflow=self.name, status="COMMITTED", limit=RUNS_MAX)
        runs = [
            Run(
                tuple(item["stages"]),
                item["epoch"],
                item["seconds"],
                datetime.fromisoformat(item["finished_at"]),
                item["figures"],
            )
            for item in answer["items"]
        ]
        return sorted(runs, key=lambda run: (run.epoch, run.finished_at))

    def _wait_until_applied(self, on_progress: Callable[[Progress], None]) -> None:
        seen, since = None, time.monotonic()
        while True:
            progress = self._progress()
            on_progress(progress)
            if progress.accepted >= self._dropped and not progress.queued:
                return
            if progress != seen:
                seen, since = progress, time.monotonic()
            elif time.monotonic() - since > self._stalled_seconds:
                why = f"nothing happened for {self._stalled_seconds:.0f} s; {progress.note}"
                raise DemoStalledError(why, {"epochs": dict(progress.epochs)})
            self._alive()
            self._wait(POLL_SECONDS)

    def _progress(self) -> Progress:
        # Read the source first: the queues, read afterwards, show whatever it has enqueued.
        accepted = self._accepted()
        answer = self._client.get("dataflows", self.name)
        for stage in answer["stages"]:
            if stage["state"] == "stopped":
                self._stopped(stage)
        retries = [s["name"] for s in answer["stages"] if s["state"] == "retrying"]
        return Progress(
            accepted,
            {stage["name"]: stage["epoch"] for stage in answer["stages"]},
            sum(q["increments"] for stage in answer["stages"] for q in stage["queues"]),
            f"tries again: {', '.join(retries)}" if retries else "",
        )

    def _accepted(self) -> int:
        answer = self._client.get("dataflows", self.name, "increments", flow=self.source, limit=1)
        accepted = answer["items"][0]["index"] + 1 if answer["items"] else 0
        if accepted < self._dropped:
            self._check_quarantine()
        return int(accepted)

    def _check_quarantine(self) -> None:
        answer = self._client.get("dataflows", self.name, "claims", status="quarantined", limit=1)
        for claim in answer["items"]:
            refused = f"{claim['path']} is in quarantine: {claim['reason']['message']}"
            raise DemoStalledError(refused, dict(claim["reason"]))

    def _stopped(self, stage: Mapping[str, Any]) -> None:
        answer = self._client.get("runs", dataflow=self.name, status="FAILED", limit=1)
        error = answer["items"][0]["error"] if answer["items"] else {}
        why = f"stage {stage['name']} stopped, {stage['waiting']}: {error.get('message', '')}"
        raise DemoStalledError(why, dict(error.get("details", {})))
