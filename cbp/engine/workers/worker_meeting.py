"""Lets several workers do the tasks of one run at the same time, and meet before they begin.

    request to each worker -> Meeting of each -> all texts to each -> answer of each

Guaranteed: if one ends without an answer, it is named at once, whatever the others do. If one
answers before all have met, those that wait for it are notified.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait

from cbp.engine.workers.task_worker import Answer, LogLine, Meeting
from cbp.engine.workers.worker_process import POLL_SECONDS, WorkerProcess


class TaskEndedError(Exception):
    """A worker ended without an answer.

    Args:
        part: Its number among the workers.
    """

    def __init__(self, part: int) -> None:
        self.part = part
        super().__init__(part)


def answers_of(workers: Sequence[WorkerProcess], requests: Sequence[bytes]) -> list[Answer]:
    """Let each worker do its request; return their answers, by worker.

    Raises:
        TaskEndedError: A worker ended without one.
    """
    for worker, request in zip(workers, requests, strict=True):
        worker.send(request)
    answers: dict[int, Answer] = {}
    met: dict[int, str] = {}
    while len(answers) < len(workers):
        for part in _ready(workers, answers):
            try:
                message = pickle.loads(workers[part].link.recv_bytes())
            except (EOFError, OSError) as exc:
                raise TaskEndedError(part) from exc
            match message:
                case LogLine(logger, level, text):
                    # Here, in the thread of the run, whose entries have its fields.
                    logging.getLogger(logger).log(level, "%s", text)
                case Meeting(text):
                    met[part] = text
                    _introduce(workers, met, answers)
                case _:
                    answers[part] = message
                    _introduce(workers, met, answers)
    return [answers[part] for part in range(len(workers))]


def _introduce(
    workers: Sequence[WorkerProcess], met: dict[int, str], answers: Mapping[int, Answer]
) -> None:
    """Send waiting workers the texts of all, or that one will not come; clears `met`."""
    if len(met) == len(workers):
        told: list[str] | None = [met[part] for part in range(len(workers))]
    elif met and answers:
        told = None
    else:
        return
    for part in met:
        workers[part].send(pickle.dumps(told))
    met.clear()


def _ready(workers: Sequence[WorkerProcess], answers: Mapping[int, Answer]) -> list[int]:
    """Wait until workers that have not answered have something to read; return their numbers.

    Raises:
        TaskEndedError: One has ended, and left nothing to read.
    """
    links = {one.link: part for part, one in enumerate(workers) if part not in answers}
    ready = [links[link] for link in wait([*links], POLL_SECONDS) if link in links]
    for part in links.values():
        # A process that the author's code forked may hold the pipe open beyond the worker's end.
        if not ready and workers[part].ended and not workers[part].link.poll(0):
            raise TaskEndedError(part)
    return sorted(ready)
