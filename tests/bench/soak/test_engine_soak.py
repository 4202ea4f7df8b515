"""A soak fails when anything grows with the number of epochs, but inputs and outputs.

What a run costs should grow little with a table's age. The goal of 1.2 is missed, so the soak that
asserts it fails; `tests/bench/README.md` has the figures.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from tests.bench.options import BenchOptions
from tests.bench.soak.engine_soak import Soak, soak


def run(folder: Path, *, epochs: int, records: int, keys: int) -> Soak:
    options = BenchOptions(
        against=(),
        state_keys=(keys,),
        increment=(records,),
        master="none",
        soak=True,
        epochs=epochs,
    )
    return soak(options, folder, None, 2, lambda step: None)


def assert_bounded(found: Soak) -> None:
    """Nothing is more in the last half than it was by the end of the first one.

    Where between two checkpoints a log is looked at is chance: merges are entries of their own.
    """
    half = len(found.ages) // 2
    slacks = {
        "log_entries": DEFAULT_LIMITS.checkpoint_entries,
        "records": 0,
        "output_files": 4,
        "files": 100,
    }
    for kind, slack in slacks.items():
        early = max(getattr(age, kind) for age in found.ages[:half])
        late = max(getattr(age, kind) for age in found.ages[half:])
        assert late <= early + slack, (kind, [getattr(age, kind) for age in found.ages])


@pytest.mark.soak
def test_what_tiny_epochs_leave_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some two hundred epochs of a few records: files, entries and records stay as many."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    assert_bounded(run(tmp_path, epochs=220, records=5, keys=50))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_thousand_epochs_stay_as_fast_and_as_small(tmp_path: Path) -> None:
    """The processor works at most 1.2 times as long in the last hundred epochs as in the first.

    In memory where there is such a file system: ext4 without a journal makes a file ten times as
    slowly once thousands were removed beside it, by whichever process.
    """
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        actual = run(Path(folder), epochs=1000, records=1000, keys=1_000_000)
    assert_bounded(actual)
    assert actual.cpu_ratio <= 1.2
