"""The progress of a job is shown to people at a terminal, and to nobody else."""

from __future__ import annotations

import pytest

from cbp.client.answers import Answer
from controller.cli.progress import progress_bar

JOB = Answer(answer={"step": "compares flows/sum.totals", "done": 3, "total": 7})


def shown(capsys: pytest.CaptureFixture[str], *, hidden: bool) -> str:
    with progress_bar(hidden=hidden) as show:
        show(Answer(answer={"step": "begins", "done": 0, "total": None}))
        show(JOB)
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_a_terminal_shows_the_step_and_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On stderr, so that what a program reads from stdout stays as it is."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    text = shown(capsys, hidden=False)
    assert "compares flows/sum.totals" in text
    assert "3/7" in text


def test_nothing_is_shown_without_a_terminal_or_where_json_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of a script has no bars."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    assert shown(capsys, hidden=False) == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "compares" not in shown(capsys, hidden=True)
