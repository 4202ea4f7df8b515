"""Sinks over REST and by command: listed, paused, resumed by a choice; no run waits for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from cbp.engine.interface.garbage_collector import Retention
from controller.cli.main import app as commands
from controller.cli.session import Session
from controller.settings import Settings
from tests.controller.api.app_transport import AppTransport
from tests.controller.rest import api_of_world
from tests.controller.retained import OFTEN, TINY
from tests.controller.sinks import sunk
from tests.controller.small_app import TOKEN
from tests.controller.world import World

pytestmark = pytest.mark.usefixtures("without_syncs")

FILES: dict[str, Any] = {"flow": sunk.FLOW, "to": "parquet", "path": "totals"}
TWO = {"totals": FILES, "other": {**FILES, "path": "other", "to": "csv"}}


class Steered:
    """A world behind its API, asked over REST and by commands."""

    def __init__(self, root: Path) -> None:
        self.world = sunk.sink_world(root)
        self.world.controller.register(sunk.document(TWO))
        settings = Settings(root=root, token=TOKEN)
        self.transport = AppTransport(api_of_world(self.world, settings))
        self.session = Session(settings, self.transport)

    def get(self, *path: str, **query: Any) -> httpx.Response:
        return self._client().get("/".join(("/api/v1/dataflows/one/sinks", *path)), params=query)

    def post(self, *path: str, **query: Any) -> httpx.Response:
        return self._client().post("/".join(("/api/v1/dataflows/one/sinks", *path)), params=query)

    def metrics(self) -> str:
        return self._client().get("/api/v1/metrics").text

    def degraded(self) -> dict[str, Any]:
        degraded: dict[str, Any] = self._client().get("/api/v1/health/ready").json()["degraded"]
        return degraded

    def cbp(self, *arguments: str) -> Any:
        given = ["sinks", *arguments, "--json"]
        result = CliRunner().invoke(commands, given, obj=self.session)
        assert result.exit_code == 0, (result.output, result.exception)
        return json.loads(result.output)

    def table(self, *arguments: str) -> str:
        result = CliRunner().invoke(commands, ["sinks", *arguments], obj=self.session)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.output

    def status(self, *dataflow: str) -> tuple[int, str]:
        """Return the exit status of `cbp status`, and its last line."""
        result = CliRunner().invoke(commands, ["status", *dataflow], obj=self.session)
        return result.exit_code, result.output.splitlines()[-1]

    def _client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = "http://127.0.0.1:8420"
        return httpx.Client(transport=self.transport, base_url=url, headers=headers)


@pytest.fixture
def steered(tmp_path: Path) -> Iterator[Steered]:
    """Give a dataflow with two sinks that have begun."""
    one = Steered(tmp_path)
    sunk.publish(one.world)
    yield one
    one.world.close()


def bring(world: World, *records: tuple[str, int]) -> None:
    world.arrive("one", "a", *records)
    world.ticks()


def test_a_list_says_how_far_each_sink_is(steered: Steered) -> None:
    """Page by page, by state; REST and command say the same."""
    bring(steered.world, ("a", 1), ("b", 2))
    waiting = steered.get().json()["items"]
    assert [(one["name"], one["state"], one["waiting"]) for one in waiting] == [
        ("other", "behind", 1),
        ("totals", "behind", 1),
    ]
    assert all(one["lag_seconds"] is not None for one in waiting)
    sunk.publish(steered.world)
    first = steered.get(limit=1).json()
    rest = steered.get(limit=1, cursor=first["cursor"]).json()
    assert [one["name"] for one in (*first["items"], *rest["items"])] == ["other", "totals"]
    assert rest["cursor"] is None
    one = steered.get("totals").json()
    assert (one["state"], one["next"], one["increments"], one["records"]) == ("current", 1, 1, 2)
    assert (one["to"], one["flow"], one["target"]) == ("parquet", sunk.FLOW, "totals")
    assert steered.cbp("show", "one", "totals") == one
    assert steered.cbp("list", "one")["items"] == steered.get().json()["items"]
    assert steered.get(state="behind").json()["items"] == []
    assert "current" in steered.table("list", "one")
    assert "2 records" in steered.table("show", "one", "totals")
    assert steered.get("nothing").status_code == 404


def test_a_sink_is_paused_and_resumed(steered: Steered) -> None:
    """The other one goes on; what came meanwhile is published once."""
    assert steered.post("totals", "pause").json()["state"] == "paused"
    bring(steered.world, ("a", 1))
    sunk.publish(steered.world)
    assert (sunk.state(steered.world, "totals"), sunk.state(steered.world, "other")) == (
        "paused",
        "current",
    )
    metrics = steered.metrics()
    assert 'cbp_sink_waiting_increments{dataflow="one",sink="totals"} 1.0' in metrics
    assert 'cbp_sink_waiting_increments{dataflow="one",sink="other"} 0.0' in metrics
    assert steered.cbp("resume", "one", "totals")["state"] == "behind"
    sunk.publish(steered.world)
    assert sunk.rows_of(steered.world, "totals") == [{"word": "a", "n": 1}]
    assert steered.cbp("pause", "one", "totals")["state"] == "paused"


def test_a_choice_is_for_those_that_wait_for_one(steered: Steered) -> None:
    """Given to another sink, it would take effect at some later roll-back, unasked."""
    for choice in ("rewrite", "keep"):
        refused = steered.post("totals", "resume", undone=choice)
        assert (refused.status_code, refused.json()["error_code"]) == (409, "sink_choice_refused")
    assert steered.post("totals", "resume", undone="maybe").status_code == 422
    for number in range(3):
        bring(steered.world, ("a", number))
    sunk.publish(steered.world)
    roll_back = steered.world.controller.amendments.roll_back
    roll_back("one", "sum:0", who="me", why="a test", drop_later=True)
    sunk.publish(steered.world)
    one = steered.get("totals").json()
    assert (one["state"], one["error"]["error_code"]) == ("stopped", "sink_rolled_back")
    assert one["choices"] == ["rewrite", "keep"]
    assert steered.degraded() == {"one": "retrying"}
    assert 'cbp_sink_failures{dataflow="one",sink="totals"} 1.0' in steered.metrics()
    steered.cbp("resume", "one", "totals", "--rewrite")
    sunk.publish(steered.world)
    assert sunk.rows_of(steered.world, "totals") == sunk.flow_of(steered.world)
    assert sunk.code(steered.world, "other") == "sink_rolled_back"  # each by itself


def test_a_failure_stops_no_stage_and_is_tried_again_at_once(steered: Steered) -> None:
    """A retry does not wait for the pause."""
    out = steered.world.root / "out"
    out.rename(steered.world.root / "away")
    bring(steered.world, ("a", 1))
    sunk.publish(steered.world)
    assert sunk.code(steered.world, "totals") == "sink_target_failed"
    bring(steered.world, ("b", 1))
    assert len(sunk.flow_of(steered.world)) == 2
    (steered.world.root / "away").rename(out)
    sunk.publish(steered.world)
    assert sunk.code(steered.world, "totals") == "sink_target_failed"  # it rests
    assert steered.cbp("retry", "one", "totals")["failures"] == 1
    sunk.publish(steered.world)
    assert sunk.rows_of(steered.world, "totals") == sunk.flow_of(steered.world)
    assert steered.get("totals").json()["error"] is None


def test_a_dataflow_whose_sink_fails_needs_attention(steered: Steered) -> None:
    """Its stages are up to date, so the exit status is 0; the last line says both."""
    assert steered.status("one") == (0, "up to date: one")
    out = steered.world.root / "out"
    out.rename(steered.world.root / "away")
    bring(steered.world, ("a", 1))
    sunk.publish(steered.world)
    needs = "up to date, but 1 dataflow needs attention: one"
    assert steered.status() == steered.status("one") == (0, needs)
    (steered.world.root / "away").rename(out)
    for sink in ("totals", "other"):
        steered.cbp("retry", "one", sink)
    sunk.publish(steered.world)
    assert steered.status("one") == (0, "up to date: one")


def test_a_sink_that_begins_late_says_what_it_leaves_out(tmp_path: Path) -> None:
    """As after a rebuild, or with `begin: now`; a sink that has all of its flow says nothing."""
    one = Steered(tmp_path)
    for number in (1, 2):
        bring(one.world, ("a", number))
    one.world.controller.change(
        sunk.document({"totals": FILES, "late": {**FILES, "path": "late", "begin": "now"}})
    )
    sunk.publish(one.world)
    said = "late begins at increment 2; the 2 increments before it are not published"
    for shown in (one.table("list", "one"), one.table("show", "one", "late")):
        assert said in " ".join(shown.split())
        assert "totals begins" not in shown
    assert "begins at" not in one.table("show", "one", "totals")
    one.world.close()


def test_a_plan_names_each_sink_that_differs(steered: Steered, tmp_path: Path) -> None:
    """A plan changes nothing; a registration says the same; an equal sink is not named."""
    wanted = tmp_path / "one.json"
    late = {"flow": sunk.FLOW, "to": "csv", "path": "late"}
    sinks = {"totals": {**FILES, "paused": True}, "late": late}
    wanted.write_text(json.dumps(sunk.document(sinks)))
    said = [
        "The sink other is removed. The data that it has published stays.",
        "The sink totals changes: it now publishes sum.totals to parquet.",
        "The sink late is added: it publishes sum.totals to csv.",
    ]
    for options in (["--plan"], []):
        given = ["register", str(wanted), *options]
        result = CliRunner().invoke(commands, given, obj=steered.session)
        assert result.exit_code == 0, (result.output, result.exception)
        assert [line for line in result.output.splitlines() if line.startswith("The sink")] == said


def test_a_plan_says_where_a_late_sink_begins(tmp_path: Path) -> None:
    """Increments that are no longer kept cannot be published; `begin: now` asks for none."""

    def wanted(**sinks: Any) -> dict[str, Any]:
        made = sunk.document(sinks, keep={"totals": {"hours": 0}})
        return {**made, "sources": {"a": {**made["sources"]["a"], "keep": {"hours": 0}}}}

    world = sunk.sink_world(tmp_path, retention=TINY, collect_every=3, **OFTEN)
    world.controller.register(wanted(totals=FILES))
    for number in range(18):
        world.clock.advance(1)
        bring(world, (f"w{number % 3}", number))
        sunk.publish(world)
    first = world.engine.increments.horizon(world.store.dataflow("one").folder, sunk.FLOW)
    assert first
    late, latest = {**FILES, "path": "late"}, {**FILES, "path": "latest", "begin": "now"}
    given = wanted(totals=FILES, late=late, latest=latest)
    planned = world.controller.change(given, dry_run=True)
    assert [line for line in planned.sinks if "begins" in line] == [
        f"The sink late begins at increment {first}, because earlier increments are no longer "
        "kept (for example, after a rebuild)."
    ]
    world.close()


@pytest.mark.parametrize("held", [True, False])
def test_what_a_sink_has_not_published_is_kept(tmp_path: Path, held: bool) -> None:
    """An output that goes once it was consumed keeps it, and a source does; nothing else."""
    made = sunk.document(
        {
            "totals": {**FILES, "paused": held},
            "raw": {"flow": "a", "to": "csv", "path": "raw", "paused": held},
        },
        keep={"totals": {"hours": 0}},
    )
    made["sources"] = {"a": {**made["sources"]["a"], "keep": {"hours": 0}}}
    world = sunk.sink_world(tmp_path, retention=TINY, collect_every=3, **OFTEN)
    world.controller.register(made)
    for number in range(18):
        world.clock.advance(1)
        bring(world, (f"w{number % 3}", number))
        sunk.publish(world)
    oldest = world.store.oldest_increments("one", "a", limit=1)[0].increment.index
    horizon = world.engine.increments.horizon(world.store.dataflow("one").folder, sunk.FLOW)
    assert (oldest == 0, horizon == 0) == (held, held)
    for sink in ("totals", "raw"):
        world.store.want_sink("one", sink, desired="running")
    sunk.publish(world)
    assert [len(sunk.names(world, folder)) for folder in ("totals", "raw")] == [18, 18]
    assert len(sunk.rows_of(world, "totals")) == 18
    world.close()


def test_a_sink_reads_increments_whose_files_were_merged(tmp_path: Path) -> None:
    """Compaction and collection took their files; the table has their records."""
    retention = Retention(versions_min=1, versions_max=1, seconds=0, attempt_seconds=0)
    world = sunk.sink_world(tmp_path, retention=retention, collect_every=3, **OFTEN)
    world.controller.register(sunk.document({}))
    for number in range(18):
        world.clock.advance(1)
        bring(world, (f"w{number % 3}", number))
    first = world.store.increment("one", sunk.FLOW, 0).increment.files[0].path
    assert not (Path(world.store.dataflow("one").folder) / first).exists()
    world.controller.change(sunk.document({"totals": FILES}))
    sunk.publish(world)
    assert sunk.rows_of(world, "totals") == sunk.flow_of(world)
    assert len(sunk.names(world, "totals")) == 18
    world.close()
