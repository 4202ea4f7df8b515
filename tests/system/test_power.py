"""The machine loses its power under a service, again and again, and the tables are right.

Real processes: all are killed at once, in the middle of runs, and of the disk nothing is left but
what they had synced (`lossy.py`); then the service is started. With engine local by default; with
engine spark, whose Python workers write the files, by `-m soak` (a minute per loss).

`CBP_LOSSES` sets how many (2; more, as long as none came in the middle of runs), `CBP_SEED` when
and what survives of what was not synced.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.system.lossy import LossyDisk, Recorder
from tests.system.processes import Instance, until
from tests.system.workload import Workload

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

LOSSES = int(os.environ.get("CBP_LOSSES", "2"))
SEED = int(os.environ.get("CBP_SEED", "7"))
"""With 7, the first loss leaves nothing that was not synced."""
RUN_SECONDS = 0.3
FILES = 8


@pytest.mark.soak
@pytest.mark.parametrize(
    "engine", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.soak])]
)
def test_a_machine_that_loses_its_power_loses_nothing_that_was_acknowledged(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was dropped durably is applied once, whatever was written and not synced."""
    chance = random.Random(SEED)
    print(f"seed {SEED}, {LOSSES} losses")
    disk = LossyDisk(tmp_path / "machine")
    # Producers sync what they drop, and do so from this process.
    monkeypatch.setattr(os, "fsync", Recorder(tmp_path / "machine").fsync)
    cache, database = tmp_path / "cache", tmp_path / "database"
    database.mkdir()
    service = Instance(
        disk.root,
        "one",
        logs=tmp_path,
        environment=disk.environment,
        engine=engine,
        cache=cache,
        database_url=f"sqlite:///{database}/cbp.db",
        spark_master="local[2]",
        spark_driver_memory="512m",
    )
    lost: list[int] = []
    midway = 0
    try:
        service.start()
        service.wait()
        work = Workload(service.settings, tmp_path, chance)
        work.register()
        while len(lost) < LOSSES or (not midway and len(lost) < 2 * LOSSES + 4):
            before = work.epochs()
            for _ in range(FILES):
                work.drop()
            until(lambda: work.epochs() != before, "nothing runs")  # noqa: B023
            time.sleep(chance.uniform(0, RUN_SECONDS))
            service.kill()
            midway += min(work.epochs().values()) < work.files
            lost.append(disk.lose(chance))
            shutil.rmtree(cache)
            service.start()
            service.wait()
        work.wait_until_idle()
        work.check()
    finally:
        service.kill()
    print(f"files that went, came back or were cut: {lost}; {midway} times in the middle of runs")
    assert midway > 0, "the power went only while nothing ran"


WRITER = """
import os, signal
folder = os.open("{root}", os.O_RDONLY)
with open("{root}/whole", "wb") as file:
    file.write(b"1" * 10_000)
    file.flush()
    os.fsync(file.fileno())
    file.write(b"2" * 10_000)
if os.fork() == 0:
    os.rename("{root}/whole", "{root}/moved")
    with open("{root}/cut", "wb") as file:
        file.write(b"3" * 10_000)
    os.fsync(folder)
    os.rename("{root}/moved", "{root}/moved-again")
    with open("{root}/late", "wb") as file:
        file.write(b"4" * 10_000)
    os.kill(os.getppid(), signal.SIGKILL)
    os._exit(0)
os.wait()
"""


def test_only_what_a_process_synced_outlives_it(tmp_path: Path) -> None:
    """Names and contents apart, of processes that it forked as well; the rest is chosen."""
    seen: dict[str, set[int]] = {}
    for seed in range(8):
        disk = LossyDisk(tmp_path / str(seed))
        writer = subprocess.run(
            [sys.executable, "-c", WRITER.format(root=disk.root)],
            env={**os.environ, **disk.environment},
            timeout=60,
            check=False,
        )
        assert writer.returncode == -signal.SIGKILL
        disk.lose(random.Random(seed))
        left = {path.name: path.read_bytes() for path in disk.root.iterdir()}
        renamed = left.keys() & {"moved", "moved-again"}
        assert renamed, "a rename is at one end at least"
        for name in renamed:
            assert left[name].startswith(b"1" * 10_000)
        assert "cut" in left, "its name was synced"
        assert "whole" not in left, "that it was renamed was synced"
        for name in ("moved", "moved-again", "cut", "late"):
            seen.setdefault(name, set()).add(len(left[name]) if name in left else -1)
    assert min(seen["moved"]) == min(seen["moved-again"]) == min(seen["late"]) == -1
    assert 0 <= min(seen["cut"]) < 10_000
    assert min(size for size in seen["moved-again"] if size >= 0) < 20_000


CHILD = """
import os
with open("{root}/child", "wb") as file:
    file.write(b"5" * 10_000)
    file.flush()
    os.fsync(file.fileno())
"""
STARTER = """
import os, subprocess, sys
subprocess.run([sys.executable, "-P", "-c", {child!r}], env={{}}, check=True)
folder = os.open("{root}", os.O_RDONLY)
os.fsync(folder)
"""


def test_what_a_process_synced_counts_whatever_environment_it_was_given(tmp_path: Path) -> None:
    """Readers of files are given nothing of the service's environment; their syncs count."""
    disk = LossyDisk(tmp_path / "machine")
    code = STARTER.format(root=disk.root, child=CHILD.format(root=disk.root))
    environment = {**os.environ, **disk.environment}
    subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, check=True)
    disk.lose(random.Random(SEED))
    assert (disk.root / "child").read_bytes() == b"5" * 10_000
