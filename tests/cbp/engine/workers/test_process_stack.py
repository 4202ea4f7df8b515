"""Where a worker is: its calls are seen while it runs, waits or hangs, and it goes on as before."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Output, TranslateRecords
from cbp.engine.direct import LocalEngine
from cbp.engine.interface.runs import ProcessStack
from cbp.engine.workers.process_stack import ANSWER_SECONDS, StackFile, ask_all, calls_of
from cbp.engine.workers.worker_executor import WorkerExecutor
from cbp.errors import RunCancelledError
from tests.driver import Driver
from tests.simulated_time import ManualClock
from tests.waiting import until, wait_for_file

HANGS = re.compile(r"(a+)+$")


class Slow(TranslateRecords):
    """Waits for a file; or for a regular expression, which holds the interpreter for years."""

    files = Input("file STRING")
    seen = Output("pid BIGINT")

    def translate(self, record: Any, out: Any) -> None:
        if record.file:
            wait_for_file(Path(record.file))
        else:
            HANGS.match("a" * 60 + "b")
        out.seen(pid=os.getpid())


class Under:
    """A run under way, in a thread of its own."""

    def __init__(self, workers: WorkerExecutor, root: Path, file: str) -> None:
        flow = DataflowBuilder("slow")
        flow.stage("one", Slow(), files=flow.source("files", "file STRING"))
        engine = LocalEngine(cache=f"{root}/cache", executor=workers)
        self._workers, self._driver = workers, Driver(engine, flow.build(), root / "slow")
        self._driver.feed("files", [{"file": file}])
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.run = until(lambda: next(iter(workers._serving.values()), ""))

    def _run(self) -> None:
        try:
            self._driver.run_until_idle()
        except Exception as error:
            self.error = error

    def in_author(self) -> ProcessStack:
        """Wait until it is in the author's code; return where it is."""

        def stack() -> ProcessStack | None:
            for one in self._workers.stacks(self.run):
                if any(
                    call.file == __file__ and call.function == "translate" for call in one.calls
                ):
                    return one
            return None

        found = until(stack)
        assert found is not None
        return found

    def end(self) -> list[Any]:
        self._thread.join()
        return [] if self.error else self._driver.outputs("one.seen")[-1]


@pytest.fixture
def workers() -> Iterator[WorkerExecutor]:
    made = WorkerExecutor()
    yield made
    made.close()


def line_of(text: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = (n for n, line in enumerate(lines, 1) if line.strip() == text)
    return number


def test_a_run_that_waits_is_seen_and_goes_on(workers: WorkerExecutor, tmp_path: Path) -> None:
    """Each time it is asked, from the outermost call to the innermost; its result is as ever."""
    under = Under(workers, tmp_path, f"{tmp_path}/go")
    for _ in range(3):
        stack = under.in_author()
        calls = [(call.line, call.function) for call in stack.calls if call.file == __file__]
        assert calls == [(line_of("wait_for_file(Path(record.file))"), "translate")]
        assert stack.calls[0].function == "<module>"
        assert stack.calls[-1].function == "pause"
        assert stack.pid in workers.pids
    assert workers.stacks("another") == []
    (tmp_path / "go").touch()
    ((found,),) = [tuple(row.values()) for row in under.end()]
    assert found == stack.pid
    assert workers.stacks(under.run) == [], "it has ended"


def test_code_that_holds_the_interpreter_is_seen(workers: WorkerExecutor, tmp_path: Path) -> None:
    """No Python runs in the process, and its line is named all the same."""
    under = Under(workers, tmp_path, "")
    stack = under.in_author()
    assert stack.calls[-1].line == line_of('HANGS.match("a" * 60 + "b")')
    workers.cancel(under.run)
    under.end()
    assert isinstance(under.error, RunCancelledError)


def test_a_process_that_is_stopped_has_no_calls(workers: WorkerExecutor, tmp_path: Path) -> None:
    """It is asked for a while; once it goes on, its run ends as ever."""
    under = Under(workers, tmp_path, f"{tmp_path}/go")
    (pid,) = (under.in_author().pid,)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert workers.stacks(under.run) == [ProcessStack(pid, ())]
    finally:
        os.kill(pid, signal.SIGCONT)
    (tmp_path / "go").touch()
    assert len(under.end()) == 1


def test_a_process_that_does_not_listen_is_not_disturbed() -> None:
    """As one that is still starting, or whose code has taken the handler away."""
    clock = ManualClock()
    file = StackFile(clock)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert file.ask(process.send_signal, lambda: process.poll() is not None) == ()
        assert clock.seconds() >= ANSWER_SECONDS
        process.communicate(b"\n")
        assert process.returncode == 0
        clock.waits.clear()
        assert file.ask(process.send_signal, lambda: process.poll() is not None) == ()
        assert clock.waits == [], "it has ended"
    finally:
        process.kill()
        file.close()
    assert file.ask(process.send_signal, lambda: False) == (), "the file is closed"


class Entered:
    """A lock that counts those that hold it, held it or wait for it."""

    def __init__(self) -> None:
        self._lock, self._count, self.entered = threading.Lock(), threading.Lock(), 0

    def __enter__(self) -> None:
        with self._count:
            self.entered += 1
        self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        self._lock.release()


def test_those_that_wait_for_a_silent_process_are_told_at_once() -> None:
    """However many ask while it is being asked, it gets one signal; the next one asks again."""
    clock, signals, answers = ManualClock(), list[int](), list[tuple[Any, ...]]()
    file = StackFile(clock)
    threads: list[threading.Thread] = []

    def ask() -> None:
        answers.append(file.ask(signals.append, lambda: False))

    def first(number: int) -> None:
        signals.append(number)
        threads.extend(threading.Thread(target=ask) for _ in range(5))
        for thread in threads:
            thread.start()
        until(lambda: waiting.entered == 6)

    waiting: Any = Entered()
    file._lock = waiting
    assert file.ask(first, lambda: False) == ()
    for thread in threads:
        thread.join()
    assert (signals, answers) == ([signal.SIGURG], [()] * 5)
    assert file.ask(signals.append, lambda: False) == ()
    assert len(signals) == 2
    file.close()


def test_all_processes_are_asked_at_the_same_time() -> None:
    """So silent ones take the time of one; the answers come in the order of the processes."""
    together = threading.Barrier(8, timeout=60)

    def ask(number: int) -> int:
        together.wait()
        return -number

    assert ask_all(ask, list(range(8))) == [-number for number in range(8)]
    assert ask_all(ask, []) == []


def test_a_stack_is_read_as_it_is_written() -> None:
    """Names with spaces and quotes, the escapes of others, and the end of a deep stack."""
    text = (
        "Stack (most recent call first):\n"
        '  File "/srv/a b/x \\xe9 "q".py", line 3 in <lambda>\n'
        '  File "/srv/x.py", line ??? in f\n'
        '  File "<string>", line 1 in <module>\n'
        "  ...\n"
    )
    calls = calls_of(text)
    assert [call.line for call in calls] == [1, 3]
    assert calls[1].file == '/srv/a b/x \\xe9 "q".py'
    late = '  File "/srv/late.py", line 9 in late\n  File "<string>", line 1 in <module>\n'
    assert calls_of(late + text) == calls_of(text + text) == calls
    assert calls_of(late) == (), "the end of an earlier answer"
