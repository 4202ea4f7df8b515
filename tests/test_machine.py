"""A run that knows what its machine must have does not pass by leaving tests out.

The integration is not green because its machine lacks PostgreSQL, or a small disk where one can be
mounted.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from tests.machine import leave_out, needs, needs_postgres_driver, small_disk

TESTS = Path(__file__).resolve().parent
RUN = TESTS.parent / ".ci" / "run"


OUTCOMES = (pytest.skip.Exception, pytest.fail.Exception)
"""Both are caught: a skip that comes in the place of a failure would skip the test that sees it."""


@pytest.mark.parametrize("named", ["", "tmpfs"])
def test_what_is_missing_and_not_required_is_a_skip(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is given; another need that is required changes nothing."""
    monkeypatch.setenv("CBP_REQUIRE", named)
    with pytest.raises(OUTCOMES, match="install it") as outcome, needs("postgres", OSError):
        raise OSError("install it")
    assert outcome.type is pytest.skip.Exception


@pytest.mark.parametrize("named", ["postgres", "postgres,tmpfs"])
def test_what_is_missing_and_required_is_a_failure(
    named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only the driver is missing."""
    monkeypatch.setenv("CBP_REQUIRE", named)
    with pytest.raises(OUTCOMES, match="install it") as outcome:
        leave_out("postgres", "install it")
    assert outcome.type is pytest.fail.Exception
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OUTCOMES, match="driver") as outcome:
        needs_postgres_driver()
    assert outcome.type is pytest.fail.Exception


@pytest.mark.parametrize(
    ("named", "expected"),
    [("postgres", pytest.skip.Exception), ("tmpfs", pytest.fail.Exception)],
)
def test_a_disk_that_cannot_be_mounted_is_left_out(
    named: str, expected: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skipped with what the machine said, or failed where it is required."""
    monkeypatch.setenv("CBP_REQUIRE", named)
    refused = subprocess.CompletedProcess([], 32, "", "permission denied")
    monkeypatch.setattr(subprocess, "run", lambda *args, **more: refused)
    with pytest.raises(OUTCOMES, match="denied") as outcome, small_disk(tmp_path / "a", "64k"):
        pass
    assert isinstance(outcome.value, expected)


def test_a_need_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt name would require nothing."""
    monkeypatch.setenv("CBP_REQUIRE", "postgresql")
    with pytest.raises(OUTCOMES, match="postgresql") as outcome:
        leave_out("postgres", "install it")
    assert outcome.type is pytest.fail.Exception


def test_nobody_skips_past_the_rule() -> None:
    """Servers and disks are asked for in one place; a skip of one's own would stay green."""
    own = re.compile(r"importorskip\(.psycopg|except PostgresMissingError|.mount., .-t")
    actual = [
        str(file.relative_to(TESTS))
        for file in TESTS.rglob("*.py")
        if file not in (Path(__file__), TESTS / "machine.py") and own.search(file.read_text())
    ]
    assert actual == []


@pytest.mark.parametrize(
    ("mounts", "knows", "required"),
    [
        (0, 0, "postgres,chromium,promtool,tmpfs,manuals"),
        (32, 0, "postgres,chromium,promtool,manuals"),
        (0, 100, "postgres,chromium,promtool,tmpfs"),
    ],
)
def test_the_integration_requires_what_its_machine_can_have(
    mounts: int, knows: int, required: str, tmp_path: Path
) -> None:
    """PostgreSQL and Chromium always; a small disk and manuals where the machine can have them.

    What it does not require is reported.
    """
    script = tmp_path / ".ci" / "run"
    script.parent.mkdir()
    script.write_bytes(RUN.read_bytes())
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "environment.sh").write_text("cbp_prepare() { true; }\n")
    (tmp_path / "deploy" / "check.sh").write_text("true\n")
    (tmp_path / "deploy" / "test.sh").write_text('echo "requires $CBP_REQUIRE"\n')
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in {
        "mount": f"exit {mounts}",
        "umount": "exit 0",
        "apt-get": "exit 1",
        "apt-cache": f"exit {knows}",
        "id": "echo 1000",
    }.items():
        (commands / name).write_text(f"#!/bin/sh\n{text}\n")
        (commands / name).chmod(0o755)
    done = subprocess.run(
        ["bash", str(script)],
        env={"PATH": f"{commands}:/usr/bin:/bin", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"requires {required}\n" in done.stdout
    assert ("no small file system can be mounted" in done.stdout) == (mounts != 0)
    assert ("no package postgresql-doc-15" in done.stdout) == (knows != 0)
