"""The log of a run, from the author's code to REST and the command."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner

from controller.cli.main import app as commands
from controller.cli.session import Session
from controller.client.service_client import ServiceClient
from controller.settings import Settings
from tests.controller.served import served
from tests.controller.small_app import TOKEN
from tests.controller.world import until

FIELDS = ("dataflow", "stage", "epoch", "run")


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """The service configures the logging of this process."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before[0], before[1]
    structlog.reset_defaults()


def drop_and_wait(client: ServiceClient, name: str) -> dict[str, Any]:
    """Apply a file; return the run that did it."""
    before = client.get("runs", dataflow="urls", status="COMMITTED")["items"]
    body = b'{"url": "/"}\n'
    client.post("dataflows", "urls", "sources", "visits", "files", content=body,
                query={"name": name})  # fmt: skip

    def newest() -> Any:
        runs = client.get("runs", dataflow="urls", status="COMMITTED")["items"]
        return runs[0] if len(runs) > len(before) else None

    until(lambda: newest() is not None)
    run: dict[str, Any] = newest()
    until(lambda: any(
        line["event"] == "run.committed"
        for line in client.get("runs", run["id"], "log")["items"]
    ))  # fmt: skip
    return run


@pytest.mark.usefixtures("restored_logging")
def test_every_line_of_a_run_says_which_run_it_is_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between its start and its end each has dataflow, stage, epoch and run; REST shows them all.

    The run is in a thread of its own and its tasks in a process of their own.
    """
    with (
        served(tmp_path, worker_processes=True) as (settings, _, _),
        ServiceClient(settings) as client,
    ):
        run = drop_and_wait(client, "one.jsonl")
        lines = client.get("runs", run["id"], "log")["items"]
        expected = {"dataflow": "urls", "stage": "count", "epoch": 0, "run": run["id"]}
        assert lines[0]["event"] == "run.started"
        assert {"run.committed", "dataflow.published"} <= {line["event"] for line in lines}
        assert [{name: line[name] for name in FIELDS} for line in lines] == [expected] * len(lines)
        again = drop_and_wait(client, "two.jsonl")
        assert client.get("runs", again["id"], "log")["items"][0]["epoch"] == 1
        _check_paging(client, run, lines)
        _check_command(settings, run, lines)
    printed = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line[:1] == "{"]
    of_run = [line for line in printed if line.get("run") == run["id"]]
    assert [line["event"] for line in of_run] == [line["event"] for line in lines]


def _check_paging(client: ServiceClient, run: dict[str, Any], lines: list[Any]) -> None:
    read, asked = list[Any](), {"limit": 1, "oldest": True}
    while items := (page := client.get("runs", run["id"], "log", **asked))["items"]:
        read, asked["cursor"] = [*read, *items], page["cursor"]
    assert read == lines
    assert client.get("runs", run["id"], "log", limit=1)["items"] == lines[-1:]


def _check_command(settings: Settings, run: dict[str, Any], lines: list[Any]) -> None:
    shown = CliRunner().invoke(commands, ["logs", run["id"], "--json"], obj=Session(settings))
    assert json.loads(shown.stdout)["items"] == lines
    newest = CliRunner().invoke(commands, ["logs", "urls.count"], obj=Session(settings))
    assert "run.committed" in newest.stdout
    assert "urls.count/1" in newest.stdout


@pytest.mark.usefixtures("restored_logging")
def test_no_entry_shows_a_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the name of its field, in an address, or by its value: it is masked, here and in files."""
    with served(tmp_path) as (_, app, _):
        given = {"dataflow": "urls", "stage": "count", "epoch": 0, "run": "0a"}
        with structlog.contextvars.bound_contextvars(**given):
            structlog.get_logger("x").info(f"begins with {TOKEN}", api_token="hush-hush")
            logging.getLogger("author").warning("reads s3://user:pass-word@host/x")
        kept = app.state.parts.run_logs.read("urls", "0a", None, limit=9).lines
    printed = capsys.readouterr().err
    assert len(kept) == 2
    for secret in (TOKEN, "hush-hush", "pass-word"):
        assert secret not in printed
        assert secret not in json.dumps(kept)
    assert [line["logger"] for line in kept] == ["x", "author"]
