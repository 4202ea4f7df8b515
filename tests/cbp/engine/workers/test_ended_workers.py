"""A worker that ended: whose line it was, or that nobody can say."""

from __future__ import annotations

from typing import Any

import pytest

from cbp.engine.workers import ended_workers
from cbp.engine.workers.ended_workers import ended_worker
from cbp.errors import AuthorProcessError, WorkerEndedError
from tests.cbp.engine.epochs import dataflow_of

NODES = tuple(dataflow_of("url_count").stages.values())
PLACE = NODES[0].translator.place
AUTHOR = PLACE.rpartition(":")[0]
ENGINE = ended_workers.__file__.replace("workers/ended_workers", "bucket")
HEAD = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.runJob.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 "
    "failed 1 times, most recent failure: Lost task 0.0 in stage 0.0 (TID 0) (localhost executor "
    "driver): org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): "
)
CRASH = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x0 (most recent call first):\n"
JAVA = "\n\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:711)" * 40


def frames(*files: Any) -> str:
    """Return frames as `faulthandler` writes them, innermost first."""
    return "".join(f'  File "{file}", line {line} in f\n' for file, line in files)


@pytest.mark.parametrize("deep", [0, 500])
def test_a_crash_in_an_authors_code_names_its_line(deep: int) -> None:
    """The innermost line of the author's file, however deep in libraries it crashed."""
    below = [("/lib/ctypes/__init__.py", 519 + at) for at in range(deep)]
    stack = frames(*below, (AUTHOR, 13), (AUTHOR, 11), (ENGINE, 214))
    error = ended_worker("r1", NODES, HEAD + CRASH + stack + JAVA)
    assert isinstance(error, AuthorProcessError)
    assert error.details["place"] == f"{AUTHOR}:13"
    assert error.details["stage"] == NODES[0].name
    assert "Segmentation fault" in error.details["cause"]
    assert not error.code.startswith("spark")


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        ("\n", ""),
        (CRASH + frames((ENGINE, 90), (AUTHOR, 13)), "Segmentation fault"),
        (CRASH + frames(("/lib/json.py", 1)), "Segmentation fault"),
    ],
    ids=["no stack", "engine first", "nobody's"],
)
def test_where_nobody_can_say_whose_fault_it_was_the_stages_are_named(
    told: str, cause: str
) -> None:
    """Such an error is bounded: the machine may have ended the process, or the code has."""
    error = ended_worker("r1", NODES, HEAD + told + JAVA)
    assert isinstance(error, WorkerEndedError)
    assert error.bounded
    assert error.details["cause"] == cause
    assert PLACE in error.message
    assert "PythonRunner.scala" not in error.message


def test_other_failures_of_spark_are_none_of_these() -> None:
    """A frame of the author's alone does not do."""
    assert ended_worker("r1", NODES, f"Job aborted\n{frames((AUTHOR, 13))}") is None
