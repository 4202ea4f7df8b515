"""What an author's code logs in a worker process comes to the service, with its answer."""

from __future__ import annotations

import logging
import os
import pickle
from functools import partial

import pytest
import structlog

from cbp.engine.workers.task_worker import Done
from cbp.engine.workers.worker_executor import _Worker, answers_of


def test_lines_come_in_the_thread_and_context_of_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """In order, by the author's logger and level, before the answer; lower levels stay away."""
    seen = list[dict[str, object]]()

    class Seen(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(structlog.contextvars.get_contextvars())

    handler = Seen()
    logging.getLogger("author").addHandler(handler)
    author = logging.getLogger("author")
    requests = [
        partial(author.info, "counts %s", "/docs"),
        partial(author.debug, "too low"),
        partial(author.error, "100 % wrong"),
    ]
    try:
        with caplog.at_level(logging.INFO), structlog.contextvars.bound_contextvars(run="r1"):
            worker = _Worker(0, os.environ, None)
            answers = [answers_of([worker], [pickle.dumps(one)])[0] for one in requests]
            worker.close()
    finally:
        logging.getLogger("author").removeHandler(handler)
    assert answers == [Done(None)] * 3
    lines = [(one.name, one.levelname, one.getMessage()) for one in caplog.records]
    assert lines == [("author", "INFO", "counts /docs"), ("author", "ERROR", "100 % wrong")]
    assert seen == [{"run": "r1"}] * 2
