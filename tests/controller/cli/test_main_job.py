"""The main job by command, over the real parts: store, loop, drop folder, local engine.

Only what has a clock of its own is absent: the loop is ticked and the folder scanned
by hand. Commands go through the command line, the client and the API.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
import yaml

from cbp import Input, Output, State, Translate
from cbp.clock import MACHINE
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.files import files_for
from cbp.model.schedule.parallel_runs import Places
from controller.access.access import Access
from controller.api import create_api
from controller.cli.session import Session
from controller.ingest.drop_folder import DropFolder
from controller.loop import Controller, Environment, Parts, RetryPolicy
from controller.settings import Settings
from controller.store.base import open_store
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.api.clicks import registry
from tests.controller.cli.conftest import Cbp
from tests.controller.rest import lead_alone

DOCUMENT: dict[str, Any] = {
    "name": "clicks",
    "sources": {"urls": {"schema": "url STRING"}},
    "stages": {"count": {"translator": "url_count", "inputs": {"urls": "urls"}, "buckets": 2}},
}


class CountUrls(Translate):
    """Count how often each URL was seen."""

    urls = Input("url STRING", route_by="url")
    counts = State("url STRING, n BIGINT", grouping="inner")
    totals = Output("url STRING, n BIGINT", key="url")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Add what came to what was."""
        n = sum(1 for _ in group.urls) + sum(row.n for row in group.counts)
        out.counts(url=key.url, n=n)
        out.totals(url=key.url, n=n)


class _Inline(Executor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class World:
    """A whole service in this process, stepped by hand."""

    def __init__(self, root: Path) -> None:
        self.settings = Settings(root=root, token=TOKEN, settle_seconds=0)
        self.settings.root.mkdir()
        self.store = open_store(self.settings.database_url)
        files = files_for(self.settings.tables)
        self.engine = LocalEngine(cache=str(self.settings.cache))
        self.drop_folder = DropFolder(
            store=self.store,
            files=files,
            clock=MACHINE.now,
            drop_root=self.settings.drop_root,
            on_accept=lambda: self.controller.wake(),
            settle_seconds=0,
        )
        parts = Parts(
            Environment(
                store=self.store,
                engine=self.engine,
                registry=registry(CountUrls),
                files=files,
                clock=MACHINE.now,
                tables_root=self.settings.tables,
                places=Places(2),
                retry=RetryPolicy(3, (0.0,)),
                executor=_Inline(),
                arrivals=self.drop_folder,
            )
        )
        self.controller = Controller(parts)
        self.app = create_api(
            controller=self.controller,
            store=self.store,
            drop_folder=self.drop_folder,
            settings=self.settings,
            access=Access(self.settings, self.store),
            standing=lead_alone,
        )
        self.session = Session(self.settings, AppTransport(self.app))

    def take_in(self) -> None:
        """Take in what was dropped."""
        for record in self.store.dataflows():
            for _ in range(2):  # a file is taken once two listings saw it alike
                self.drop_folder.scan(record, self.controller.dataflow(record.name))

    def step(self) -> None:
        """Take in what was dropped and run what may run, until nothing is left to do."""
        self.take_in()
        while self.controller.tick().starts:
            pass


def rest(world: World, path: str) -> list[Any]:
    """Return the items of a listing."""
    with world.session.connect() as service:
        return list(service.get(*path.strip("/").split("/"))["items"])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "world")
    yield world
    world.engine.close()
    world.store.close()


def test_the_status_says_whether_all_is_applied(cbp: Cbp, world: World, tmp_path: Path) -> None:
    """By the last line and by its exit status: 0 up to date, 3 not yet, 4 waits for a person.

    A file counts from the moment that it is in the drop folder until every stage has read it.
    """

    def status(*arguments: str) -> tuple[int, str]:
        outcome = cbp("status", *arguments, session=world.session)
        return outcome.status, outcome.out.splitlines()[-1]

    assert status() == (0, "no dataflow yet; register one with: cbp register FILE")
    world.controller.register(DOCUMENT)
    assert status() == (0, "up to date: clicks")
    incoming = world.settings.drop_root / "clicks" / "urls" / "incoming"
    world.step()
    (incoming / "a.jsonl").write_text('{"url": "a"}\n')
    behind = "not up to date: 1 of 1 dataflow; the service is catching up"
    assert status() == (3, behind)
    assert "urls: 1 file is not taken in yet" in cbp("status", session=world.session).out
    world.take_in()
    assert status("clicks") == (3, behind)
    assert "count: can run" in cbp("status", "clicks", session=world.session).out
    world.controller.pause_stage("clicks", "count")
    stuck = "not up to date: 1 of 1 dataflow; an operator is needed"
    assert status() == (4, stuck)
    world.controller.resume_stage("clicks", "count")
    world.step()
    assert status() == (0, "up to date: clicks")
    world.controller.pause("clicks")
    assert status() == (0, "up to date: clicks")
    (incoming / "bad.jsonl").write_text('{"url": 7}\n')
    world.step()
    assert status() == (4, stuck)
    outcome = cbp("status", "--json", session=world.session)
    assert (outcome.status, outcome.json["freshness"]["dataflows"]) == (
        4,
        [{"dataflow": "clicks", "state": "stuck", "left": ["urls: 1 file is in quarantine"]}],
    )
    assert cbp("status", "nobody", session=world.session).status == 1


def test_files_become_tables_by_command(cbp: Cbp, world: World, tmp_path: Path) -> None:
    """Register, drop, look up, read, quarantine, upload, pause, delete: all by `cbp`."""

    def run(*arguments: str | Path) -> Any:
        world.step()
        outcome = cbp(*arguments, "--json", session=world.session)
        assert outcome.status == 0, outcome.out
        return outcome.json

    document = tmp_path / "clicks.yaml"
    document.write_text(yaml.safe_dump(DOCUMENT))
    assert run("validate", document)["stages"] == ["count"]
    assert run("register", document)["summary"]["state"] == "ok"

    monday = tmp_path / "monday.jsonl"
    monday.write_text('{"url": "a"}\n{"url": "b"}\n{"url": "a"}\n')
    run("drop", "clicks", "urls", monday)
    assert run("state", "clicks", "count.counts", "url=a")["items"] == [{"url": "a", "n": 2}]

    tuesday = tmp_path / "tuesday.jsonl"
    tuesday.write_text('{"url": "a"}\n')
    assert run("drop", "clicks", "urls", tuesday, "--upload")["items"][0]["path"] == tuesday.name
    assert run("state", "clicks", "count.counts", "url=a")["items"] == [{"url": "a", "n": 3}]
    assert run("state", "clicks", "count.counts", "url=b")["items"] == [{"url": "b", "n": 1}]

    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"url": "a"}\n{"url": 7}\n')
    run("drop", "clicks", "urls", broken)
    refused = run("claims", "clicks", "--status", "quarantined")["items"]
    assert [(item["path"], item["reason"]["line"]) for item in refused] == [("broken.jsonl", 2)]

    first = run("records", "clicks", "count.totals", "--limit", "2")
    rest = run("records", "clicks", "count.totals", "--cursor", first["cursor"])
    totals = {row["url"]: row["n"] for row in (*first["items"], *rest["items"])}
    assert totals == {"a": 3, "b": 1}

    runs = run("runs", "--dataflow", "clicks", "--status", "COMMITTED")["items"]
    assert [item["epoch"] for item in runs] == [1, 0]
    assert runs[0]["figures"]["records_in"] == 1
    assert len(run("increments", "clicks", "--flow", "urls")["items"]) == 2

    world.step()
    shown = cbp("status", "clicks", "--json", session=world.session)
    assert shown.status == 4  # a file is in quarantine
    stage = shown.json["stages"][0]
    assert (stage["epoch"], stage["lag_seconds"]) == (2, None)
    assert stage["last_success_at"] is not None
    assert "urls" in stage["waiting"]

    assert run("pause", "clicks")["desired"] == "paused"
    again = cbp("drop", "clicks", "urls", monday, "--upload", "--json", session=world.session)
    assert (again.status, again.json["items"][0]["status"]) == (3, "duplicate")
    assert run("delete", "clicks", "--purge") == {"deleted": "clicks", "purged": True}
    assert run("status")["items"] == []
    assert not (Path(world.settings.tables) / "clicks").exists()


def test_a_changed_document_takes_over_by_command(cbp: Cbp, world: World, tmp_path: Path) -> None:
    """Shown before it happens; kept stages count on; files are checked by the new columns."""

    def run(*arguments: str | Path) -> Any:
        world.step()
        outcome = cbp(*arguments, "--json", session=world.session)
        assert outcome.status == 0, outcome.out
        return outcome.json

    document, line = tmp_path / "clicks.yaml", tmp_path / "line.jsonl"
    document.write_text(yaml.safe_dump(DOCUMENT))
    assert run("register", document, "--plan")["version"] == 1
    run("register", document)
    line.write_text('{"url": "a"}\n')
    run("drop", "clicks", "urls", line, "--upload")
    count = DOCUMENT["stages"]["count"]
    stages = {"count": {**count, "buckets": 8}, "again": count, "later": count}
    urls = {"schema": "url STRING, at BIGINT"}
    changed = {**DOCUMENT, "sources": {"urls": urls}, "stages": stages}
    document.write_text(yaml.safe_dump(changed))
    arguments = ("register", document, "--retained", "again")
    plan = run(*arguments, "--plan")
    assert (plan["version"], plan["changed"], plan["done"]) == (2, True, False)
    kinds = {stage["name"]: (stage["kind"], stage["buckets"]) for stage in plan["stages"]}
    assert kinds == {"count": ("kept", [2, 8]), "again": ("added", None), "later": ("added", None)}
    counts = [(q["stage"], q["queued_increments"], q["skipped_increments"]) for q in plan["queues"]]
    assert counts == [("again", 1, 0), ("later", 0, 1)]
    assert run("status", "clicks")["summary"]["version"] == 1
    shown = cbp(*arguments, "--plan", session=world.session).out
    assert "2 -> 8 buckets" in shown
    assert "+ at BIGINT" in shown
    begins = "later.urls reads new input only, not the 1 increment before it. To read all"
    assert f"{begins}, register with --retained later" in " ".join(shown.split())
    assert run(*arguments)["done"]
    assert not run(*arguments)["changed"]
    late = cbp("register", document, "--retained", "later", session=world.session)
    assert "cbp backfill clicks later" in " ".join(late.out.split())
    assert "--rebuild later" in " ".join(late.out.split())
    asked = cbp("backfill", "clicks", "again", "--dry-run", session=world.session)
    meanwhile = "Until again has read 1 increment again, readers see again.counts, again.totals "
    meanwhile += "empty at first"
    assert meanwhile in " ".join(asked.out.split())
    (told,) = run("register", document, "--rebuild", "count", "--in-place", "--plan")["meanwhile"]
    assert told.startswith("Until count has read 1 increment again, readers see count.counts, ")
    assert run(*arguments, "--plan")["meanwhile"] == []
    for number, at in enumerate(("2", '"noon"')):
        line = tmp_path / f"line-{number}.jsonl"
        line.write_text(f'{{"url": "a", "at": {at}}}\n')
        run("drop", "clicks", "urls", line, "--upload")
    (refused,) = run("claims", "clicks", "--status", "quarantined")["items"]
    assert "at" in refused["reason"]["message"]
    for stage, n in (("count", 2), ("again", 2), ("later", 1)):
        actual = run("state", "clicks", f"{stage}.counts", "url=a")["items"]
        assert actual == [{"url": "a", "n": n}], stage
    pages = [run("state", "clicks", "--limit", "2")]
    pages.append(run("state", "clicks", "--limit", "2", "--cursor", pages[0]["cursor"]))
    assert pages[1]["cursor"] is None
    names = [[one["stage"] for one in page["items"]] for page in pages]
    assert names == [["again", "count"], ["later"]], "each state once, sorted"
    for size in (one for page in pages for one in page["items"]):
        (alone,) = rest(world, f"/dataflows/clicks/stages/{size['stage']}/states")
        assert {key: value for key, value in size.items() if key != "stage"} == alone
        assert size["rows"] == 1
    assert "again.counts" in cbp("state", "clicks", session=world.session).out


def test_what_the_service_refuses_is_told_by_command(
    cbp: Cbp, world: World, tmp_path: Path
) -> None:
    """The real parts raise errors whose codes the table knows."""
    document = tmp_path / "clicks.yaml"
    document.write_text(yaml.safe_dump(DOCUMENT))
    cbp("register", document, session=world.session)
    changed = tmp_path / "changed.yaml"
    wrong = {"urls": {"schema": "url STRING, at BIGINT NOT NULL"}}
    changed.write_text(yaml.safe_dump({**DOCUMENT, "sources": wrong}))
    world.step()
    expected = {
        ("register", str(changed)): "change_refused",
        ("register", str(document), "--expect-version", "7"): "dataflow_busy",
        ("state", "clicks", "count.counts", "url=nobody"): "not_found",
        ("state", "clicks", "count.counts", "uri=a"): "request_invalid",
        ("runs", "--cursor", "nonsense"): "cursor_invalid",
        ("state", "clicks", "--cursor", "nonsense"): "cursor_invalid",
        ("state", "nobody"): "not_found",
        ("records", "clicks", "urls", "--cursor", "nonsense"): "cursor_invalid",
        ("runs", "nobody"): "not_found",
        ("pause", "nobody"): "not_found",
        ("retry", "clicks", "nobody"): "not_found",
    }
    for arguments, code in expected.items():
        outcome = cbp(*arguments, "--json", session=world.session)
        assert (outcome.status, outcome.json["error_code"]) == (1, code), arguments
