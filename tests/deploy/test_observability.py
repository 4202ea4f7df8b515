"""The metrics of a service that has run, and the rules and the dashboard that name them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event

from cbp.engine.direct import LocalEngine
from controller.client.service_client import ServiceClient
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.rest import api_of_world
from tests.controller.served import served
from tests.controller.world import ONE, World, until
from tests.deploy.prometheus_server import holding
from tests.machine import leave_out

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "observability"
NAME = re.compile(r"\b(?:cbp|process)_[a-z_]+\b")
URL = "http://127.0.0.1:8420"
ONLY_SOMETIMES = {"cbp_scrub_timestamp_seconds"}
"""Not before everything was read once."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A service that has done runs, refused a file, and answered requests."""
    root = tmp_path_factory.mktemp("watched")
    with served(root) as (settings, app, _), ServiceClient(settings) as client:
        for number in range(3):
            content = b'{"url": "/"}\n' if number < 2 else b"no json\n"
            path = ("dataflows", "urls", "sources", "visits", "files")
            client.post(*path, content=content, query={"name": f"{number}.jsonl"})

        def settled() -> bool:
            client.get("runs", status="COMMITTED")
            files = client.get("dataflows", "urls", "claims", status="quarantined")["items"]
            # The files in quarantine first: a scrape keeps their number for a minute.
            return bool(files) and 'cbp_run_in_records_total{dataflow="urls"} 2.0' in scrape(client)

        until(settled)
        client._http.get("metrics", headers={"Authorization": "Bearer of-nobody"})
        yield client, app


def scrape(client: ServiceClient) -> str:
    return str(client._http.get("metrics").text)


def exported(text: str) -> dict[str, str]:
    """Return the names of a scrape's series, and of the families that have help."""
    return {
        name: family.documentation
        for family in text_string_to_metric_families(text)
        for name in ({sample.name for sample in family.samples} or {family.name})
    }


def test_what_rules_and_dashboard_name_is_exported(service: Any) -> None:
    """An alert on a series that nobody writes never fires, and nobody notices."""
    names = set(exported(scrape(service[0]))) | ONLY_SOMETIMES
    rules = yaml.safe_load((FOLDER / "rules.yaml").read_text())
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    named = {
        *NAME.findall(json.dumps([r["expr"] for g in rules["groups"] for r in g["rules"]])),
        *NAME.findall(json.dumps(dashboard["panels"])),
    }
    assert len(named) > 30
    assert named - names == set()


EMPTY_WHILE_ALL_IS_WELL = {"Failed attempts in a row", "Since everything was read"}
"""Panels that show nothing for a service that fails at nothing and is young."""


def targets() -> Iterator[tuple[str, str, str]]:
    """Yield title, expression and legend of everything that the dashboard draws."""
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    panels = [
        *dashboard["panels"],
        *(one for row in dashboard["panels"] for one in row.get("panels", ())),
    ]
    for panel in panels:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target.get("legendFormat", "")


def test_every_panel_of_the_dashboard_shows_something(service: Any, tmp_path: Path) -> None:
    """Prometheus itself evaluates each expression over a scrape, and its legends have labels."""
    empty, unnamed = set(), []
    with holding(scrape(service[0]), tmp_path) as prometheus:
        for title, expression, legend in targets():
            filled = expression.replace("$dataflow", ".*").replace("$__rate_interval", "5m")
            series = prometheus.ask(filled)
            if not series:
                empty.add(title)
            wanted = set(re.findall(r"{{ *(\w+) *}}", legend))
            unnamed += [(title, legend) for one in series if not wanted <= set(one["metric"])]
    assert empty == EMPTY_WHILE_ALL_IS_WELL
    assert unnamed == []


def test_every_metric_is_documented_and_says_what_to_do(service: Any) -> None:
    """The list has what is exported and nothing else; units are in the names."""
    found = exported(scrape(service[0]))
    listed = set(NAME.findall((FOLDER / "README.md").read_text()))
    ours = {
        re.sub(r"_(bucket|count|sum)$", "", name)
        for name in found
        if name.startswith("cbp_") and not name.endswith("_created")
    }
    assert {name for name in listed if name.startswith("cbp_")} == ours | ONLY_SOMETIMES
    assert [name for name, text in found.items() if len(text) < 15] == []


def test_a_run_moves_the_figures(service: Any) -> None:
    """A scrape shows what was done, not zeros."""
    client, _ = service
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(scrape(client))
        for sample in family.samples
    }
    done = values["cbp_ended_runs_total", "urls", "committed"]
    assert done == values["cbp_stage_epochs_total", "urls", "count"] >= 1
    assert values["cbp_run_in_records_total", "urls"] == 2
    assert values["cbp_run_groups_total", "urls"] >= 1
    assert values["cbp_run_phase_duration_seconds_count", "job"] == done
    assert values["cbp_run_phase_seconds_total", "urls", "job"] > 0
    assert values["cbp_quarantined_files", "urls", "visits"] == 1
    assert values["cbp_http_requests_total", "GET", "/runs", "200"] >= 1
    assert values["cbp_refused_requests_total", "unauthenticated"] == 1
    assert values["cbp_leads",] == 1
    assert values["cbp_ticks_total",] > 0
    assert values["cbp_lag_seconds", "urls"] == 0
    assert values["process_resident_memory_bytes",] > 1e7


def test_a_scrape_costs_the_same_for_many_dataflows(tmp_path: Path) -> None:
    """The number of statements does not grow with the dataflows, of which there may be 1,000."""
    world = World(tmp_path, engine=LocalEngine)
    app = api_of_world(world, Settings(root=tmp_path, token=TOKEN))
    statements: list[str] = []

    def hear(_c: Any, _cursor: Any, statement: str, *_more: Any) -> None:
        statements.append(statement)

    def asked() -> int:
        told = {"Authorization": f"Bearer {TOKEN}"}
        with httpx.Client(transport=AppTransport(app), base_url=URL, headers=told) as client:
            client.get("/api/v1/metrics")  # what is read once for each dataflow
            statements.clear()
            text = client.get("/api/v1/metrics").text
        assert text.count("cbp_stage_failures{") == len(world.store.dataflows())
        return len(statements)

    event.listen(world.store._database._engine, "before_cursor_execute", hear)
    counts = []
    for begin, end in ((0, 2), (2, 14)):
        for number in range(begin, end):
            world.controller.register({**ONE, "name": f"one{number}"})
        counts.append(asked())
    assert counts[0] == counts[1] < 30


@pytest.mark.parametrize(
    "words", [["check", "rules", "rules.yaml"], ["test", "rules", "rules-test.yaml"]]
)
def test_the_rules_are_sound_and_fire(words: list[str]) -> None:
    """They fire on series of a stuck dataflow, a lost leader and damage, and only then."""
    if shutil.which("promtool") is None:
        leave_out("promtool", "no promtool; apt install --no-install-recommends prometheus")
    done = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_says_what_it_means_and_what_to_press() -> None:
    """Somebody reads it at night."""
    rules = yaml.safe_load((FOLDER / "rules.yaml").read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        assert rule["annotations"]["summary"]
        assert len(rule["annotations"]["runbook"]) > 100, rule["alert"]
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
