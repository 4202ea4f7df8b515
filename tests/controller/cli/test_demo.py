"""The command `cbp demo` hands every choice on."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from controller.demo import CheckFailedError, DemoOptions
from tests.controller.cli.conftest import Cbp


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    options: list[Any] = []
    demo = ModuleType("controller.demo")
    vars(demo).update(
        CheckFailedError=CheckFailedError, DemoOptions=DemoOptions, run_demo=options.append
    )
    monkeypatch.setitem(sys.modules, "controller.demo", demo)
    monkeypatch.delenv("CBP_PORT", raising=False)
    return options


def test_without_options_the_demo_has_its_own_defaults(cbp: Cbp, seen: list[Any]) -> None:
    """The command and the demo agree on every default."""
    assert cbp("demo").status == 0
    assert seen == [DemoOptions()]


def test_every_choice_reaches_the_demo(cbp: Cbp, seen: list[Any], tmp_path: Path) -> None:
    """None is dropped on the way; the port may come from the environment."""
    given = DemoOptions(
        keep=True,
        root=tmp_path,
        as_json=True,
        increments=2,
        engine="local",
        limit=9,
        stdlib=True,
        port=8500,
    )
    arguments = ["--keep", "--json", "--stdlib", "--engine", "local"]
    numbers = ["--increments", "2", "--limit", "9", "--port", "8500"]
    assert cbp("demo", *arguments, *numbers, "--root", tmp_path).status == 0
    assert [asdict(options) for options in seen] == [asdict(given)]
