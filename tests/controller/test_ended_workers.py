"""An author's code that ends its process costs its own stage, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from controller.app import Service
from controller.settings import load_settings
from tests.authored import install
from tests.controller.deadly import MEMORY_BYTES, document, line_of
from tests.controller.small_app import DOCUMENT, TOKEN, count, drop

TRIES = 2
STEPS_MAX = 40
WAIT_SECONDS = 120


@pytest.fixture
def values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings of a service that offers the deadly translator, and tries again at once."""
    install(tmp_path / "author", "deadly", {"deadly": "tests.controller.deadly:Deadly"})
    monkeypatch.syspath_prepend(str(tmp_path / "author"))
    return {
        "root": tmp_path / "data",
        "engine": "local",
        "reader_processes": False,
        "token": TOKEN,
        "settle_seconds": 0,
        "failures_max": TRIES,
        "retry_delays_seconds": (0.0,),
        "worker_memory_bytes_max": MEMORY_BYTES,
        "allowed_packages": ("deadly",),
    }


@pytest.fixture
def service(values: dict[str, Any]) -> Iterator[Service]:
    made = Service(load_settings(**values))
    yield made
    made.stop()


def give(service: Service, how: str) -> None:
    """Register a dataflow and drop the record that ends its process."""
    service.controller.register(document(how))
    folder = service.settings.drop_root / how / "a" / "incoming"
    (folder / "a.jsonl").write_text(f'{{"how": "{how}"}}\n')


def step_until(service: Service, condition: Callable[[], bool]) -> None:
    """Do by hand what the threads of a service do, until a condition holds."""
    for _ in range(STEPS_MAX):
        service.scan()
        service.controller.tick()
        service.parts.in_flight.wait(timeout=WAIT_SECONDS)
        if condition():
            return
    raise AssertionError([(run.dataflow, run.error) for run in service.store.runs().items])


def paused(service: Service) -> set[str]:
    """Return the dataflows whose stage is paused."""
    names = [record.name for record in service.store.dataflows()]
    return {one.dataflow for n in names for one in service.store.stages(n) if one.paused_because}


def errors(service: Service, name: str) -> list[dict[str, Any]]:
    """Return the errors of a dataflow's runs, newest first."""
    return [dict(run.error or {}) for run in service.store.runs(name).items]


@pytest.mark.timeout(180)
def test_a_translator_that_ends_its_process_stops_its_own_stage_only(service: Service) -> None:
    """After so many tries the stage is paused with the author's line; another dataflow goes on."""
    codes = {
        "exit": ("author_ended_process", line_of("os._exit(3)"), "os._exit(3)"),
        "crash": ("author_ended_process", line_of("ctypes.string_at"), "Segmentation fault"),
        "memory": ("author_code_failed", line_of("bytearray("), "MemoryError"),
        "kill": ("worker_ended", None, "SIGKILL"),
    }
    for how in codes:
        give(service, how)
    service.controller.register(DOCUMENT)
    drop(service, "a", "a")
    step_until(service, lambda: paused(service) == {*codes} and count(service, "a") == 2)
    for how, (code, place, cause) in codes.items():
        found = errors(service, how)
        assert [error["error_code"] for error in found] == [code] * TRIES
        assert cause in found[0]["details"]["cause"]
        assert place is None or found[0]["details"]["place"].endswith(place.rpartition("/")[2])
        (stage,) = service.store.stages(how)
        assert (place or "deadly.py:").rpartition("/")[2] in stage.paused_because


def test_tasks_run_beside_the_service_and_end_with_it(service: Service) -> None:
    """One process does one run after the other; a stop ends it."""
    give(service, "none")
    found: list[Any] = []

    def has_run() -> bool:
        found[:], _ = service.controller.reading.read_flow("none", "deadly.pids", None, 10)
        return bool(found)

    step_until(service, has_run)
    pid = found[0]["pid"]
    assert pid != os.getpid()
    engine = service._engine
    assert isinstance(engine, DirectEngine)
    assert engine._executor.pids == [pid]  # type: ignore[attr-defined]
    service.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
