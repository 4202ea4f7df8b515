"""Every operation of REST has a command that asks for it."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.api.app import describe_api
from controller.cli.session import Session, Waits
from tests.controller.api.app_transport import AppTransport
from tests.controller.api.clicks import DOCUMENT
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp

REPOSITORY = Path(__file__).parents[3]

TWINS = {
    "activity_show": "top",
    "alerts_show": "alerts",
    "alerts_test": "alerts --test",
    "audit_list_entries": "audit",
    "claims_list_claims": "claims clicks",
    "corrections_correct": "edit clicks count.counts url=a site=7 --set n=5 --reason x --json",
    "corrections_list_corrections": "edit clicks --list",
    "corrections_preview": "edit clicks count.counts url=a site=7 --set n=5 --dry-run",
    "dataflows_change": "register clicks.json",
    "dataflows_delete": "delete clicks",
    "dataflows_drain": "drain clicks",
    "dataflows_left": "close clicks urls --wait",
    "dataflows_list_dataflows": "status",
    "dataflows_pause": "pause clicks",
    "dataflows_pause_stage": "pause clicks count",
    "dataflows_register": "register new.json",
    "dataflows_resume": "resume clicks",
    "dataflows_resume_stage": "resume clicks count",
    "dataflows_retry": "retry clicks count",
    "dataflows_set_priority": "priority clicks count high",
    "dataflows_show": "status clicks",
    "dataflows_validate": "validate clicks.json",
    "dataflows_waiting": "waiting clicks",
    "disk_use_measure": "disk clicks",
    "events_follow": "events --follow",
    "events_recent": "events",
    "explain_account": "explain --run r1 --json",
    "explain_lineage": "explain --run r1 --json",
    "explain_plan": "explain clicks",
    "freshness_show": "status",
    "flows_close": "close clicks urls",
    "flows_download": "records clicks count.totals --csv",
    "flows_list_punctuations": "close clicks --list",
    "flows_read": "records clicks count.totals",
    "flows_series": "series clicks count.totals",
    "garbage_collect": "gc clicks",
    "garbage_look": "gc clicks --dry-run",
    "garbage_reach": "gc clicks --reach",
    "health_degraded": "support-bundle bundle.zip",
    "health_leader": "status",
    "health_ready": "support-bundle bundle.zip",
    "increments_grid": "increments clicks --grid",
    "increments_list_increments": "increments clicks",
    "increments_read": "increment clicks urls 0",
    "increments_show": "increment clicks urls 0 --about",
    "metrics_metrics": "support-bundle bundle.zip",
    "quarantine_content": "quarantine fetch clicks urls c3 --to original",
    "quarantine_discard": "quarantine discard clicks urls c3 --reason x",
    "quarantine_list_quarantine": "quarantine list clicks urls",
    "quarantine_readmit": "quarantine readmit clicks urls c3 --reason x",
    "quarantine_restore": "quarantine restore clicks urls c3",
    "quarantine_show": "quarantine show clicks urls c3",
    "queries_current": "last clicks count.counts",
    "queries_list_tables": "sql clicks",
    "queries_query": "sql clicks 'SELECT 1'",
    "rebuilds_back": "rebuild clicks --back",
    "rebuilds_cancel": "rebuild clicks --cancel",
    "rebuilds_list_rebuilds": "rebuild clicks --list",
    "rebuilds_show": "rebuild clicks --json",
    "rebuilds_start": "rebuild clicks --json",
    "rebuilds_swap": "rebuild clicks --swap",
    "recovery_list_intentions": "intentions clicks",
    "recovery_list_recoveries": "recoveries",
    "rollbacks_list_moments": "rollback clicks --moments",
    "rollbacks_list_rollbacks": "rollback clicks --list",
    "rollbacks_list_undone_files": "rollback clicks --to 1 --files",
    "rollbacks_plan": "rollback clicks --to 1 --dry-run",
    "rollbacks_replay": "replay clicks urls/0 --reason x --yes",
    "rollbacks_roll_back": "rollback clicks --to 1 --reason x --yes",
    "rollbacks_show_job": "rollback clicks --to 1 --reason x --yes",
    "runs_cancel": "cancel r3",
    "runs_cancel_many": "cancel r3 r1",
    "runs_list_runs": "runs",
    "runs_retry_many": "retry --run r2",
    "runs_show": "runs r1",
    "runs_show_log": "logs 0193c0ffee0123456789",
    "runs_show_stack": "stack r3",
    "scrubs_show": "scrub clicks",
    "scrubs_start": "scrub clicks",
    "sessions_end": "tokens sessions --end s0",
    "sessions_list_sessions": "tokens sessions",
    "sessions_make_code": "link",
    "sessions_show": "drop clicks urls new.jsonl",
    "settings_show": "settings",
    "sinks_list_sinks": "sinks list clicks",
    "sinks_pause": "sinks pause clicks totals",
    "sinks_resume": "sinks resume clicks totals",
    "sinks_retry": "sinks retry clicks totals",
    "sinks_show": "sinks show clicks totals",
    "snapshots_take": "snapshot clicks",
    "sources_identity": "drop clicks urls new.jsonl",
    "sources_list_rejects": "rejects clicks urls",
    "sources_list_sources": "sources clicks",
    "sources_preview_replacement": "replace clicks urls a.jsonl new.jsonl --dry-run",
    "sources_preview_retraction": "retract clicks urls a.jsonl --dry-run",
    "sources_replace": "replace clicks urls a.jsonl new.jsonl --reason x",
    "sources_retract": "retract clicks urls a.jsonl --reason x",
    "sources_upload": "drop clicks urls new.jsonl --upload",
    "stages_give_back": "give-back clicks count --reason mended",
    "stages_list_set_aside": "set-aside clicks count",
    "stages_list_states": "state clicks",
    "stages_preview_give_back": "give-back clicks count --dry-run",
    "stages_show": "stage clicks count",
    "stages_show_give_back": "give-back clicks count --reason mended",
    "stages_states": "stage clicks count",
    "state_history": "history clicks count.counts url=a site=7",
    "state_look_up": "state clicks count.counts url=a site=7",
    "state_page": "state clicks count.counts",
    "tokens_create": "tokens new ci",
    "tokens_list_tokens": "tokens list",
    "tokens_revoke": "tokens revoke ci",
    "tokens_rotate": "tokens rotate ci",
    "translators_list_examples": "examples",
    "translators_list_translators": "translators",
    "translators_show_example": "examples crawl_queue",
    "verifications_cancel": "verifications clicks --cancel v0",
    "verifications_list_differences": "differences v0",
    "verifications_list_verifications": "verifications clicks",
    "verifications_show": "verify clicks",
    "verifications_start": "verify clicks",
    "versions_show": "versions clicks --version 1",
    "versions_list_versions": "versions clicks",
}
OF_BROWSERS = {"index_links", "sessions_sign_in", "sessions_sign_out"}
"""What only a browser does: links to other resources, and a session by a cookie."""

OF_THE_PACKAGE = {"guides_list_guides", "guides_show_guide"}
"""What `cbp help` reads from the package, so that it needs no service."""

OF_PROBES = {"health_live"}
"""What needs no token, and is asked by `cbp doctor` without a client."""

CANNED: dict[str, Any] = {
    "explain_account": {},
    "scrubs_start": {"ended": False},
    "scrubs_show": {"ended": True, "status": "failed"},
    "verifications_start": {"id": "v0", "ended": False, "step": "reads", "total": 0, "done": 0},
}
"""Answers in place of the service's errors, so that a command goes on to its next request."""

PATIENCE = 12
"""Requests after which a command is ended."""

OPERATIONS = {
    operation["operationId"]: (method.upper(), path)
    for path, methods in describe_api()["paths"].items()
    for method, operation in methods.items()
}


class Recorder(httpx.BaseTransport):
    """Notes each request, and lets the service answer it."""

    def __init__(self, service: Service) -> None:
        self._inner, self.asked = AppTransport(service.app), list[str]()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().partition("?")[0]
        asked = [
            operation
            for operation, (method, template) in OPERATIONS.items()
            if method == request.method and _matches(template, path)
        ]
        self.asked += asked
        if len(self.asked) > PATIENCE or "events_follow" in asked:
            raise SystemExit  # a command that follows, or waits for what the fakes never do
        answer = self._inner.handle_request(request)
        canned = [CANNED[operation] for operation in asked if operation in CANNED]
        return httpx.Response(200, json=canned[0]) if canned and answer.is_error else answer


def _matches(template: str, path: str) -> bool:
    pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template))
    return re.fullmatch(pattern, path) is not None


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Service:
    """Give one service for all commands; a rebuild of it is ready."""
    made = Service(tmp_path_factory.mktemp("twins"))
    made.controller.rebuild_jobs.under_way = True
    return made


def test_every_operation_has_a_command() -> None:
    """A further route fails here until it has one; so does a command of a route that is gone."""
    assert OPERATIONS.keys() == TWINS.keys() | OF_BROWSERS | OF_PROBES | OF_THE_PACKAGE


@pytest.mark.parametrize("operation", sorted(TWINS))
def test_the_command_asks_for_the_operation(
    operation: str, cbp: Cbp, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the service says to it: the call is not a wrong one, and the request is sent."""
    service.store.records.clear()
    service.fill()
    monkeypatch.chdir(tmp_path)
    _write_files(tmp_path)
    (service.settings.drop_root / "clicks" / "urls" / "incoming").mkdir(parents=True, exist_ok=True)
    recorder = Recorder(service)
    session = Session(service.settings, recorder, Waits(poll_seconds=0, patience_seconds=0))
    if operation == "dataflows_left":
        service.store.queues["count"].clear()
    outcome = cbp(*shlex.split(TWINS[operation]), session=session)
    assert outcome.status != 2, outcome.err
    assert operation in recorder.asked, (outcome, recorder.asked)


def _write_files(folder: Path) -> None:
    document: dict[str, Any] = {**DOCUMENT, "name": "other"}
    (folder / "clicks.json").write_text(json.dumps(DOCUMENT))
    (folder / "new.json").write_text(json.dumps(document))
    (folder / "new.jsonl").write_text('{"url": "a", "site": 1}\n')


_SENDS = {"post", "post_json", "post_for_file", "put", "delete"}


def _sent_by_path(source: str) -> list[str]:
    """Return the calls that send anything but a GET, to a path that they name themselves."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [
        ast.unparse(call)
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in _SENDS
        and call.args
        and isinstance(call.args[0], ast.Constant | ast.Starred)
    ]


def test_a_command_changes_something_by_the_typed_client_alone() -> None:
    """What it sends has a method of `cbp.client`, so a program can do what a command does."""
    found = [
        f"{path.name}: {call}"
        for room in ("cli", "demo", "development")
        for path in (REPOSITORY / "controller" / room).rglob("*.py")
        for call in _sent_by_path(path.read_text())
    ]
    assert found == []
    assert _sent_by_path("service.post('dataflows', name, 'pause')")
    assert _sent_by_path("client.rest.delete(*path)")
    assert not _sent_by_path("client.delete(name, purge=True)")
