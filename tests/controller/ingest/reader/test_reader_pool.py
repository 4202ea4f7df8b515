"""Files are read in processes that can be ended: by time, by memory, by a stop, by a crash.

A file that takes too much time or memory, or ends its reader twice, is quarantined while others go
on; no reader outlives its service.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from cbp.model.dataflow.nodes import FileBatch, SourceNode
from cbp.model.flow.schema import Schema
from controller.ingest.errors import DropFolderError, IntakeStoppedError, device_errors
from controller.ingest.formats.file_bytes import never
from controller.ingest.limits import IngestLimits
from controller.ingest.reader import reader_process
from controller.ingest.reader.file_reader import (
    ClaimedFile,
    FileReader,
    ReadRequest,
    ReadResult,
    read_files,
)
from controller.ingest.reader.reader_pool import ReaderPool, _Watch
from controller.ingest.rejection import FileRejectedError
from tests.controller.ingest.harness import Drop, lines
from tests.controller.world import until
from tests.simulated_time import ManualClock

SCHEMA = "id BIGINT, name STRING"
WAIT_SECONDS = 120


@pytest.fixture(scope="module")
def pool() -> Iterator[ReaderPool]:
    made = ReaderPool()
    yield made
    made.close()


def request_of(folder: Path, data: bytes, format_: str = "jsonl", **limits: float) -> ReadRequest:
    path = folder / "claimed"
    path.write_bytes(data)
    (folder / "out").mkdir(exist_ok=True)
    return ReadRequest(
        files=(ClaimedFile(str(path), len(data), "c1", "f"),),
        source=SourceNode("orders", Schema.parse(SCHEMA), format_, {}),
        folder=str(folder / "out"),
        index=0,
        limits=replace(IngestLimits(), **limits),  # type: ignore[arg-type]
    )


def test_the_first_files_find_processes_that_were_started_for_them(tmp_path: Path) -> None:
    """Two are kept, since a backlog has one, and one that ended is replaced; none once closed."""
    pool = ReaderPool()
    try:
        pool.warm()
        (pid,) = pool.pids
        pool(request_of(tmp_path, lines(1)))
        assert pool.pids == [pid]
        for _ in range(2):
            pool.warm()
            assert len(pool.pids) == 2
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        pool.warm()
        assert len(pool.pids) == 2
        assert pid not in pool.pids
    finally:
        pool.close()
    pool.warm()
    assert pool.pids == []


def test_a_process_reads_as_the_thread_does(pool: ReaderPool, tmp_path: Path) -> None:
    """Parts, digest and remarks are the same wherever a file is read, and so is a reason."""
    results, reasons = list[ReadResult](), list[dict[str, object]]()
    readers: list[FileReader] = [read_files, pool]
    for number, read in enumerate(readers):
        folder = tmp_path / str(number)
        folder.mkdir()
        results.append(read(request_of(folder, lines(1000))))
        (part,) = results[-1].parts
        table = pq.read_table(folder / "out" / f".{part.name}.tmp")
        assert table["id"].to_pylist() == list(range(1000))
        (refused,) = read(request_of(folder, lines(3) + b"{\n")).outcomes
        assert isinstance(refused, FileRejectedError)
        reasons.append(refused.reason(file="f", claim="c"))
        os.unlink(folder / "out" / f".{part.name}.tmp")
        assert not list((folder / "out").iterdir()), "what is rejected leaves nothing"
    assert results[0] == results[1]
    assert reasons[0] == reasons[1]
    assert (reasons[0]["code"], reasons[0]["line"]) == ("json_invalid", 4)


def test_a_drop_folder_takes_in_what_a_process_read(pool: ReaderPool, tmp_path: Path) -> None:
    """Accepted and refused files are settled as ever, one process for all."""
    drop = Drop(tmp_path, SCHEMA, reader=pool)
    drop.put("1", lines(2))
    drop.put("2", b"{\n")
    drop.put("3", lines(1, start=2))
    before = pool.pids
    report = drop.scan()
    assert (report.accepted, report.quarantined) == (2, 1)
    assert [row["id"] for row in drop.rows()] == [0, 1, 2]
    assert [reason["code"] for reason in drop.reasons()] == ["json_invalid"]
    assert len(pool.pids) == 1
    assert not before or pool.pids == before


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (OSError(errno.EROFS, "Read-only file system", "/x/part.tmp"), "/x/part.tmp"),
        (OSError(errno.EROFS, "Read-only file system"), "out"),
        (OSError(errno.EIO, "Input/output error"), "claimed"),
    ],
)
def test_an_error_names_what_was_written_or_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, named: str
) -> None:
    """The dropped file is not to blame for a disk of tables that cannot be written."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(reader_process, "read_files", fail)
    monkeypatch.setattr(reader_process, "limit_memory", lambda _: None)
    progress: Any = SimpleNamespace(seconds=lambda: 0.0, add=None, begin=None, is_over=never)
    failed = reader_process.answer(request_of(tmp_path, lines(1)), progress)
    assert isinstance(failed, OSError)
    sent = pickle.loads(pickle.dumps(failed))
    assert sent.filename == (named if named[0] == "/" else str(tmp_path / named))
    with pytest.raises(DropFolderError, match=named), device_errors("claimed"):
        raise sent


def test_a_file_that_takes_too_long_is_refused(pool: ReaderPool, tmp_path: Path) -> None:
    """Whatever holds the interpreter is ended with its process; the next file is read."""
    # So little is allowed that any file which is looked at once is too slow.
    limits = IngestLimits(seconds_max=0.0, bytes_per_second_min=1 << 40)
    drop = Drop(tmp_path, SCHEMA, reader=pool, limits=limits)
    drop.put("slow", lines(400_000))
    assert drop.scan().quarantined == 1
    (reason,) = drop.reasons()
    assert reason["code"] == "file_too_slow"
    assert "CBP_FILE_SECONDS_MAX" in reason["message"]
    assert not list(Path(drop.record.folder).rglob("*.tmp"))
    assert pool(request_of(tmp_path, lines(1))).parts


def test_a_file_that_takes_too_much_memory_is_refused(pool: ReaderPool, tmp_path: Path) -> None:
    """One line may hold more than memory: this file is refused, and its process reads on."""
    data = b'{"id": 1, "name": "a", "x": [' + b"[]," * 4_000_000 + b"1]}\n"
    drop = Drop(tmp_path, SCHEMA, reader=pool, limits=IngestLimits(memory_bytes_max=100 << 20))
    drop.put("large", data)
    drop.scan()
    (reason,) = drop.reasons()
    assert reason["code"] == "file_too_large_in_memory"
    assert "CBP_FILE_MEMORY_BYTES_MAX" in reason["message"]
    drop.put("next", lines(1))
    assert drop.scan().accepted == 1


def test_a_stop_is_heard_while_a_file_is_read(pool: ReaderPool, tmp_path: Path) -> None:
    """Who reads leaves off at once, and nothing of the file is left to name."""
    asked = threading.Event()

    def stopping() -> bool:
        asked.set()
        return True

    request = request_of(tmp_path, lines(400_000))
    with pytest.raises(IntakeStoppedError):
        pool(request, stopping)
    assert asked.is_set()
    assert pool(request).parts


@pytest.mark.part(every=2)
@pytest.mark.parametrize("batch", [FileBatch(files=1), FileBatch()])
def test_a_reader_that_is_stopped_is_shown_long_before_it_is_ended(
    batch: FileBatch, tmp_path: Path
) -> None:
    """At its source, with the file; and no more once it reads on, or was ended."""
    clock = ManualClock()
    pool, stuck = ReaderPool(seconds=clock.seconds), list[list[str]]()
    drop = Drop(tmp_path, SCHEMA, batch=batch, stuck=pool.stuck, reader=pool)
    drop.put("warm.jsonl", lines(1))
    assert drop.scan().accepted == 1  # the process has started
    assert drop.folder.troubled("shop") == []
    (pid,) = pool.pids

    def passes() -> None:
        drop.put("a.jsonl", lines(10, start=1))
        drop.put("b.jsonl", lines(1, start=500_000))
        drop.scan()

    def is_shown_a_second_later() -> list[str]:
        clock.move(seconds=1)
        return drop.folder.troubled("shop")

    os.kill(pid, signal.SIGSTOP)
    thread = threading.Thread(target=passes)
    thread.start()
    try:
        stuck.append(until(is_shown_a_second_later))
        (shown,) = drop.folder.look(drop.record, drop.dataflow)
    finally:
        os.kill(pid, signal.SIGCONT)
        thread.join()
        pool.close()
    assert stuck[0][0].startswith("source orders: the process that reads 'a.jsonl' has made")
    assert "has made no progress" in shown["warning"]
    assert drop.folder.troubled("another") == drop.folder.troubled("shop") == []
    assert len(drop.rows()) == 12


def test_a_stuck_reader_is_shown_with_the_file_of_its_batch_that_it_reads(tmp_path: Path) -> None:
    """The files before it were read."""
    request = request_of(tmp_path, lines(1))
    request = replace(request, files=(*request.files, replace(request.files[0], file="second")))
    process: Any = SimpleNamespace(processor_seconds=lambda: 0.0, position=lambda: 1)
    clock = ManualClock()
    watch = _Watch(process, request, clock.seconds)
    watch.check()
    clock.move(seconds=60)
    stuck = watch.stuck(clock.seconds())
    assert stuck is not None
    assert stuck.file == "second"


def test_a_process_that_cannot_be_started_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again at each pass, so the service would run out of descriptors."""

    def fails(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    pool, request = ReaderPool(), request_of(tmp_path, lines(1))
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", fails)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with pytest.raises(BlockingIOError):
                pool(request)
        assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.part(every=2, first=1)
@pytest.mark.parametrize("times", [1, 2])
def test_a_reader_that_is_killed_is_tried_once_more(times: int, tmp_path: Path) -> None:
    """Killed once the file is read by another; killed twice it is refused, with the signal."""
    pool, killed = ReaderPool(), set[int]()

    def kill() -> bool:
        for pid in pool.pids:
            if pid not in killed and len(killed) < times:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
        return False

    drop = Drop(tmp_path, SCHEMA, reader=pool)
    drop.put("a", lines(200_000))
    report = drop.folder.scan(drop.record, drop.dataflow, stopping=kill)
    pool.close()
    assert len(killed) == times
    assert (report.accepted, report.quarantined) == ((1, 0) if times == 1 else (0, 1))
    if times == 2:
        (reason,) = drop.reasons()
        assert (reason["code"], reason["cause"]) == ("file_ends_reader", "SIGKILL")
    else:
        assert len(drop.rows()) == 200_000
    assert not list(Path(drop.record.folder).rglob("*.tmp"))


@pytest.mark.soak
@pytest.mark.part(every=2, first=1)
@pytest.mark.parametrize("times", [1, 2])
def test_a_reader_that_is_killed_in_a_batch_costs_no_file(times: int, tmp_path: Path) -> None:
    """What it had begun is read again, by itself in the end; the order stays."""
    pool, killed = ReaderPool(), set[int]()

    def kill() -> bool:
        for pid in pool.pids:
            if pid not in killed and len(killed) < times:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
        return False

    drop = Drop(tmp_path, SCHEMA, reader=pool, batch=FileBatch(files=9))
    drop.put("a", lines(1))
    drop.put("b", lines(100_000, start=1))
    drop.put("c", lines(1, start=100_001))
    report = drop.folder.scan(drop.record, drop.dataflow, stopping=kill)
    pool.close()
    assert (len(killed), report.accepted) == (times, 3)
    assert [row["id"] for row in drop.rows()] == list(range(100_002))
    assert not list(Path(drop.record.folder).rglob("*.tmp"))


def test_a_batch_of_slow_files_ends_in_time(pool: ReaderPool, tmp_path: Path) -> None:
    """No file is begun once the time of a pass is over; the next passes go on with the rest."""
    drop = Drop(
        tmp_path,
        SCHEMA,
        reader=pool,
        batch=FileBatch(),
        limits=IngestLimits(scan_seconds=0.0),
    )
    for number in range(3):
        drop.put(f"f{number}", lines(1, start=number))
    assert [drop.scan().ready for _ in range(3)] == [2, 1, 0]
    assert [row["id"] for row in drop.rows()] == [0, 1, 2]
    assert len(drop.increments()) == 3


def test_a_batch_that_is_hurried_ends_behind_its_file(pool: ReaderPool, tmp_path: Path) -> None:
    """What was read by then is returned, as one increment; the process reads the next batch."""
    file = tmp_path / "f"
    file.write_bytes(lines(20_000))
    claimed = (ClaimedFile(str(file), file.stat().st_size, "c1", "f"),)
    whole = request_of(tmp_path, lines(1))
    batch = replace(whole, files=claimed * 200, whole=False)
    read = pool(batch, never, lambda: True)
    assert 1 <= len(read.outcomes) < 200
    assert sum(part.records for part in read.parts) == 20_000 * len(read.outcomes)
    (pid,) = pool.pids
    assert len(pool(replace(batch, files=claimed * 2)).outcomes) == 2
    assert pool.pids == [pid]


@pytest.mark.soak
def test_a_file_of_a_batch_that_takes_too_much_memory_is_refused(
    pool: ReaderPool, tmp_path: Path
) -> None:
    """The files before and behind it are taken in, in their order, by the same process."""
    data = b'{"id": 1, "name": "a", "x": [' + b"[]," * 4_000_000 + b"1]}\n"
    drop = Drop(
        tmp_path,
        SCHEMA,
        reader=pool,
        batch=FileBatch(),
        limits=IngestLimits(memory_bytes_max=100 << 20),
    )
    for number, name in enumerate("abd"):
        drop.put(name, lines(1, start=number))
    drop.put("c", data)
    for at, name in enumerate("abcd"):
        os.utime(drop.incoming / name, (at, at))
    report = drop.scan()
    assert (report.accepted, report.quarantined) == (3, 1)
    assert [reason["code"] for reason in drop.reasons()] == ["file_too_large_in_memory"]
    assert [row["id"] for row in drop.rows()] == [0, 1, 2]
    assert len(drop.increments()) == 2


@pytest.mark.part(every=2, first=1)
@pytest.mark.soak
@pytest.mark.parametrize("times", [1, 2])
def test_a_reader_that_is_killed_on_a_manifest_is_tried_once_more(
    times: int, tmp_path: Path
) -> None:
    """Killed twice, the file is refused that it read, and the others of the manifest with it."""
    pool, killed = ReaderPool(), set[int]()
    files = {"a": lines(1), "b": lines(200_000, start=1), "c": lines(1, start=200_001)}

    def kill() -> bool:
        for pid in pool.pids:
            if pid not in killed and len(killed) < times:
                killed.add(pid)
                os.kill(pid, signal.SIGKILL)
        return False

    drop = Drop(tmp_path, SCHEMA, reader=pool)
    for name, data in files.items():
        drop.put(name, data)
    listed = [{"name": name, "bytes": len(data)} for name, data in files.items()]
    drop.put("_MANIFEST.json", json.dumps({"files": listed}).encode())
    report = drop.folder.scan(drop.record, drop.dataflow, stopping=kill)
    pool.close()
    assert len(killed) == times
    assert (report.accepted, report.quarantined) == ((3, 0) if times == 1 else (0, 3))
    assert len(drop.increments()) == (times == 1)
    if times == 2:
        codes = sorted(reason["code"] for reason in drop.reasons())
        assert codes == ["file_ends_reader", "manifest_refused", "manifest_refused"]
    assert not list(Path(drop.record.folder).rglob("*.tmp"))


PARENT = """
import threading
from controller.ingest.reader.reader_pool import _Process
process = _Process(files_max=10)
process.ready()
print(process.pid, flush=True)
threading.Event().wait()
"""


def test_an_idle_reader_ends_with_its_service() -> None:
    """Nobody is left behind a service that was killed."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent, parent.stdout:
        pid = int(parent.stdout.readline())
        parent.kill()
    until(lambda: _is_gone(pid))


HOLDING = """
import re, sys
from cbp.engine.workers.end_with_parent import end_with
end_with(int(sys.argv[1]))
print("holds", flush=True)
re.match(r"(a+)+$", "a" * 64 + "b")
"""


def test_a_reader_that_holds_the_interpreter_ends_with_its_service() -> None:
    """No thread of it runs that could notice: the kernel ends it when the pipe is closed."""
    watched, alive = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(watched)], pass_fds=[watched], stdout=subprocess.PIPE
    )
    os.close(watched)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"holds\n"
        os.close(alive)
        assert child.wait(WAIT_SECONDS) != 0


def _is_gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_reader_knows_no_secret_and_imports_from_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module in the working directory, or a token in the environment, is not the reader's."""
    (tmp_path / "pyarrow.py").write_text("raise SystemExit(1)")
    (tmp_path / "controller.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    for name in ("CBP_TOKEN", "AWS_SECRET_ACCESS_KEY", "OTEL_EXPORTER_OTLP_HEADERS", "PGPASSWORD"):
        monkeypatch.setenv(name, "hush-hush")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    pool = ReaderPool()
    try:
        assert pool(request_of(tmp_path, lines(1))).parts
        (pid,) = pool.pids
        assert b"hush-hush" not in Path(f"/proc/{pid}/environ").read_bytes()
    finally:
        pool.close()
    until(lambda: _is_gone(pid))


def test_a_reader_does_without_pandas(tmp_path: Path) -> None:
    """Arrow would import it at the first list of values, which delays the first file by far."""
    pool = ReaderPool()
    assert pool(request_of(tmp_path, lines(3))).parts
    (pid,) = pool.pids
    mapped = Path(f"/proc/{pid}/maps").read_text()
    pool.close()
    assert "pyarrow" in mapped
    assert "pandas" not in mapped


def test_a_worn_reader_is_replaced(tmp_path: Path) -> None:
    """Behind so many files a process ends, and another one reads on."""
    pool, pids = ReaderPool(files_max=2), list[int]()
    try:
        for _ in range(3):
            pool(request_of(tmp_path, lines(1)))
            pids += pool.pids
    finally:
        pool.close()
    assert len(pids) == 2
    assert len(set(pids)) == 2


@pytest.mark.bench
def test_what_a_small_file_costs(pool: ReaderPool, tmp_path: Path) -> None:
    """A small file costs a warm process less than a tenth of what a new process for it costs."""
    request = request_of(tmp_path, lines(10))

    def read_by_new_process() -> None:
        fresh = ReaderPool()
        try:
            fresh(request)
        finally:
            fresh.close()

    pool(request)
    warm, cold = list[float](), list[float]()
    for _ in range(5):  # in turn, so that a busy machine slows both
        warm += [seconds_of(lambda: pool(request)) for _ in range(10)]
        cold.append(seconds_of(read_by_new_process))
    print(f"\n{min(warm) * 1000:.2f} ms warm, {min(cold) * 1000:.2f} ms in a new process")
    assert min(warm) < min(cold) / 10


def seconds_of(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


@pytest.mark.parametrize("whole", [True, False])
def test_a_refusal_keeps_no_records_in_memory(tmp_path: Path, whole: bool) -> None:
    """Outcomes are kept until their batch ends; tracebacks, also of causes, have all records."""
    request = replace(request_of(tmp_path, b'{"id": 1, "name": "\xff"}\n'), whole=whole)
    (refused,) = read_files(request).outcomes
    assert isinstance(refused, FileRejectedError)
    assert refused.rule == "encoding"
    assert (refused.__traceback__, refused.__cause__, refused.__context__) == (None, None, None)
