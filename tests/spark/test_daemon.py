"""Spark's Python daemon with the engine imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cbp.engine.spark.worker_pool import WorkerPool, safe_path
from tests.fresh import REPOSITORY

WORK = """
from cbp.engine.spark.daemon import ended_quietly

def work(error):
    raise error

ended_quietly(work)({error})
"""


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    ("error", "code", "told"),
    [("BrokenPipeError()", 0, ""), ("ValueError('cause')", 1, "ValueError: cause")],
)
def test_a_worker_that_spark_has_ended_tells_no_error(error: str, code: int, told: str) -> None:
    """Operators do not read a traceback a minute after every run; other errors are logged."""
    command = [sys.executable, "-c", WORK.format(error=error)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code
    assert done.stderr.strip().endswith(told)
    assert bool(done.stderr) == bool(told)


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with modules that tell when they are imported; not on this one's path."""
    mark = tmp_path / "imported"
    for name in ("json", "numpy", "pickle"):
        code = f"open({str(mark)!r}, 'a').write('{name} ')\nraise SystemExit(7)\n"
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    kept = [entry for entry in sys.path if entry and Path(entry) != tmp_path]
    monkeypatch.setattr(sys, "path", kept)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    return mark


def test_sparks_daemon_imports_nothing_from_the_working_directory(planted: Path) -> None:
    """With what the session gives its workers; without it, what is planted there runs."""
    command = [sys.executable, "-m", "cbp.engine.spark.daemon"]
    for given, imported in ((safe_path(), False), ({}, True)):
        environment = {**os.environ, **given}
        subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=120
        )
        assert planted.exists() == imported


def test_resident_workers_import_nothing_from_the_working_directory(planted: Path) -> None:
    """They start and answer, whatever is in the folder where the service was started."""
    pool = WorkerPool(1)
    pool.start()
    assert len(pool.free) == 1
    assert not planted.exists()
    pool.close()
