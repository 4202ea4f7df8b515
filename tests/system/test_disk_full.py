"""A full disk under a running service: nothing is lost, and with space again it goes on.

The service's folder, database included, is on a tmpfs of a few megabytes, which only
root may mount; elsewhere these tests are skipped.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.machine import fill_disk, small_disk
from tests.system.processes import REPOSITORY, TOKEN, Instance, until
from tests.system.workload import Workload

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

SEED = int(os.environ.get("CBP_SEED", "1"))
FILLED = int(os.environ.get("CBP_FILLED", "1"))
"""How often the disk is filled but for some bytes, before it is filled to the last one."""
DISK_MEGABYTES = 48


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Give a small disk."""
    with small_disk(tmp_path / "disk", f"{DISK_MEGABYTES}m") as folder:
        yield folder


def test_a_full_disk_stops_work_and_loses_nothing(disk: Path, tmp_path: Path) -> None:
    """Filled in the middle of runs, so that now this and now that write is the first to fail."""
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    # What producers drop is elsewhere: theirs is not the disk that is full.
    elsewhere: dict[str, Any] = {"cache": tmp_path / "cache", "drop_root": tmp_path / "drop"}
    service = Instance(disk, "one", engine="local", logs=tmp_path, **elsewhere)
    service.start()
    try:
        service.wait()
        work = Workload(service.settings, tmp_path, chance)
        work.register()
        work.drop()
        work.wait_until_idle()
        for left in [*chance.choices([4096, 20_000, 60_000, 150_000], k=FILLED), 0]:
            for _ in range(2):
                work.drop()
            time.sleep(chance.uniform(0, 0.5))
            ballast = fill_disk(disk, left_bytes=left)
            if left:
                time.sleep(2)
            else:  # what was dropped before may be applied by now
                work.drop()
                until(lambda: "no space left" in _said(tmp_path), "it does not tell the full disk")
            assert service.answers_at_all(), "a full disk ended the service"
            assert signs_in(service), "whoever can make room cannot look"
            ballast.unlink()
            _resume_stages(work)
            until(service.answers, "not ready again")
            work.wait_until_idle()
            work.check()
    finally:
        service.kill()


def test_a_full_or_read_only_disk_is_said_by_an_idle_service(disk: Path, tmp_path: Path) -> None:
    """By `cbp status`, by `cbp alerts` and by a metric, though nothing fails; then all is well."""
    elsewhere: dict[str, Any] = {"cache": tmp_path / "cache", "drop_root": tmp_path / "drop"}
    service = Instance(disk, "one", engine="local", logs=tmp_path, **elsewhere)
    service.start()
    try:
        service.wait()
        work = Workload(service.settings, tmp_path, random.Random(SEED))
        work.register()
        work.drop()
        work.wait_until_idle()
        ballast = fill_disk(disk)
        assert_said(service, "is full", "free some space")
        ballast.unlink()
        with read_only(disk):
            assert_said(service, "the service cannot write to", "mount the disk for writing")
        work.drop()
        work.wait_until_idle()
        work.check()
        assert not asked(service, "freshness")["service"]
    finally:
        service.kill()


def assert_said(service: Instance, what: str, action: str) -> None:
    """Ask a service in every way how it is."""
    fresh = asked(service, "freshness")
    assert fresh["state"] == "stuck"
    assert what in fresh["service"][0]
    assert action in fresh["service"][0]
    (alert,) = [one for one in asked(service, "alerts")["standing"] if one["kind"] == "disk"]
    assert alert["severity"] == "critical"
    assert what in alert["summary"]
    assert action in alert["action"]
    environment = {**os.environ, "CBP_TOKEN": TOKEN, "CBP_PORT": str(service.settings.port)}
    command = [sys.executable, "-m", "controller.cli", "status"]
    done = subprocess.run(
        command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert (done.returncode, what in " ".join(done.stdout.split())) == (4, True), done
    metrics = answer_of(service, "metrics").text
    free, writable = (f'cbp_disk_{name}{{folder="root"}} ' for name in ("free_bytes", "writable"))
    assert f"{free}0.0" in metrics or f"{writable}0.0" in metrics


def asked(service: Instance, path: str) -> dict[str, Any]:
    return dict(answer_of(service, path).json())


def answer_of(service: Instance, path: str) -> httpx.Response:
    url, told = f"{service.settings.url}/api/v1/{path}", {"Authorization": f"Bearer {TOKEN}"}
    return httpx.get(url, headers=told, trust_env=False, timeout=60).raise_for_status()


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Put a read-only view over a disk; a kernel that gives a disk up asks no open file either."""
    subprocess.run(["mount", "--bind", str(disk), str(disk)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def signs_in(service: Instance) -> bool:
    """Begin a session as the page does, and tell whether its cookie is accepted."""
    url = f"{service.settings.url.rstrip('/')}/api/v1/session"
    with httpx.Client(trust_env=False, headers={"X-CBP-Request": "1"}, timeout=60) as browser:
        browser.post(url, json={"token": TOKEN}).raise_for_status()
        return bool(browser.get(url).raise_for_status().json()["session"])


def _said(logs: Path) -> str:
    return "".join(log.read_text() for log in logs.glob("one-*.log")).lower()


def _resume_stages(work: Workload) -> None:
    """Do what an operator does once there is space: stages may have given up meanwhile."""
    until(lambda: work.tells("pause") and work.tells("resume"), "it does not resume")
