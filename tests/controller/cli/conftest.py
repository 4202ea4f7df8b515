"""The command line against the API over fakes, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import typer.testing
from structlog.testing import capture_logs

from controller.cli import main
from controller.cli.session import Session, Waits
from tests.controller.api.app_transport import AppTransport
from tests.controller.api.fake_service import Service


@dataclass
class Outcome:
    """What one command left: its status, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cbp = Callable[..., Outcome]


@pytest.fixture(scope="session", autouse=True)
def _commands_are_made_once() -> Iterator[None]:
    """Of an application, not for each call: to read all signatures takes longer than most calls."""
    make = cache(typer.main.get_command)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", make)
        patch.setattr(typer.testing, "_get_command", make)
        yield


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """What the service logs, instead of printing it."""
    with capture_logs() as entries:
        yield entries


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path / "root")


@pytest.fixture
def cbp(
    service: Service, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Cbp:
    """Run `cbp` with these arguments, against the service."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str | Path, session: Session | None = None) -> Outcome:
        given = session or Session(
            service.settings, AppTransport(service.app), Waits(poll_seconds=0)
        )
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments], session=given)
        printed = capsys.readouterr()
        status = ended.value.code
        return Outcome(status if isinstance(status, int) else 0, printed.out, printed.err)

    return run
