"""Random dataflows through the service, against the reference: a few seeds of each run.

Tables hold what the reference says, whatever files are repeated; a version runs one code.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from controller.loop.records.compiled_dataflows import Catalog
from controller.registry.translators import Registry
from tests.service.play import play


@pytest.fixture(autouse=True)
def _in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit within one second of the one before would find its file compiled already."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no play loses its power


@pytest.mark.timeout(180)
def test_what_is_in_the_tables_is_what_the_reference_says(tmp_path: Path) -> None:
    """Files repeated, empty and equal; restarts; code edited, registered or not."""
    counts: Counter[str] = Counter()
    for seed in (0, 2, 5):
        counts += Counter(play(tmp_path / str(seed), seed).counts)
    assert counts.keys() >= {"drop", "upload", "upload_with_key", "restart", "edit", "register"}


@pytest.mark.parametrize("guard", ["drift", "files"])
def test_a_service_that_runs_other_code_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    """Planted: without one of the two guards a play with edits fails."""
    target, name = {
        "drift": (Catalog, "drifted"),
        "files": (Registry, "require_loaded"),
    }[guard]
    monkeypatch.setattr(target, name, lambda *_: {})
    with pytest.raises(AssertionError):
        play(tmp_path, 0)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_workers_of_spark_run_what_was_registered_too(tmp_path: Path) -> None:
    """The same with Spark's engine; a restart starts another session."""
    for seed in (0, 5):
        play(tmp_path / str(seed), seed, engine="spark")
