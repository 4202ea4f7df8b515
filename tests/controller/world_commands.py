"""Commands of `cbp` against a world's real API, in this process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.cli import main
from controller.cli.session import Session
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.rest import api_of_world
from tests.controller.world import World

__all__ = ["call_json", "call_text", "session_of"]


def session_of(world: World) -> Session:
    """Return a session whose service is the world."""
    settings = Settings(root=world.root, token=TOKEN)
    return Session(settings, AppTransport(api_of_world(world, settings)))


def call_text(world: World, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what a command printed; it must succeed."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments), session=session_of(world))
    printed = capsys.readouterr()
    assert not ended.value.code, printed.err + printed.out
    return printed.out


def call_json(world: World, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Return what a command printed with `--json`."""
    return json.loads(call_text(world, capsys, *arguments, "--json"))
