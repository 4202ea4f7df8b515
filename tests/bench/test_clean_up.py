"""A benchmark that ends, however it does, leaves neither processes nor its folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.clean_up import CleanUp
from tests.bench.run import PREFIX
from tests.waiting import until

REPO = Path(__file__).resolve().parents[2]

SERVICE = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
wait = "import signal; signal.pause()"
child = subprocess.Popen([sys.executable, "-c", wait], process_group=0)
print(child.pid, flush=True)
signal.pause()
"""
"""Ignores that it is asked to end, and has a child in a process group of its own."""

BENCHMARK = f"""
import signal, subprocess, sys
from pathlib import Path
from tests.bench.clean_up import CleanUp

with CleanUp(Path(sys.argv[1])) as behind:
    command = [sys.executable, "-c", {SERVICE!r}]
    service = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    behind.add_session(service.pid)
    print(service.pid, service.stdout.readline(), flush=True)
    signal.pause()
"""


def is_alive(process_id: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] != b"Z"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_whatever_ends_a_benchmark_its_service_and_its_folder_go(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Also if the service ignores SIGTERM, and has children in groups of their own."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").write_bytes(b"1")
    command = [sys.executable, "-c", BENCHMARK, str(folder)]
    with subprocess.Popen(
        command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as benchmark:
        assert benchmark.stdout is not None
        started = [int(one) for one in benchmark.stdout.readline().split()]
        assert all(map(is_alive, started))
        benchmark.send_signal(number)
        assert benchmark.wait(60) != 0
    until(lambda: not any(map(is_alive, started)) and not folder.exists())


def test_a_folder_that_is_to_be_kept_stays(tmp_path: Path) -> None:
    """The processes end all the same, before the context is left."""
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True
    )
    with CleanUp(None) as behind:
        behind.add_session(sleeper.pid)
    assert sleeper.wait(60) == -signal.SIGKILL
    with CleanUp(tmp_path / "none"):
        pass
    assert tmp_path.exists()


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_benchmark_of_the_service_ends_at_once(tmp_path: Path, number: signal.Signals) -> None:
    """In the middle of a backlog, too: no process of it is left, and no folder."""
    command = [sys.executable, "-m", "tests.bench", "run", "service", "--engine", "local"]
    command += ["--state-keys", "1000", "--files", "0", "--ingest", "0", "--reads", "0"]
    command += ["--backlog", "20000", "--backlog-lines", "10", "--increment", "10"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(REPO)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as benchmark:
        pattern = f"{PREFIX}*/service/drop/bench_backlog/lines/finished/*"
        until(lambda: next(tmp_path.glob(pattern), None))
        benchmark.send_signal(number)
        assert benchmark.wait(60) != 0
    until(lambda: not list(tmp_path.glob(f"{PREFIX}*")) and not _processes_with(tmp_path))


def _processes_with(folder: Path) -> list[str]:
    """Return the processes whose environment names a folder."""
    environments = Path("/proc").glob("[0-9]*/environ")
    return [path.parent.name for path in environments if os.fsencode(folder) in _read(path)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended, or is not ours
        return b""
