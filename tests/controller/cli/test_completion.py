"""Completion of the shell: commands, options and the names of dataflows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from controller.cli.session import Session
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(cbp: Cbp, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """Complete the last word of a command line, as Bash asks for it."""

    def words(line: str, session: Session | None = None) -> list[str]:
        monkeypatch.setenv("_CBP_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        return cbp(session=session).out.split()

    return words


def test_commands_and_options_are_completed(complete: Complete) -> None:
    """Those that begin so, and no others."""
    assert complete("cbp re") == [name for name in complete("cbp ") if name.startswith("re")]
    assert {"register", "records", "retry"} <= set(complete("cbp re"))
    assert complete("cbp runs --fai") == ["--failed"]


def test_names_of_dataflows_come_from_the_service(complete: Complete, service: Service) -> None:
    """They are those that are registered; a service that does not answer completes nothing."""
    service.fill()
    for command in ("status", "runs", "pause", "state"):
        assert complete(f"cbp {command} cl") == ["clicks"], command
        assert complete(f"cbp {command} x") == []
    away = Session(Settings(root=service.settings.root, token=TOKEN, port=1))
    assert complete("cbp status cl", away) == []
