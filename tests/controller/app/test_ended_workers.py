"""An author's code that ends its process costs its own stage, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from controller.app import Service
from controller.settings import load_settings
from tests.controller.deadly import line_of
from tests.controller.deadly_service import deadly_settings, errors, give, paused, step_until
from tests.controller.small_app import DOCUMENT, count, drop

TRIES = 2


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    made = Service(load_settings(**deadly_settings(tmp_path, monkeypatch, tries=TRIES)))
    yield made
    made.stop()


@pytest.mark.timeout(180)
@pytest.mark.part(every=2)
@pytest.mark.parametrize("ways", [("exit", "memory"), ("exit", "crash", "memory", "kill")], ids=len)
def test_a_translator_that_ends_its_process_stops_its_own_stage_only(
    ways: tuple[str, ...], service: Service
) -> None:
    """After so many tries the stage is paused with the author's line; another dataflow goes on."""
    known = {
        "exit": ("author_ended_process", line_of("os._exit(3)"), "os._exit(3)"),
        "crash": ("author_ended_process", line_of("ctypes.string_at"), "Segmentation fault"),
        "memory": ("author_code_failed", line_of("bytearray("), "MemoryError"),
        "kill": ("worker_ended", None, "SIGKILL"),
    }
    codes = {how: known[how] for how in ways}
    for how in codes:
        give(service, how)
    service.controller.register(DOCUMENT)
    drop(service, "a", "a")
    step_until(service, lambda: paused(service) == {*codes} and count(service, "a") == 2)
    for how, (code, place, cause) in codes.items():
        actual = errors(service, how)
        assert [error["error_code"] for error in actual] == [code] * TRIES
        assert cause in actual[0]["details"]["cause"]
        assert place is None or actual[0]["details"]["place"].endswith(place.rpartition("/")[2])
        (stage,) = service.store.stages(how)
        assert (place or "deadly.py:").rpartition("/")[2] in stage.paused_because


@pytest.mark.soak
def test_tasks_run_beside_the_service_and_end_with_it(service: Service) -> None:
    """One process does one run after the other; a stop ends it."""
    give(service, "none")
    actual: list[Any] = []

    def has_run() -> bool:
        actual[:], _ = service.controller.reading.read_flow("none", "deadly.pids", None, 10)
        return bool(actual)

    step_until(service, has_run)
    pid = actual[0]["pid"]
    assert pid != os.getpid()
    engine = service._engine
    assert isinstance(engine, DirectEngine)
    assert engine._executor.pids == [pid]  # type: ignore[attr-defined]
    service.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
