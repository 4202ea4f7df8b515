"""One random dataflow, played against the service and the reference engine side by side.

The service is the product's own, without its threads: it is stepped by hand, so a play is a
function of its seed. What it is asked goes over REST or is in its drop folder. The model
knows the rules: which file counts, which code runs, and who is refused.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from cbp.engine.reference.engine import ReferenceEngine
from controller.app import Service, api_of
from controller.registry import Registry
from controller.settings import load_settings
from tests.authored import forget, install, write
from tests.controller.api.app_transport import AppTransport
from tests.controller.world import until
from tests.service.authored import Package, document, needs, states

__all__ = ["Play", "play"]

STEPS = 14
_ADDING = 0.7
"""So many sources take in other content under a known name."""

WAIT_SECONDS = 120.0
READY = "/api/v1/health/ready"
_TOKEN = "canary-of-the-plays"
_NAMES = ("monday.jsonl", "tuesday.jsonl", "wednesday.jsonl")


@dataclass
class Play:
    """A service, its model, and what happened."""

    root: Path
    seed: int
    engine: str = "local"
    trace: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.package = Package(f"played{self.seed}")
        self.document = document("d", self.package.name, self.draw)
        self.sources = sorted(self.document["sources"])
        for name in self.sources:
            adds = self.draw.random() < _ADDING
            self.document["sources"][name]["same_name"] = "add" if adds else "quarantine"
        self.packages = self.root / "packages"
        self._write()
        self._came: dict[str, set[tuple[str, str]]] = {name: set() for name in self.sources}
        self._keys: dict[tuple[str, str], tuple[str, str]] = {}
        self._contents = [self._content() for _ in range(4)] + [""]
        self._waiting: list[tuple[str, list[dict[str, Any]]]] = []
        self._edited = self._drifted = False
        self.version = 1
        self._start()
        answer = self._post("/dataflows", self.document)
        assert answer.status_code == 201, answer.text
        self.reference = ReferenceEngine(self.service.controller.dataflow("d"))

    # what happens

    def run(self) -> None:
        """Play all steps; end with what waits registered, compared and verified."""
        steps: list[tuple[Callable[[], None], int]] = [
            (self.drop, 5),
            (self.upload, 4),
            (self.upload_with_key, 2),
            (self.restart, 2),
            (self.edit, 2),
            (self.register, 2),
            (self.compare, 1),
        ]
        calls, weights = zip(*steps, strict=True)
        for call in self.draw.choices(calls, weights, k=STEPS):
            self.trace.append(call.__name__)
            self.counts[call.__name__] = self.counts.get(call.__name__, 0) + 1
            call()
        self.restart()
        self.register()
        self.compare()
        self.verify()

    def drop(self) -> None:
        """Let a file land: often one that came, by name, by content, or by both."""
        source, name, content = self._chosen()
        incoming = self.service.settings.drop_root / "d" / source / "incoming"
        part = incoming / f"{name}.part"
        part.write_text(content)
        part.rename(incoming / name)
        self._arrives(source, name, content)

    def upload(self) -> None:
        """Send a file; the answer says at once whether it came before."""
        source, name, content = self._chosen()
        answer = self._upload(source, name, content)
        assert answer.json()["status"] == self._becomes(source, name, content), answer.text
        self._arrives(source, name, content)

    def upload_with_key(self) -> None:
        """Send a file twice under one key; another file under that key is refused."""
        source, name, content = self._chosen()
        key = f"key{self.draw.randrange(4)}"
        first = self._keys.setdefault((source, key), (name, content))
        answer = self._upload(source, name, content, key)
        if first != (name, content):
            assert answer.status_code == 422, answer.text
            return
        self._arrives(source, name, content)
        again = self._upload(source, name, content, key)
        assert again.json()["id"] == answer.json()["id"]
        self._step()

    def restart(self) -> None:
        """End the service and start it anew: it loads what is on disk."""
        self.service.stop()
        self._drifted = self._drifted or self._edited
        self._edited = False
        self._start()
        self._step()
        if self._drifted:
            self._require_stopped()
        elif self._waiting:
            self._catch_up()

    def edit(self) -> None:
        """Change the code on disk, under the service that has loaded it."""
        what = self.package.edit(self.draw)
        self.trace[-1] += f"({what})"
        self._write()
        # Also of a comment: registering is refused until a restart has read the file.
        self._require_not_loaded()
        drifts = needs(self.document["stages"], what)
        self._edited = self._edited or drifts
        # New workers of Spark would load the new file, and refuse the run (`code_not_loaded`).
        if not drifts or self.engine == "spark":
            self.restart()

    def register(self) -> None:
        """Register the same document again; behind a restart, this takes the new code."""
        if self._edited:
            self._require_not_loaded()
            self.restart()
        kept = sorted(self.document["stages"])
        answer = self._put(keep=kept if self._drifted else [])
        assert answer.status_code == 200, answer.text
        self._drifted_is_over() if self._drifted else None
        assert answer.json()["version"] == self.version, answer.text
        self._catch_up()

    def compare(self) -> None:
        """Compare all records of all tables, record by record, with the reference engine."""
        if self._drifted or self._waiting:
            return
        self.reference.run_until_idle()
        for stage in self.document["stages"]:
            flow = f"{stage}.o"
            epochs = enumerate(self.reference.outputs(flow))
            expected = [{**row, "_epoch": epoch} for epoch, rows in epochs for row in rows]
            actual, _ = self.service.controller.reading.read_flow("d", flow, None, 100_000)
            self._same(flow, actual, expected)
        record = self.service.store.dataflow("d")
        for stage, state in states(self.document["stages"]):
            node = self.service.controller.dataflow("d").stages[stage]
            rows = self.service._engine.records.read_state(record.folder, node, state)
            expected = self.reference.state(stage, state)
            self._same(f"{stage}.{state}", rows, expected)

    def verify(self) -> None:
        """Let the service recompute itself; nothing differs, and of one version all is equal."""
        started = self._post("/dataflows/d/verifications", {"split": "increments"})
        assert started.status_code == 202, started.text
        address = f"/verifications/{started.json()['id']}"
        shown: dict[str, Any] = {}

        def ended() -> bool:
            shown.update(self.client.get(f"/api/v1{address}").json())
            return bool(shown["ended"])

        until(ended)
        wrong = {"differs"} if self.version > 1 else {"differs", "undecided", "left_out", "open"}
        bad = [table for table in shown["tables"] if table["status"] in wrong]
        assert not bad, (bad, self.trace)

    def close(self) -> None:
        """End the service; let the package be forgotten."""
        with suppress(Exception):
            self.service.stop()
        forget(self.package.name)
        sys.path[:] = [path for path in sys.path if path != str(self.packages)]

    # the service

    def _start(self) -> None:
        forget(self.package.name)
        settings = load_settings(
            root=self.root,
            engine=self.engine,
            reader_processes=False,
            worker_processes=False,
            token=_TOKEN,
            settle_seconds=0,
            allowed_packages=(self.package.name,),
            spark_conf={"spark.executorEnv.PYTHONPATH": str(self.packages)},
        )
        self.service = Service(settings)
        self.service.lead()
        app = api_of(self.service)
        self.client = httpx.Client(
            transport=AppTransport(app),
            base_url=settings.url,
            headers={"Authorization": f"Bearer {_TOKEN}"},
        )
        # Spark starts in the background; the next service of this process would get its session.
        until(lambda: self.client.get(READY).is_success)

    def _step(self) -> None:
        """Take in what is there, and run until nothing can."""
        for _ in range(3):
            self.service.scan()
        while True:
            started = self.service.controller.tick().starts
            assert self.service.parts.in_flight.wait(timeout=WAIT_SECONDS)
            if not started:
                return

    def _write(self) -> None:
        if str(self.packages) not in sys.path:
            sys.path.insert(0, str(self.packages))
        write(self.packages, self.package.files)
        install(self.packages, self.package.name, self.package.points)

    def _post(self, path: str, body: Any) -> httpx.Response:
        return self.client.post(f"/api/v1{path}", json=body)

    def _put(self, **query: Any) -> httpx.Response:
        return self.client.put("/api/v1/dataflows/d", json=self.document, params=query)

    def _upload(self, source: str, name: str, content: str, key: str = "") -> httpx.Response:
        return self.client.post(
            f"/api/v1/dataflows/d/sources/{source}/files",
            params={"name": name},
            content=content.encode(),
            headers={"Idempotency-Key": key} if key else {},
        )

    # the model

    def _arrives(self, source: str, name: str, content: str) -> None:
        """Let a file count once by name and content, also where the code waits for a word."""
        self._step()
        if self._becomes(source, name, content) != "claimed":
            return
        self._came[source].add((name, content))
        self._waiting.append((source, [json.loads(line) for line in content.splitlines()]))
        if self._drifted:
            self._require_stopped()
        else:
            self._catch_up()

    def _becomes(self, source: str, name: str, content: str) -> str:
        """Return what an upload is answered: new, a retry, or another version of a known file."""
        came = self._came[source]
        if (name, content) in came:
            return "duplicate"
        adds = self.document["sources"][source]["same_name"] == "add"
        return "claimed" if adds or all(one != name for one, _ in came) else "quarantined"

    def _catch_up(self) -> None:
        """Give the reference what the service has read, with the code that the service runs."""
        self._step()
        for source, records in self._waiting:
            self.reference.feed(source, records)
            self.reference.run_until_idle()
        self._waiting = []

    def _same(self, table: str, found: Iterable[Any], expected: Iterable[Any]) -> None:
        there, model = _counted(found), _counted(expected)
        assert there == model, f"{table}: not there {model - there}, too many {there - model}"

    def _drifted_is_over(self) -> None:
        self._drifted = False
        self.version += 1
        compiled = Registry([self.package.name]).compile(self.document)
        for name, stage in compiled.stages.items():
            self.reference._stages[name].spec = stage.translator

    def _require_stopped(self) -> None:
        """All stages say why they do not run, and nothing is verified by other code."""
        answer = self.client.get("/api/v1/dataflows/d").json()
        assert answer["summary"]["state"] == "stopped", answer
        assert "Register the document again" in answer["summary"]["problem"], answer
        assert self.client.get(READY).json()["degraded"] == {"d": "stopped"}
        refused = self._post("/dataflows/d/verifications", {})
        assert refused.json()["error_code"] == "code_drifted", refused.text

    def _require_not_loaded(self) -> None:
        """One judge: validation and registration give the same answer."""
        for answer in (self._post("/dataflows/validate", self.document), self._put()):
            assert answer.status_code == 422, answer.text
            assert "code_not_loaded" in answer.text
            assert "restart the service" in answer.text

    def _content(self) -> str:
        rows = [
            {"k": self.draw.randrange(6), "v": self.draw.choice("abc") * self.draw.randint(0, 2)}
            for _ in range(self.draw.randint(1, 6))
        ]
        return "".join(json.dumps(row) + "\n" for row in rows)

    def _chosen(self) -> tuple[str, str, str]:
        draw = self.draw
        chosen = draw.choice(self.sources), draw.choice(_NAMES), draw.choice(self._contents)
        self.trace[-1] += f"({chosen[0]}, {chosen[1]}, {len(chosen[2])} bytes)"
        return chosen


def _counted(rows: Iterable[Any]) -> Counter[str]:
    return Counter(json.dumps(dict(row), sort_keys=True, default=str) for row in rows)


def play(root: Path, seed: int, *, engine: str = "local") -> Play:
    """Play a seed to its end; raises AssertionError with the trace where something is wrong."""
    actual = Play(root, seed, engine)
    try:
        actual.run()
    except BaseException as error:
        error.add_note(f"seed {seed}: {actual.document}\n{' '.join(actual.trace)}")
        raise
    finally:
        actual.close()
    return actual
