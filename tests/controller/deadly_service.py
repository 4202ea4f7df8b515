"""A service that offers `deadly`, stepped by hand; its workers import only that module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.app import Service
from tests.authored import install
from tests.controller.deadly import MEMORY_BYTES
from tests.controller.small_app import TOKEN

STEPS_MAX = 40
WAIT_SECONDS = 120


def deadly_settings(folder: Path, monkeypatch: pytest.MonkeyPatch, *, tries: int) -> dict[str, Any]:
    """Return settings of a service that offers the deadly translator, and tries again at once."""
    names = {"deadly": "Deadly", "rounds": "DeadlyRounds"}
    points = {name: f"tests.controller.deadly:{class_}" for name, class_ in names.items()}
    install(folder / "author", "deadly", points)
    monkeypatch.syspath_prepend(str(folder / "author"))
    return {
        "root": folder / "data",
        "engine": "local",
        "reader_processes": False,
        "token": TOKEN,
        "settle_seconds": 0,
        "failures_max": tries,
        "retry_delays_seconds": (0.0,),
        "worker_memory_bytes_max": MEMORY_BYTES,
        "allowed_packages": ("deadly",),
    }


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


def document(name: str) -> dict[str, Any]:
    """Return a dataflow of one such stage."""
    return {
        "name": name,
        "sources": {"a": {"schema": "how STRING"}},
        "stages": {"deadly": {"translator": "deadly", "inputs": {"items": "a"}}},
    }
