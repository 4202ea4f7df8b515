"""Every command against the API: what it prints, its JSON, its errors."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from cbp.client import rest as service_client
from cbp.engine.delta.managed_table import open_table
from cbp.engine.storage.files import LocalFiles
from controller.api.answers.record_files import CURSOR_HEADER, TRUNCATED_HEADER
from controller.api.requests.keys import NULL_PARAMETER
from controller.api.routes.access.sessions import SIGN_IN_PATH
from controller.api.routing.router_factory import PREFIX
from controller.api.security.guard import OPEN_PATHS, USER_HEADER
from controller.cli.dataflows.register import arrival_line
from controller.cli.main import app
from controller.cli.session import Session
from controller.guides import guides
from controller.registry import Registry
from controller.settings import Settings
from controller.store.base import StageRecord, open_store
from tests.cbp.engine.delta.harness import make_state
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.api.clicks import DOCUMENT, NOON
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "clicks.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT))
    return path


def test_the_client_speaks_the_words_of_the_api() -> None:
    """The client repeats a few names of the API rather than importing it."""
    assert service_client.PREFIX == PREFIX
    assert service_client.NULL_PARAMETER == NULL_PARAMETER
    assert service_client.USER_HEADER == USER_HEADER
    assert service_client.CURSOR_HEADER == CURSOR_HEADER
    assert service_client.TRUNCATED_HEADER == TRUNCATED_HEADER
    assert service_client.LIVE_PATH in OPEN_PATHS


def test_every_command_can_print_json() -> None:
    """`--json` is an option of every command."""
    assert len(app.registered_commands) >= 18
    for command in app.registered_commands:
        assert command.callback is not None
        assert "json_" in command.callback.__annotations__, command.name


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json", ""])
def test_a_document_is_registered_from_a_file(
    cbp: Cbp, service: Service, tmp_path: Path, suffix: str
) -> None:
    """JSON by its suffix, YAML otherwise."""
    path = tmp_path / f"clicks{suffix}"
    path.write_text(json.dumps(DOCUMENT) if suffix == ".json" else yaml.safe_dump(DOCUMENT))
    outcome = cbp("register", path)
    assert outcome.status == 0
    assert "cbp drop clicks urls" in outcome.out
    assert service.store.records["clicks"].document == DOCUMENT


def test_a_wrong_document_lists_every_mistake(cbp: Cbp, tmp_path: Path) -> None:
    """One line per mistake with its place, and status 1."""
    path = tmp_path / "wrong.yaml"
    path.write_text("name: Wrong\nsources: {a: {schema: 'x TEXT'}}\nstages: {s: 1}\n")
    outcome = cbp("register", path)
    assert outcome.status == 1
    assert outcome.out == ""
    for place in ("name:", "sources.a.schema:", "stages.s:"):
        assert f"- {place}" in outcome.err


def test_with_json_an_error_is_a_document(cbp: Cbp, tmp_path: Path) -> None:
    """On stdout, with the service's own code, so that a program can read it."""
    outcome = cbp("status", "nobody", "--json")
    assert (outcome.status, outcome.err) == (1, "")
    assert outcome.json == {
        "error_code": "not_found",
        "message": "there is no dataflow 'nobody'",
        "details": {"kind": "dataflow", "name": "nobody"},
    }


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ({"format": "csv", "location": "", "options": {}}, "feed it with: cbp drop shop a FILE..."),
        (
            {"format": "delta", "location": "", "options": {"table": "/lake/orders"}},
            "source a follows the Delta table /lake/orders",
        ),
        (
            {"format": "csv", "location": "s3://landing/orders/", "options": {}},
            "source a takes in files below s3://landing/orders/",
        ),
    ],
)
def test_a_line_says_how_records_come(source: dict[str, Any], line: str) -> None:
    """Nobody drops files into a source that takes them in by itself."""
    assert arrival_line("shop", {"name": "a", **source}) == line


def test_a_check_of_a_document_registers_nothing(
    cbp: Cbp, service: Service, document: Path
) -> None:
    """`validate` prints the flows that there would be."""
    outcome = cbp("validate", document)
    assert outcome.status == 0
    assert "count.totals" in outcome.out
    assert service.store.records == {}


def test_a_check_prints_each_mistake_with_its_place(cbp: Cbp, tmp_path: Path) -> None:
    """One line each, `file:line:column: code: message`, and status 1."""
    path = tmp_path / "wrong.yaml"
    path.write_text("name: wrong\n\nstages:\n  s:\n    translater: x\n    inputs: 1\n")
    outcome = cbp("validate", path)
    assert (outcome.status, outcome.out) == (1, "")
    lines = outcome.err.splitlines()
    assert any(line.startswith(f"{path}:5:5: field_unknown: stages.s.translater") for line in lines)
    assert any(line.startswith(f"{path}:6:13: document_invalid: ") for line in lines)
    path.write_text("name: [\n")
    outcome = cbp("validate", path)
    assert outcome.status == 1
    assert f"{path}:2:1: document_syntax: " in outcome.err


def test_a_plan_that_is_refused_ends_with_status_1(
    cbp: Cbp, service: Service, document: Path
) -> None:
    """A script that plans before it registers stops there; a plan that is valid ends with 0."""
    assert cbp("register", document).status == 0
    assert cbp("register", document, "--plan").status == 0
    for more in ([], ["--json"]):
        outcome = cbp("register", document, "--plan", "--rebuild", "nobody", *more)
        assert (outcome.status, "nobody" in outcome.out) == (1, True)
        assert not outcome.err
    assert service.store.dataflow("clicks").version == 1


def test_a_registration_says_that_it_took_tables_up(
    cbp: Cbp, service: Service, document: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the version and the epochs of the folder; a new dataflow has none of both."""
    assert "took up" not in cbp("register", document).out
    service.store.records.clear()
    service.store.stage_records.clear()
    register = service.controller.register

    def with_tables(*given: Any) -> Any:
        record = replace(register(*given), version=2)
        service.store.records["clicks"] = record
        service.store.stage_records[:] = [StageRecord("clicks", "count", 7, NOON)]
        return record

    monkeypatch.setattr(service.controller, "register", with_tables)
    outcome = cbp("register", document)
    assert (outcome.status, outcome.err) == (0, "")
    assert "existing tables at version 2 (epochs: count 7)" in outcome.out


def test_a_long_reason_stands_below_the_table(cbp: Cbp, service: Service) -> None:
    """In one piece and once; a short one stays in its column."""
    service.fill()
    reason = "has work, and waits for a slot: other dataflows run in all of them"
    service.controller.reasons = {"count": reason}
    outcome = cbp("status", "clicks")
    assert outcome.out.count(f"\ncount: {reason}\n") == 1
    service.controller.reasons = {"count": "runs"}
    assert "\ncount: " not in cbp("status", "clicks").out


def test_status_says_why_nothing_is_taken_in(cbp: Cbp, service: Service) -> None:
    """What keeps a source of any dataflow from taking in files, as `ready` and the page say."""
    service.fill()
    service.controller.reasons = {}
    service.drop_folder.trouble = ["source urls: the process that reads 'a' was stopped"]
    said = "clicks: source urls: the process that reads 'a' was stopped"
    assert said in cbp("status").out


def test_status_prints_what_fails_outside_the_stages_once(cbp: Cbp, service: Service) -> None:
    """The service says whether a problem is more than that; its words are not compared."""
    service.fill()
    service.controller.reasons = {}
    service.drop_folder.trouble = ["sink out: it is full"] * 2
    assert cbp("status").out.splitlines().count("clicks: sink out: it is full") == 2
    assert cbp("status", "clicks").out.splitlines().count("sink out: it is full") == 2


def test_a_failing_stage_hides_no_other_failure(cbp: Cbp, service: Service) -> None:
    """What fails outside the stages is printed too, of all dataflows and of one."""
    service.fill()
    error = {"error_code": "boom", "message": "the code is wrong", "details": {}}
    service.store.stage_records[:] = [
        replace(one, failures=2, error=error) for one in service.store.stage_records
    ]
    service.drop_folder.trouble = ["source urls: its folder is gone", "sink daily: it is full"]
    printed = cbp("status").out
    assert "the code is wrong" in printed
    for trouble in service.drop_folder.trouble:
        assert f"clicks: {trouble}" in printed
    assert "sink daily: it is full" in cbp("status", "clicks").out


def test_help_without_a_name_lists_the_guides(cbp: Cbp) -> None:
    """Each with its title, and for programs with the task that it is for."""
    outcome = cbp("help")
    items = cbp("help", "--json").json["items"]
    assert [one["name"] for one in items] == [one.name for one in guides()]
    for one in items:
        assert re.search(rf"cbp help {one['name']} +{re.escape(one['title'])}\n", outcome.out)
        assert one["about"]


def test_help_prints_a_guide_as_it_is_written(cbp: Cbp) -> None:
    """What reads from a pipe gets the Markdown; what wants fields gets JSON."""
    for one in guides():
        assert cbp("help", one.name).out == one.text
        assert cbp("help", one.name, "--json").json["text"] == one.text


@pytest.mark.parametrize("name", ["nobody.yaml", "nobody", "nobody" * 100])
def test_a_file_that_is_not_there_is_told_so(cbp: Cbp, name: str) -> None:
    """A missing file, and a name that no package offers."""
    outcome = cbp("register", name)
    assert outcome.status == 1
    assert "nobody" in outcome.err


def test_a_hint_stands_behind_the_name_of_what_is_not_there(cbp: Cbp) -> None:
    """The name is what was asked for, so that a program can compare it; the hint is beside it."""
    for command, details in (
        (("register", "nobody"), {"kind": "file or ready dataflow", "name": "nobody"}),
        (("help", "nothing"), {"kind": "guide", "name": "nothing"}),
    ):
        outcome = cbp(*command, "--json")
        assert outcome.json["error_code"] == "not_found"
        assert outcome.json["details"] == details
        assert f"{details['name']!r}; " in outcome.json["message"]


STATUSES = {"status": 4}
"""A file of the fake dataflow is in quarantine, so something waits for a person."""

COMMANDS: list[tuple[list[str], str]] = [
    (["status"], "clicks"),
    (["status"], "clicks.urls: 1 file is in quarantine (see: cbp quarantine list clicks urls)"),
    (["status", "clicks"], "clicks.urls: 1 file is in quarantine (see: cbp quarantine list clicks"),
    (["status", "clicks"], "waits for an increment on urls"),
    (["status", "clicks"], "7.0 d"),
    (["status", "clicks"], "the service"),
    (["status", "clicks"], "3.0 d"),
    (["runs"], "author_code_failed"),
    (["runs", "r1"], "records_in"),
    (["runs", "r2"], "boom"),
    (["runs", "--status", "COMMITTED"], "r1"),
    (["increments", "clicks"], "urls"),
    (["claims", "clicks", "--status", "quarantined"], "no number, line 7"),
    (["sources", "clicks"], "look: the pass failed"),
    (["sources", "clicks"], "a\\nb"),
    (["status", "clicks"], "urls: links lie there (see: cbp sources clicks)"),
    (["claims", "clicks", "--code", "type_wrong", "--since", "2026-11-01"], "c.jsonl"),
    (["claims", "clicks", "--code", "line_wrong"], "no file"),
    (["increments", "clicks", "--until", "2026-11-01T12:00:01Z"], "urls"),
    (["increments", "clicks", "--since", "2026-11-02"], "no increments"),
    (["records", "clicks", "count.totals", "--limit", "3"], "more with: --cursor c"),
    (["state", "clicks", "count.counts", "url=a", "site=7"], "site"),
    (["pause", "clicks"], "paused"),
    (["resume", "clicks"], "clicks is resumed"),
    (["pause", "clicks", "count"], "clicks.count is paused"),
    (["resume", "clicks", "count"], "clicks.count is resumed"),
    (["priority", "clicks", "count", "high"], "clicks.count now has high priority"),
    (["retry", "clicks", "count"], "clicks.count"),
    (["cancel", "r3"], "asked to stop"),
    (["waiting", "clicks"], "waits for an increment on urls"),
    (["close", "clicks", "urls"], "open frames of urls for count.urls; later"),
    (["close", "clicks", "urls", "--key", "monday"], "from increment 2 on"),
    (["close", "clicks", "--list"], "no frame has been closed yet"),
    (["settings"], "CBP_PAGE_SIZE_MAX"),
    (["increment", "clicks", "urls", "0", "--about"], "a.jsonl"),
    (["delete", "clicks"], "its tables stay"),
]


@pytest.mark.parametrize(("arguments", "expected"), COMMANDS, ids=lambda v: "-".join(v[:2]))
def test_a_command_prints_for_people(
    cbp: Cbp, service: Service, arguments: list[str], expected: str
) -> None:
    """What a person looks for is in the output."""
    service.fill()
    outcome = cbp(*arguments)
    assert (outcome.status, outcome.err) == (STATUSES.get(arguments[0], 0), "")
    assert expected in outcome.out


@pytest.mark.part(every=2)
@pytest.mark.parametrize("arguments", [a for a, _ in COMMANDS], ids=lambda v: "-".join(v[:2]))
def test_a_command_prints_for_programs(cbp: Cbp, service: Service, arguments: list[str]) -> None:
    """With `--json`, stdout is one JSON document and nothing else; stderr says if it is cut."""
    service.fill()
    outcome = cbp(*arguments, "--json")
    is_cut = bool(outcome.json.get("cursor")) and arguments[0] != "logs"
    status = STATUSES.get(arguments[0], 0)
    assert (outcome.status, "there are more rows" in outcome.err) == (status, is_cut)
    assert is_cut or not outcome.err
    assert isinstance(outcome.json, dict)


def test_a_refused_file_is_fetched_once(cbp: Cbp, service: Service, tmp_path: Path) -> None:
    """Byte by byte; a file that is there already stays as it is."""
    service.fill()
    to = tmp_path / "original"
    fetch = ("quarantine", "fetch", "clicks", "urls", "c3", "--to", to)
    outcome = cbp(*fetch, "--json")
    assert outcome.status == 0, outcome.out
    assert outcome.json == {"path": str(to), "bytes": len(to.read_bytes())}
    before = to.read_bytes()
    assert before == b"\x00content of c3"
    outcome = cbp(*fetch, "--json")
    assert (outcome.status, outcome.json["error_code"]) == (1, "folder_unwritable")
    assert to.read_bytes() == before


def test_tables_are_removed_after_a_question_only(
    cbp: Cbp, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--purge` asks; no answer means no."""
    service.fill()
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    assert cbp("delete", "clicks", "--purge").status == 1
    assert service.controller.asked == []
    assert cbp("delete", "clicks", "--purge", "--yes").status == 0
    assert service.controller.asked == [("delete", "clicks", True)]


@pytest.mark.parametrize("name", ["a/../b", "..", "ä ?#%", "[red]x[/red]"])
def test_names_cannot_leave_their_place_in_the_address(cbp: Cbp, name: str) -> None:
    """A name is quoted: it stays one part of the path, and is printed as text."""
    outcome = cbp("status", name)
    assert outcome.status == 1
    assert "not_found" in outcome.err or "route_unknown" in outcome.err
    if name.startswith("["):
        assert name in outcome.err


def test_a_name_is_one_part_of_the_address(cbp: Cbp, service: Service) -> None:
    """Whatever it holds: no slash, question mark or dot of it is the address's own."""
    seen: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.raw_path)
        return httpx.Response(404, json={"error_code": "not_found", "message": "no"})

    session = Session(service.settings, httpx.MockTransport(answer))
    cbp("status", "a/../../b?c#d", session=session)
    assert seen == [b"/api/v1/dataflows/a%2F..%2F..%2Fb%3Fc%23d"]


def test_control_characters_do_not_reach_the_terminal(cbp: Cbp, service: Service) -> None:
    """A file name cannot recolour or clear the screen on which it is listed."""
    service.fill()
    service.controller.reading.flow = [{"url": "\x1b[2Jevil\x07"}]
    outcome = cbp("records", "clicks", "urls")
    assert "\x1b" not in outcome.out
    assert "\\x1b[2Jevil" in outcome.out


def test_a_service_that_does_not_run_is_told_with_the_remedy(cbp: Cbp, tmp_path: Path) -> None:
    """With its address and the command that starts it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        settings = Settings(root=tmp_path, token=TOKEN, port=taken.getsockname()[1])
        outcome = cbp("status", session=Session(settings))
    assert outcome.status == 1
    assert "service_unreachable" in outcome.err
    assert "cbp serve" in outcome.err
    assert "CBP_PORT" in outcome.err


def test_a_missing_token_is_told_with_its_place(cbp: Cbp, tmp_path: Path) -> None:
    """The client makes no token: it would be another one than the service's."""
    outcome = cbp("status", session=Session(Settings(root=tmp_path)))
    assert outcome.status == 1
    assert "token_missing" in outcome.err
    assert not (tmp_path / "token").exists()


def test_a_wrong_token_is_told(cbp: Cbp, service: Service, tmp_path: Path) -> None:
    """As the service words it."""
    settings = Settings(root=tmp_path, token="another")
    outcome = cbp("status", session=Session(settings, AppTransport(service.app)))
    assert outcome.status == 1
    assert "unauthenticated" in outcome.err


def test_something_else_at_the_address_is_told(cbp: Cbp, service: Service) -> None:
    """An answer without a problem document does not become a stack trace."""
    transport = httpx.MockTransport(lambda _: httpx.Response(502, text="<html>"))
    outcome = cbp("status", session=Session(service.settings, transport))
    assert outcome.status == 1
    assert "502" in outcome.err


def test_the_token_is_sent_in_its_header_only(cbp: Cbp, service: Service) -> None:
    """Never in an address, where logs would keep it."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"items": [], "cursor": None})

    outcome = cbp("runs", session=Session(service.settings, httpx.MockTransport(answer)))
    assert "no runs yet" in outcome.out
    assert TOKEN not in str(seen[0].url)
    assert seen[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_wrong_setting_is_one_clear_panel(
    cbp: Cbp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Errors of the settings are reported like all others."""
    monkeypatch.setenv("CBP_PORT", "0")
    outcome = cbp("status", session=Session())
    assert outcome.status == 1
    assert "port" in outcome.err


def test_a_wrong_call_ends_with_status_2(cbp: Cbp, service: Service) -> None:
    """Another error than that of a service that refuses."""
    service.fill()
    assert cbp("status", "--nonsense").status == 2
    assert cbp("state", "clicks", "counts", "url=a").status == 2
    assert cbp("state", "clicks", "count.counts", "url").status == 2


def test_a_taken_port_is_told_before_anything_starts(cbp: Cbp, tmp_path: Path) -> None:
    """With the way out; no database is opened, no token made."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = Settings(root=tmp_path, port=taken.getsockname()[1])
        outcome = cbp("serve", session=Session(settings))
    assert outcome.status == 1
    assert "port_taken" in outcome.err
    assert "--port" in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_serve_says_where_and_gives_no_secret_away(
    cbp: Cbp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address and the file of the token are printed, the token is not.

    The printed link has the code that the service gets, another one at each start.
    """
    started: list[str] = []

    def run_server(
        settings: Settings, sign_in_code: str, announce: Callable[[Registry], None]
    ) -> bool:
        assert sign_in_code not in str(settings.effective())
        started.append(sign_in_code)
        announce(Registry([]))
        return True

    monkeypatch.setattr("controller.server.process.run_server", run_server)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = Settings(root=tmp_path, port=port)
    for arguments in (["serve"], ["serve", "--json"]):
        outcome = cbp(*arguments, session=Session(settings))
        assert outcome.status == 0
        assert f"http://127.0.0.1:{port}" in outcome.out
        assert str(tmp_path / "token") in outcome.out
        assert f"http://127.0.0.1:{port}{SIGN_IN_PATH}#code={started[-1]}" in outcome.out
        token = settings.read_token()
        assert token is not None
        assert token not in outcome.out + outcome.err
    assert len(set(started)) == 2


def test_a_second_service_is_refused_and_prints_no_link(cbp: Cbp, tmp_path: Path) -> None:
    """What it would print signs nobody in; the error names the process that has the database."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = Settings(root=tmp_path, port=port)
    with closing(open_store(settings.database_url)):
        outcome = cbp("serve", session=Session(settings))
    assert outcome.status == 1
    assert "database_in_use" in outcome.err
    assert str(os.getpid()) in outcome.err
    assert outcome.out == ""


def test_a_table_is_released_after_a_question_only(
    cbp: Cbp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a folder that holds no table is refused as such."""
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    assert cbp("release", tmp_path).status == 1
    outcome = cbp("release", tmp_path, "--yes")
    assert (outcome.status, "not_found" in outcome.err) == (1, True)


def test_a_released_table_is_repaired_after_a_question_only(
    cbp: Cbp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way back that the error of a foreign writer names is there, and says what it did."""
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    table = make_state(str(tmp_path / "t"))
    assert cbp("release", table.path, "--yes").status == 0
    assert cbp("repair", table.path).status == 1
    outcome = cbp("repair", table.path, "--json")
    assert (outcome.json["version"], outcome.json["shows"], outcome.json["undone"]) == (2, 1, [])
    assert open_table(table.path, LocalFiles()).snapshot.version == 2
    assert "as version 2" in cbp("repair", table.path, "--yes").out
    assert cbp("repair", tmp_path / "nothing", "--yes").status == 1


def test_uploads_come_through_whole(cbp: Cbp, service: Service, tmp_path: Path) -> None:
    """Files go over REST under their own names."""
    service.fill()
    file = tmp_path / "näme 1.jsonl"
    file.write_bytes(b"\x00\xff" * 3000)
    outcome = cbp("drop", "clicks", "urls", file, "--upload", "--json")
    assert outcome.json["items"][0]["bytes"] == 6000
    assert service.drop_folder.files == {"näme 1.jsonl": b"\x00\xff" * 3000}


def test_help_lists_every_command_under_its_task(cbp: Cbp) -> None:
    """A line each, at 80 columns; with statuses, a short option and an example for a command."""
    outcome = cbp("-h")
    lines = outcome.out.splitlines()
    names = {one.name for one in app.registered_commands} | {"quarantine", "tokens"}
    listed = [line.split()[0] for line in lines if line[:3].strip() and line.startswith("  ")]
    assert names <= set(listed)
    assert lines.index("Write a dataflow:") < lines.index("Run the service:")
    assert "Exit status:" in outcome.out
    assert "Example: cbp drop" in cbp("drop", "-h").out


def test_the_version_is_printed(cbp: Cbp) -> None:
    """That of the installed distribution."""
    assert cbp("--version").out == f"cbp {importlib.metadata.version('cbp')}\n"


def test_a_dry_run_has_one_option_with_two_names() -> None:
    """`--plan` and `--dry-run` are the same in every command that has either."""
    having = set()
    for command in app.registered_commands:
        shown = CliRunner().invoke(app, [str(command.name), "--help"], env={"COLUMNS": "200"})
        names = {one for one in ("--plan", "--dry-run") if f"{one} " in shown.output}
        names |= {one for one in ("--plan", "--dry-run") if f"{one}," in shown.output}
        assert len(names) in (0, 2), command.name
        having |= {command.name} if names else set()
    assert {"register", "backfill", "rollback", "edit", "gc", "recover"} <= having


def test_the_log_of_a_stage_is_named_in_two_ways(cbp: Cbp, service: Service) -> None:
    """With a point, or as a word of its own; a run has no stage."""
    service.fill()
    whole = cbp("logs", "clicks.count", "--json")
    assert cbp("logs", "clicks", "count", "--json") == whole
    assert cbp("logs", "clicks", "nothing", "--json").json["message"].count("clicks.nothing")
    assert cbp("logs", "clicks.count", "count").status == 2


def test_each_service_says_its_own_default_engine() -> None:
    """`cbp dev` runs without Spark unless it is asked for, `cbp serve` with it."""
    for command, engine in (("dev", "local"), ("serve", "spark")):
        shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
        assert f"`{engine}` (the default)" in " ".join(shown.split()), command
