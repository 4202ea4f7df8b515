"""Authors' code on workers: what arrives is what the driver has loaded, or nothing is called."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import cloudpickle
from pyspark.errors import PySparkException

from cbp.engine.spark import SparkExecutor
from cbp.engine.spark.worker_main import answer
from cbp.engine.workers.carried_errors import carried_error
from cbp.engine.workers.shipping import ship_with_fingerprints, with_differences
from cbp.errors import CodeNotLoadedError
from cbp.model.author.code_fingerprint import fingerprint
from cbp.model.author.source_modules import SourceModule, load_sources
from tests.authored import forget, write

FILES = {
    "shipped/__init__.py": "",
    "shipped/count.py": (
        "from shipped.text import cleaned\n\n\nclass Count:\n"
        "    def one(self, text):\n        return cleaned(text)\n\n\n"
        "def task(number, attempt):\n    return [Count().one(attempt)]\n\n\n"
        "def alone():\n    return [Count().one('a')]\n\n\n"
        "def batches(found):\n    Count().one('a')\n    yield from ()\n"
    ),
    "shipped/text.py": "def cleaned(text):\n    return text + '!'\n",
}
EDITED = {"shipped/text.py": "def cleaned(text):\n    return text + '?'\n"}

_WORKER = """
import sys, pickle
sys.path[:0] = sys.argv[1:]
from cbp.engine.spark import SparkExecutor
from cbp.engine.spark.worker_main import answer
found = answer(sys.stdin.buffer.read())
print(found if isinstance(found, str) else found[0])
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A package that this process has loaded, as a driver has."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, FILES)
    ship_with_fingerprints()
    loaded = importlib.import_module("shipped.count")
    fingerprint(loaded.Count)
    yield loaded
    forget("shipped")


def done_by_a_worker(folder: Path, task: Any) -> str:
    """Return what a new process says that is sent a task and finds the package in a folder."""
    request = (0).to_bytes(4, "big") + cloudpickle.dumps((task, "a"))  # type: ignore[no-untyped-call]
    repository = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-B", "-c", _WORKER, str(folder), repository],
        input=request,
        capture_output=True,
        check=True,
        timeout=120,
    )
    return str(done.stdout.decode()).strip()


def test_a_worker_with_the_same_files_does_its_task(module: Any, tmp_path: Path) -> None:
    """Another folder, another hash seed, the same code."""
    write(tmp_path / "machine", FILES)
    assert done_by_a_worker(tmp_path / "machine", module.task) == "a!"


def test_a_worker_that_finds_another_file_calls_nothing(module: Any, tmp_path: Path) -> None:
    """A helper counts; the error is coded, not to be tried again, and names what differs."""
    write(tmp_path / "machine", FILES | EDITED)
    error = carried_error(done_by_a_worker(tmp_path / "machine", module.task))
    assert isinstance(error, CodeNotLoadedError)
    assert not error.retryable
    assert "shipped.text.cleaned" in with_differences(error).message
    assert "restart the service" in with_differences(error).message


@pytest.mark.soak
def test_what_a_lambda_calls_is_checked_too(module: Any, tmp_path: Path) -> None:
    """It is sent by value, and names what it needs."""
    task = eval("lambda number, attempt: [Count().one(attempt)]", {"Count": module.Count})
    write(tmp_path / "machine", FILES | EDITED)
    assert isinstance(
        carried_error(done_by_a_worker(tmp_path / "machine", task)), CodeNotLoadedError
    )


@pytest.mark.soak
def test_a_method_of_an_instance_is_checked_by_its_class(module: Any, tmp_path: Path) -> None:
    """As `translate` is sent."""
    one = module.Count().one
    task = eval("lambda number, attempt: [one(attempt)]", {"one": one})
    assert answer((0).to_bytes(4, "big") + cloudpickle.dumps((task, "a"))) == ["a!"]  # type: ignore[no-untyped-call]
    write(tmp_path / "machine", FILES | EDITED)
    assert isinstance(
        carried_error(done_by_a_worker(tmp_path / "machine", task)), CodeNotLoadedError
    )


@pytest.mark.spark
@pytest.mark.part(every=2)
@pytest.mark.parametrize("what", ["task", "plan"])
def test_workers_of_spark_call_no_code_but_the_drivers(
    what: str, spark: Any, module: Any, tmp_path: Path
) -> None:
    """Neither tasks, nor functions that an author's plan in SQL holds."""
    write(tmp_path / "machine", FILES | EDITED)
    context = spark.sparkContext
    executor = SparkExecutor(spark)
    calls: dict[str, Callable[[], Any]] = {
        "task": lambda: executor._run_numbered(1, module.alone),
        "plan": lambda: spark.range(0, 1, 1, 1).mapInArrow(module.batches, "body string").collect(),
    }
    before = dict(context.environment)
    context.environment["PYTHONPATH"] = f"{tmp_path / 'machine'}:{Path(__file__).parents[2]}"
    try:
        with pytest.raises((PySparkException, Py4JJavaError)) as caught:
            calls[what]()
        assert isinstance(carried_error(str(caught.value)), CodeNotLoadedError)
    finally:
        context.environment.clear()
        context.environment.update(before)


@pytest.mark.spark
def test_a_plain_file_reaches_the_workers_of_spark_with_its_work(spark: Any) -> None:
    """They have no such file, and get it anew when it has changed; plans in SQL do so, too."""

    def load(mark: str) -> Any:
        text = f"def alone():\n    return ['{mark}']\n\n\ndef batches(them):\n    yield from them\n"
        module = SourceModule("plainfile", "/nowhere/plainfile.py", False, text.encode())
        load_sources(
            "/nowhere", lambda name: module if name == "plainfile" else None, ["plainfile"]
        )
        return sys.modules["plainfile"]

    ship_with_fingerprints()
    executor = SparkExecutor(spark)
    try:
        old = load("first")
        assert executor._run_numbered(1, old.alone) == ["first"]
        new = load("second")
        assert executor._run_numbered(1, new.alone) == ["second"]
        assert executor._run_numbered(1, old.alone) == ["first"]
        rows = spark.range(0, 1, 1, 1).mapInArrow(new.batches, "id bigint").collect()
        assert [row.id for row in rows] == [0]
    finally:
        load_sources("/nowhere", lambda _: None, [])
