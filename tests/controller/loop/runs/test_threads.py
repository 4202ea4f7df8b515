"""Executors without a pool: a thread for each piece of work."""

from __future__ import annotations

import threading

import pytest

from controller.loop.runs.threads import Threads


def refuse(thread: threading.Thread) -> None:
    """Start nothing, as in a process that cannot have more threads."""
    raise RuntimeError(thread.name)


def test_work_without_a_thread_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller is told, and an orderly stop does not wait for a thread that never started."""
    threads = Threads("runs")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            threads.submit(int)
    done = threads.submit(int)
    threads.shutdown()
    assert done.result() == 0
    assert threads._futures == set()
