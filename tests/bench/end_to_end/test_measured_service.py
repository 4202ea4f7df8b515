"""The measured service: when a result counts as readable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.client.errors import ServiceProblemError
from controller.server.service_process import settings_of
from tests.bench.end_to_end.measured_service import (
    BACKLOG,
    IDLE,
    Counted,
    MeasuredService,
)
from tests.bench.errors import BenchDisagreesError


class FakeClient:
    """Answers how often a URL was counted: a number for each question, or `None` for not at all."""

    def __init__(self, *counts: int | None) -> None:
        self.counts = list(counts)

    def get(self, *_path: str, **_query: Any) -> Any:
        count = self.counts.pop(0)
        if count is None:
            raise ServiceProblemError({"error_code": "not_found"}, 404)
        return {"items": [{"url": "x", "n": count}]}


def service(
    tmp_path: Path, *counts: int | None, counted: Counted = IDLE
) -> tuple[MeasuredService, FakeClient]:
    """Return a service into which two files were renamed."""
    client = FakeClient(*counts)
    tmp_path.mkdir(exist_ok=True)
    settings = settings_of(tmp_path, port=1, engine="local")
    made = MeasuredService(
        settings,
        client,  # type: ignore[arg-type]
        lambda: None,
        keys=100,
        seed=0,
        counted=counted,
    )
    (settings.drop_root / counted.dataflow / counted.source / "incoming").mkdir(parents=True)
    for _ in range(2):
        made.rename_in(made.write_file(3))
    return made, client


def test_a_stale_answer_is_not_the_result(tmp_path: Path) -> None:
    """The result is readable when all files are counted: not before, and not by an old answer."""
    made, client = service(tmp_path, None, 1, 1, 2)
    made.wait_until_readable(0.0)
    assert client.counts == []


def test_files_are_applied_once_all_stages_show_them(tmp_path: Path) -> None:
    """The stage that is behind decides; another that counts too much is a wrong answer."""
    made, client = service(tmp_path, 2, None, 2, 1, 2, 2, counted=BACKLOG)
    made.wait_until_readable(0.0)
    assert client.counts == []
    made, _ = service(tmp_path / "twice", 3, 1, counted=BACKLOG)
    with pytest.raises(BenchDisagreesError):
        made.wait_until_readable(0.0)


def test_a_file_that_is_counted_twice_ends_the_benchmark(tmp_path: Path) -> None:
    """A wrong answer has no figures."""
    made, _ = service(tmp_path, 3)
    with pytest.raises(BenchDisagreesError):
        made.wait_until_readable(0.0)


def test_every_file_is_counted_by_one_line(tmp_path: Path) -> None:
    """Files have as many lines as asked for, other URLs, and one URL that all have once."""
    made, _ = service(tmp_path)
    (one, other) = sorted(made.settings.drop_root.rglob("*.jsonl"))
    first, second = one.read_text().splitlines(), other.read_text().splitlines()
    assert len(first) == len(second) == 3
    assert first[-1] == second[-1]
    assert first[:-1] != second[:-1]
