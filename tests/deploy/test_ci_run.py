"""What `.ci/run` says of checks and tests: red if either fails, pytest's closing line last."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
CLOSING = "==== 3 passed in 0.10s ===="
ENVIRONMENT = "cbp_prepare() { :; }\n"
CHECK = """case "$*" in
*types*) printf 'types: %s\\n' "$SAID"; exit "$CHECKED" ;;
esac
exit "$IMPORTED"
"""
TESTS = f"printf '...\\n{CLOSING}\\n'; exit \"$TESTED\"\n"
NOTHING = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """`.ci/run` as it is, with scripts and commands of the machine that do nothing."""
    for name, text in (("environment", ENVIRONMENT), ("check", CHECK), ("test", TESTS)):
        (tmp_path / "deploy").mkdir(exist_ok=True)
        (tmp_path / "deploy" / f"{name}.sh").write_text(text, encoding="utf-8")
    (tmp_path / ".ci").mkdir()
    shutil.copy(REPO / ".ci" / "run", tmp_path / ".ci" / "run")
    (tmp_path / "bin").mkdir()
    for command in ("apt-get", "apt-cache", "mount", "umount"):
        (tmp_path / "bin" / command).write_text(NOTHING, encoding="utf-8")
        (tmp_path / "bin" / command).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("checked", "imported", "tested"), [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
)
def test_a_failed_check_makes_the_run_red(
    checkout: Path, checked: int, imported: int, tested: int
) -> None:
    """It goes on beside the tests; what it found is printed before the closing line."""
    environment = {
        **os.environ,
        "PATH": f"{checkout / 'bin'}:{os.environ['PATH']}",
        "SAID": "a word of mypy",
        "CHECKED": str(checked),
        "IMPORTED": str(imported),
        "TESTED": str(tested),
    }
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=checkout, env=environment, capture_output=True, text=True
    )
    assert done.returncode == (1 if checked or imported or tested else 0), done.stderr
    lines = done.stdout.splitlines()
    assert lines[-2:] == ["types: a word of mypy", CLOSING]
    assert "..." in lines
