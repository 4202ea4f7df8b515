"""Logs of the process: no secret setting is in them, in either form, whatever logs it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog

from cbp.errors.author import AuthorCodeError
from cbp.errors.masks import MASK
from controller.alerts import WebhookChannel
from controller.alerts.conditions import Alert
from controller.alerts.notices import Notice
from controller.app import configure_logging
from controller.run_logs import RunLogCapture
from controller.settings import Settings, load_settings
from tests.controller.http_sink import HttpSink

SECRETS = {
    "token": "canary-token",
    "alert_webhook_url": "https://hooks.example/services/canary-path?key=canary-query",
    "smtp_url": "smtp://user:canary%2Fmail@mail.example",
    "openlineage_api_key": "canary-lineage",
}
FORMS = pytest.mark.parametrize("log_format", ["json", "console"])
QUOTED = [
    "canary-token",
    "canary-lineage",
    "canary-spark",
    "canary/database",
    "canary%2Fmail",
    "canary/mail",
    "canary-query",
    "/services/canary-path",
    *SECRETS.values(),
]
"""What a library may put into a message: the settings, and parts of addresses."""


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def settings_with(tmp_path: Path, log_format: str) -> Settings:
    values: dict[str, Any] = dict(SECRETS)
    return load_settings(
        root=tmp_path,
        engine="local",
        log_format=log_format,
        database_url="postgresql+psycopg://cbp:canary/database@host/cbp",
        spark_conf={"spark.hadoop.fs.s3a.secret.key": "canary-spark"},
        **values,
    )


@FORMS
@pytest.mark.parametrize("secret", QUOTED)
def test_no_secret_setting_is_in_a_line(
    secret: str, log_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither in an event, nor in a field, nor in the text of an exception."""
    configure_logging(settings_with(tmp_path, log_format))
    log = structlog.get_logger("ours")
    event = f"sent to {secret}!"
    log.info(event, address=secret, nested={"list": [secret]})
    logging.getLogger("theirs").warning("cannot reach %s", secret)
    try:
        raise OSError(f"refused: {secret}")
    except OSError:
        log.exception("failed")
        logging.getLogger("theirs").exception("failed")
    text = capsys.readouterr().err
    assert "canary" not in text
    assert text.count(MASK) >= 6
    if log_format == "json":
        assert [json.loads(line)["level"] for line in text.splitlines()] == [
            "info",
            "warning",
            "error",
            "error",
        ]


@FORMS
def test_a_notice_by_webhook_leaves_no_address_in_the_log(
    log_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The library that sends it logs the address of each request, in a spelling of its own."""
    sink = HttpSink()
    try:
        url = f"{sink.url}/Canary-ä"
        settings = load_settings(
            root=tmp_path, token="t" * 9, log_format=log_format, alert_webhook_url=url
        )
        configure_logging(settings)
        alert = Alert("k", "test", "warning", "", "summary", "", "nothing")
        WebhookChannel(url, service_url="").send(
            [Notice("test", alert, datetime(2026, 11, 23, tzinfo=UTC))]
        )
    finally:
        sink.close()
    assert sink.paths
    assert "anary" not in capsys.readouterr().err


@FORMS
def test_a_line_that_cannot_be_written_shows_no_secret(
    log_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Logging prints what a handler failed with, arguments and all; ours say only that it was."""
    configure_logging(settings_with(tmp_path, log_format))
    (tmp_path / "logs").write_text("no folder, so no line of a run can be kept")
    bound = {"dataflow": "d", "run": "r"}
    structlog.get_logger("ours").warning("sent", told="canary-token", **bound)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, RunLogCapture) or type(handler).__name__ == "_ErrorOutput":
            try:
                raise OSError("canary-token")
            except OSError:
                handler.handleError(logging.makeLogRecord({"msg": "canary-token"}))
    assert "canary-token" not in capsys.readouterr().err


def test_an_author_s_mistake_is_one_line_for_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its place, without our frames; programs get the traceback, and so do other errors."""
    mistake = AuthorCodeError(stage="s", function="f", place="own.py:7", cause="KeyError: 'x'")
    for log_format, error, whole in (
        ("console", mistake, False),
        ("json", mistake, True),
        ("console", ValueError("ours"), True),
    ):
        configure_logging(Settings(root=tmp_path, log_format=log_format))
        capsys.readouterr()
        try:
            raise error
        except Exception as caught:
            structlog.get_logger("x").warning("run.failed", error={"m": 1}, exc_info=caught)
        said = capsys.readouterr().err
        assert ("traceback" in said.lower() or '"frames"' in said) == whole, said
        assert "own.py:7" in said or error is not mistake
