"""The demo as a whole, with a real service in a process of its own."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.server.service_process import free_port
from tests.gate.service_logs import ended, watch

ARGUMENTS = ("demo", "--engine", "local", "--limit", "150", "--increments", "2")
OFFERED = {point.name for point in importlib.metadata.entry_points(group="cbp.dataflows")}

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif("crawl_queue" not in OFFERED, reason="this checkout is not installed"),
]


def start(tmp_path: Path, *more: str) -> subprocess.Popen[str]:
    """Start the demo, from another folder, with a temporary folder of its own."""
    temporary = tmp_path / "tmp with a space"
    temporary.mkdir(exist_ok=True)
    environment = {name: v for name, v in os.environ.items() if not name.startswith("CBP_")}
    return subprocess.Popen(
        [sys.executable, "-m", "controller.cli", *ARGUMENTS, *more],
        env={
            **environment,
            "TMPDIR": str(temporary),
            "CBP_PORT": str(free_port()),
            "PYTHONIOENCODING": "ascii",  # nothing that it prints needs more
        },
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def folders(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "tmp with a space").glob("cbp-demo-*"))


def processes_in(folder: Path) -> list[int]:
    """Return the processes that work in this folder or below."""
    actual = []
    for entry in Path("/proc").iterdir():
        try:
            where = (entry / "cwd").readlink()
        except OSError:
            continue
        if entry.name.isdigit() and where.is_relative_to(folder):
            actual.append(int(entry.name))
    return actual


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Give the result of one demo that left its service running."""
    tmp_path = tmp_path_factory.mktemp("kept")
    process = start(tmp_path, "--keep", "--json")
    output, _ = process.communicate(timeout=240)
    for folder in folders(tmp_path):
        watch(folder / "service.log")
    try:
        assert process.returncode == 0, output
        yield tmp_path, json.loads(output)
    finally:
        for folder in folders(tmp_path):
            ended(folder / "service.log")
            for pid in processes_in(folder):
                os.kill(pid, signal.SIGKILL)


def test_every_check_holds(kept: tuple[Path, dict[str, Any]]):
    """All tables are what they must be, and the ten documents touched what they had to."""
    _, result = kept
    assert [check["ok"] for check in result["checks"]] == [True, True, True]
    assert all(check["records"] for check in result["checks"])
    for stage in result["last"]["stages"]:
        assert stage["groups_called"] == stage["groups_expected"] < stage["groups_held"]
        assert stage["state_written"] == stage["state_expected"]


def test_json_is_the_only_output(kept: tuple[Path, dict[str, Any]]):
    """With --json the output is one document, with every run and the stages in it."""
    _, result = kept
    assert len(result["increments"]) == 2
    assert result["corpus"]["pages"] == 150
    together = [["extract_links", "count_in_links"], ["merge", "score"], ["threshold"]]
    assert [run["stages"] for run in result["runs"]] == 3 * together


def test_kept_means_that_the_service_goes_on(kept: tuple[Path, dict[str, Any]]):
    """With --keep the service and its tables are there after the demo has ended."""
    tmp_path, result = kept
    (folder,) = folders(tmp_path)
    assert processes_in(folder)
    assert Path(result["tables"], "state", "threshold.queue", "_delta_log").is_dir()


@pytest.mark.soak
def test_the_end_leaves_nothing_behind(tmp_path: Path):
    """Without --keep neither process nor folder is left, and the output is plain lines."""
    process = start(tmp_path)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    assert folders(tmp_path) == []
    assert "Done in" in output
    assert "\x1b" not in output


@pytest.mark.part(every=3)
@pytest.mark.soak
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_leaves_nothing_behind(tmp_path: Path, which: signal.Signals):
    """Ctrl-C, kill and a closed terminal stop the service too, even with --keep."""
    process = start(tmp_path, "--keep")
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("  service"):
            break
    (folder,) = folders(tmp_path)
    pids = processes_in(folder)
    assert pids, lines
    process.send_signal(which)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert [pid for pid in pids if Path("/proc", str(pid)).exists()] == []
    assert folders(tmp_path) == []


@pytest.mark.soak
def test_too_few_pages_is_one_clear_error(tmp_path: Path):
    """A limit that cannot be split says so, and the service that was starting is stopped."""
    process = start(tmp_path, "--limit", "20", "--increments", "50", "--json")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert json.loads(output)["error_code"] == "demo_corpus_too_small"
    (folder,) = folders(tmp_path)
    assert processes_in(folder) == []
