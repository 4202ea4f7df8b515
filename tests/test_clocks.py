"""Time is a port: who reads the clock or waits by it cannot be played in simulated seconds.

What is listed here did so when the rule was made; each number may only become smaller.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
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
    "asyncio.sleep",
}
FREE_TESTS = ("tests/system/", "tests/bench/", "tests/gate/")
"""Real processes, measurements, and the gate itself, which times the tests."""
FREE_PACKAGES = ("tests/bench/", "controller/demo/")
"""They measure."""
PATIENCE_SECONDS_MIN = 60
WAITS = {"wait", "join", "result", "get", "poll", "acquire", "communicate", "wait_for"}


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_bytes())))


def _used(path: Path) -> Iterator[str]:
    for node in _nodes(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if name in CLOCKS:
                yield name


def _impatient(path: Path) -> Iterator[str]:
    """Give each wait whose literal time-out is too short for a busy machine."""
    for node in _nodes(path):
        if not isinstance(node, ast.Call):
            continue
        keywords = [word.value for word in node.keywords if word.arg == "timeout"]
        is_wait = isinstance(node.func, ast.Attribute) and node.func.attr in WAITS
        for value in [*keywords, *(node.args[:1] if is_wait else [])]:
            # Nought and one do not wait for something to happen.
            seconds = value.value if isinstance(value, ast.Constant) else None
            if isinstance(seconds, int | float) and 1 < seconds < PATIENCE_SECONDS_MIN:
                yield f"{path.name}:{node.lineno} waits {seconds} s"


def _count(roots: tuple[str, ...], free: tuple[str, ...]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for root in roots:
        for path in sorted((REPO / root).rglob("*.py")):
            name = path.relative_to(REPO).as_posix()
            if "node_modules" in name or name.startswith(free):
                continue
            counts[name] += sum(1 for _ in _used(path))
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
        for name, number in _count(("tests",), FREE_TESTS).items()
        if number > TESTS.get(name, 0)
    }
    assert more == {}, "wait for an event (`tests/controller/world.py`), or move a manual clock"


def test_no_test_gives_up_early() -> None:
    """A wait that succeeds costs nothing, however long it may last: a minute at least."""
    found = [
        f"{path.relative_to(REPO).parent}/{line}"
        for path in sorted((REPO / "tests").rglob("*.py"))
        if not path.relative_to(REPO).as_posix().startswith(FREE_TESTS)
        for line in _impatient(path)
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
    assert sorted(_used(planted)) == ["time.monotonic", "time.sleep"]
    assert len(list(_impatient(planted))) == 2


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
    "controller/api/requests/body.py": 2,
    "controller/api/requests/metric_sources.py": 1,
    "controller/api/requests/request_counts.py": 2,
    "controller/api/routes/activity.py": 1,
    "controller/api/routes/dataflows.py": 4,
    "controller/api/routes/events.py": 3,
    "controller/api/routes/sinks.py": 1,
    "controller/api/routes/stages.py": 1,
    "controller/api/routes/tokens.py": 1,
    "controller/api/security/auditing.py": 1,
    "controller/app/leader_duties.py": 4,
    "controller/app/reading.py": 1,
    "controller/app/service.py": 5,
    "controller/cli/dataflows/control.py": 1,
    "controller/cli/dataflows/logs.py": 1,
    "controller/cli/dataflows/rollback.py": 1,
    "controller/cli/dataflows/verify.py": 1,
    "controller/cli/maintenance/doctor.py": 2,
    "controller/cli/maintenance/probes.py": 4,
    "controller/cli/maintenance/release.py": 1,
    "controller/cli/maintenance/repair.py": 1,
    "controller/cli/maintenance/sbom.py": 1,
    "controller/cli/maintenance/scrub.py": 4,
    "controller/cli/maintenance/support_bundle.py": 1,
    "controller/cli/records/applied.py": 5,
    "controller/cli/records/drop.py": 3,
    "controller/cli/session.py": 1,
    "controller/client/event_stream.py": 1,
    "controller/events/feed.py": 1,
    "controller/ingest/bucket_intake.py": 1,
    "controller/ingest/reading/reader_pool.py": 3,
    "controller/ingest/reading/reader_process.py": 6,
    "controller/loop/counts/run_counts.py": 1,
    "controller/loop/operations/rollback_jobs.py": 1,
    "controller/loop/runs/dataflow_locks.py": 1,
    "controller/loop/runs/finisher.py": 2,
    "controller/loop/verification/jobs.py": 1,
    "controller/query/queries.py": 2,
    "controller/server/http_protocol.py": 1,
    "controller/server/readers/supervisor.py": 7,
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
    "tests/controller/events/test_feed.py": 2,
    "tests/controller/ingest/folder/test_strange_files.py": 1,
    "tests/controller/ingest/folder/test_incoming_names.py": 2,
    "tests/controller/ingest/reading/test_reader_pool.py": 4,
    "tests/controller/ingest/test_background_rounds.py": 1,
    "tests/controller/query/test_queries.py": 2,
    "tests/controller/test_events.py": 4,
    "tests/controller/test_slow_clients.py": 2,
    "tests/controller/test_verification.py": 3,
    "tests/controller/world.py": 3,
    "tests/deploy/prometheus_server.py": 1,
    "tests/fixtures/earlier/rich_play.py": 3,
    "tests/fixtures/earlier/write.py": 4,
    "tests/fuzz/service.py": 6,
    "tests/huge.py": 3,
    "tests/huge_input.py": 2,
    "tests/simulation/many.py": 2,
    "tests/simulation/test_simulation.py": 2,
    "tests/spark/hanging_runs.py": 3,
    "tests/spark/log_store_files.py": 1,
    "tests/spark/resident_work.py": 1,
    "tests/spark/resident_workers.py": 3,
    "tests/spark/test_speculation.py": 3,
    "tests/spark/test_sql_form.py": 3,
    "tests/sql_forms.py": 1,
}
"""Outside of tests/system and tests/bench."""
