"""What `cbp status` says of code on disk that does not run."""

from __future__ import annotations

import pytest

from controller.cli.dataflows.status import print_newer_files

STAGES = [
    {"name": "count", "newer_files": ["/shop/clicks.py"]},
    {"name": "top", "newer_files": ["/shop/clicks.py"]},
    {"name": "other", "newer_files": []},
]


def said(capsys: pytest.CaptureFixture[str], *rebuilds: dict[str, bool]) -> str:
    print_newer_files(STAGES, rebuilds)
    return " ".join(capsys.readouterr().out.split())


def test_a_file_with_other_code_is_named_once_with_its_stages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A rebuild that has ended says nothing about code that was saved later."""
    for rebuilds in ((), ({"ended": True},)):
        text = said(capsys, *rebuilds)
        assert text.count("/shop/clicks.py has changed") == 1
        assert "count, top run the loaded code until the service restarts" in text


def test_until_a_swap_the_new_code_runs_after_the_swap(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nobody registers again what was built beside."""
    text = said(capsys, {"ended": False})
    assert "until you swap in tables that were built with the new code" in text
    assert "the service restarts" not in text
