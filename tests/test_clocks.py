"""Time is a port: who reads the clock or waits by it cannot be played in simulated seconds.

What is listed here did so when the rule was made; each number may only become smaller.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
PACKAGES = ("cbp", "controller", "stages")
CLOCKS = {
    "time.sleep",
    "time.time",
    "time.time_ns",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "datetime.now",
    "datetime.utcnow",
}
"""Asynchronous code of the product has a port: the clock of its event loop, by which its sleeps
and time-outs go. A test replaces the loop (tests/simulated_time.py)."""
TEST_CLOCKS = CLOCKS | {"asyncio.sleep"}
FREE_TESTS = ("tests/system/", "tests/bench/", "tests/gate/")
"""Real processes, measurements, and the gate itself, which times the tests."""
FREE_PACKAGES = ("tests/bench/", "controller/demo/")
"""They measure."""
PATIENCE_SECONDS_MIN = 60
WAITS = {"wait", "join", "result", "get", "poll", "acquire", "communicate", "wait_for"}


@dataclass(frozen=True, slots=True)
class Found:
    """What one file does with clocks.

    Attributes:
        used: The clocks that it reads, and how often.
        impatient: Each wait whose literal time-out is too short for a busy machine.
    """

    used: tuple[str, ...]
    impatient: tuple[str, ...]


@cache
def _found(path: Path) -> Found:
    nodes = list(ast.walk(ast.parse(path.read_bytes())))
    return Found(tuple(_used(nodes)), tuple(f"{path.name}:{line}" for line in _impatient(nodes)))


def _used(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if name in TEST_CLOCKS:
                yield name


def _impatient(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        keywords = [word.value for word in node.keywords if word.arg == "timeout"]
        is_wait = isinstance(node.func, ast.Attribute) and node.func.attr in WAITS
        for value in [*keywords, *(node.args[:1] if is_wait else [])]:
            # Nought and one do not wait for something to happen.
            seconds = value.value if isinstance(value, ast.Constant) else None
            if isinstance(seconds, int | float) and 1 < seconds < PATIENCE_SECONDS_MIN:
                yield f"{node.lineno} waits {seconds} s"


def _count(
    roots: tuple[str, ...], free: tuple[str, ...], clocks: set[str] = CLOCKS
) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for root in roots:
        for path in sorted((REPO / root).rglob("*.py")):
            name = path.relative_to(REPO).as_posix()
            if "node_modules" in name or name.startswith(free):
                continue
            counts[name] += sum(1 for used in _found(path).used if used in clocks)
    return {name: number for name, number in counts.items() if number}


def test_no_more_of_the_product_reads_the_clock_by_itself() -> None:
    """Who needs the time gets a function or a clock from outside, with a default at the edge."""
    more = {
        name: number
        for name, number in _count(PACKAGES, FREE_PACKAGES).items()
        if number > PRODUCT.get(name, 0)
    }
    assert more == {}, "hand in a clock (`now`, `monotonic`, `wait`) instead of calling one"


def test_no_more_tests_sleep_or_read_the_clock() -> None:
    """A test steps the loop by hand, waits for an event or moves a clock of its own."""
    more = {
        name: number
        for name, number in _count(("tests",), FREE_TESTS, TEST_CLOCKS).items()
        if number > TESTS.get(name, 0)
    }
    assert more == {}, "wait for an event (`tests/controller/world.py`), or move a manual clock"


def test_no_test_gives_up_early() -> None:
    """A wait that succeeds costs nothing, however long it may last: a minute at least."""
    found = [
        f"{path.relative_to(REPO).parent}/{line}"
        for path in sorted((REPO / "tests").rglob("*.py"))
        if not path.relative_to(REPO).as_posix().startswith(FREE_TESTS)
        for line in _found(path).impatient
    ]
    assert found == []


def test_a_planted_sleep_is_found(tmp_path: Path) -> None:
    """The rule sees a call, a default argument and a short time-out."""
    planted = tmp_path / "test_planted.py"
    planted.write_text(
        "import time\n\n"
        "def test(event, clock=time.monotonic):\n"
        "    time.sleep(1)\n"
        "    event.wait(5)\n"
        "    event.wait(timeout=10)\n"
        "    event.wait(60)\n",
        encoding="utf-8",
    )
    found = _found(planted)
    assert sorted(found.used) == ["time.monotonic", "time.sleep"]
    assert len(found.impatient) == 2


PRODUCT = {
    "cbp/client/dataflow_calls.py": 3,
    "cbp/client/rest.py": 1,
    "cbp/client/run_calls.py": 1,
    "cbp/engine/direct/engine.py": 1,
    "cbp/engine/read/recomputed_epochs.py": 1,
    "cbp/engine/run/preparer.py": 4,
    "cbp/engine/spark/deferred.py": 4,
    "cbp/engine/state/damaged_copies.py": 1,
    "cbp/engine/state/index_cache.py": 1,
    "cbp/engine/storage/files.py": 1,
    "cbp/engine/task/writers.py": 2,
    "controller/access/access.py": 2,
    "controller/access/oidc.py": 1,
    "controller/alerts/watch.py": 3,
    "controller/api/figures/metrics.py": 1,
    "controller/api/figures/overview.py": 1,
    "controller/api/requests/metric_sources.py": 1,
    "controller/api/requests/request_counts.py": 2,
    "controller/api/routes/dataflows/activity.py": 1,
    "controller/api/routes/dataflows/dataflows.py": 4,
    "controller/api/routes/dataflows/sinks.py": 1,
    "controller/api/routes/dataflows/stages.py": 1,
    "controller/api/routes/access/tokens.py": 1,
    "controller/api/security/auditing.py": 1,
    "controller/app/reading.py": 1,
    "controller/app/service.py": 1,
    "controller/cli/dataflows/control.py": 1,
    "controller/cli/dataflows/logs.py": 1,
    "controller/cli/dataflows/rollback.py": 1,
    "controller/cli/dataflows/verify.py": 1,
    "controller/cli/maintenance/doctor.py": 2,
    "controller/cli/maintenance/fence.py": 1,
    "controller/cli/maintenance/probes.py": 4,
    "controller/cli/maintenance/sbom.py": 1,
    "controller/cli/maintenance/scrub.py": 4,
    "controller/cli/maintenance/support_bundle.py": 1,
    "controller/cli/records/applied.py": 5,
    "controller/cli/records/drop.py": 3,
    "controller/cli/session.py": 1,
    "controller/client/event_stream.py": 1,
    "controller/ingest/folder/bucket_feed.py": 1,
    "controller/ingest/reader/reader_pool.py": 3,
    "controller/ingest/reader/reader_process.py": 6,
    "controller/loop/counts/run_counts.py": 1,
    "controller/loop/operations/rollback_jobs.py": 1,
    "controller/loop/runs/dataflow_locks.py": 1,
    "controller/loop/runs/finisher.py": 2,
    "controller/loop/verification/jobs.py": 1,
    "controller/query/queries.py": 2,
    "controller/server/service_process.py": 3,
    "controller/sinks/publishing.py": 2,
    "controller/store/database/postgres_timeouts.py": 1,
    "controller/store/methods/events.py": 1,
    "controller/store/migrations/versions/0011_events.py": 1,
}
"""Reads of a clock and waits by one, most of them defaults of what is handed in."""

TESTS = {
    "tests/cbp/engine/delta/test_readers.py": 12,
    "tests/cbp/engine/state/test_index_cache.py": 3,
    "tests/cbp/model/schedule/test_quiescence.py": 1,
    "tests/cbp/sdk/test_silent_mistakes.py": 1,
    "tests/conformance/test_earlier.py": 2,
    "tests/conformance/test_earlier_rich.py": 3,
    "tests/conformance/test_silence.py": 2,
    "tests/controller/access/test_oidc.py": 7,
    "tests/controller/api/fake_service.py": 1,
    "tests/controller/app/test_alerting.py": 1,
    "tests/controller/app/test_idle.py": 2,
    "tests/controller/app/test_leader_duties.py": 1,
    "tests/controller/cli/maintenance/test_doctor.py": 1,
    "tests/controller/cli/test_main_job.py": 2,
    "tests/controller/ingest/folder/test_strange_files.py": 1,
    "tests/controller/ingest/folder/test_incoming_names.py": 2,
    "tests/controller/ingest/reader/test_reader_pool.py": 2,
    "tests/controller/app/test_background_rounds.py": 1,
    "tests/controller/query/test_queries.py": 2,
    "tests/controller/world.py": 3,
    "tests/deploy/prometheus_server.py": 1,
    "tests/fixtures/earlier/rich_play.py": 3,
    "tests/fixtures/earlier/write.py": 4,
    "tests/fuzz/service.py": 6,
    "tests/huge.py": 3,
    "tests/huge_input.py": 2,
    "tests/simulation/many.py": 2,
    "tests/simulated_time.py": 1,
    "tests/spark/hanging_runs.py": 3,
    "tests/spark/log_store_files.py": 1,
    "tests/spark/resident_work.py": 1,
    "tests/spark/resident_workers.py": 3,
    "tests/spark/test_speculation.py": 3,
    "tests/sql_forms.py": 1,
}
"""Outside of tests/system and tests/bench."""
