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
MACHINE = "cbp.clock.MACHINE"
CLOCKS.add(MACHINE)
TEST_CLOCKS = CLOCKS | {"asyncio.sleep"}
FREE_TESTS = ("tests/system/", "tests/bench/", "tests/gate/", "tests/waiting.py")
"""Real processes, measurements, the gate itself, which times the tests, and how tests wait."""
FREE_PACKAGES = ("tests/bench/", "controller/demo/", "cbp/clock.py")
"""They measure, or are the port."""
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
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (name for one in node.names if (name := f"time.{one.name}") in CLOCKS)
        # The port's clock is to be handed in: to call it by its name is to read the machine's.
        elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("MACHINE."):
            yield MACHINE


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
        "import time\nfrom time import sleep\n\n"
        "def test(event, clock=time.monotonic, other=MACHINE.seconds):\n"
        "    MACHINE.wait(1)\n"
        "    time.sleep(1)\n"
        "    event.wait(5)\n"
        "    event.wait(timeout=10)\n"
        "    event.wait(60)\n",
        encoding="utf-8",
    )
    found = _found(planted)
    assert sorted(found.used) == [MACHINE, "time.monotonic", "time.sleep", "time.sleep"]
    assert len(found.impatient) == 2


PRODUCT = {
    "cbp/engine/run/preparer.py": 4,
    "cbp/engine/state/copies.py": 1,
    "cbp/engine/state/index_cache.py": 1,
    "cbp/engine/storage/files.py": 1,
    "cbp/engine/task/writers.py": 2,
    "controller/cli/options.py": 1,
    "controller/store/methods/events.py": 1,
    "controller/store/migrations/versions/0011_events.py": 1,
}
"""Reads of a clock and waits by one, most of them defaults of what is handed in."""

TESTS = {
    "tests/cbp/engine/delta/test_readers.py": 1,
    "tests/cbp/sdk/test_silent_mistakes.py": 1,
    "tests/conformance/test_earlier_rich.py": 4,
    "tests/conformance/test_silence.py": 2,
    "tests/controller/access/test_oidc.py": 2,
    "tests/controller/app/test_alerting.py": 1,
    "tests/controller/app/test_idle.py": 1,
    "tests/controller/app/test_leader_duties.py": 1,
    "tests/controller/cli/maintenance/test_doctor.py": 1,
    "tests/controller/ingest/folder/test_incoming_names.py": 2,
    "tests/controller/ingest/folder/test_strange_files.py": 1,
    "tests/controller/ingest/reader/test_reader_pool.py": 2,
    "tests/controller/query/test_queries.py": 2,
    "tests/deploy/prometheus_server.py": 1,
    "tests/fixtures/earlier/rich_play.py": 2,
    "tests/fuzz/service.py": 3,
    "tests/huge.py": 2,
    "tests/huge_input.py": 2,
    "tests/simulated_time.py": 1,
    "tests/simulation/many.py": 2,
    "tests/spark/log_store_files.py": 2,
}
"""Outside of tests/system and tests/bench."""
