"""An author's code that ends Spark's workers costs its own stage, after so many tries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from controller.app import Service
from controller.settings import load_settings
from tests.controller.deadly import line_of
from tests.controller.deadly_service import deadly_settings, errors, give, paused, step_until

pytestmark = pytest.mark.spark

TRIES = 2


@pytest.fixture
def service(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Service, SparkExecutor]]:
    """Give a service on Spark whose resident worker waits for work."""
    values = deadly_settings(tmp_path, monkeypatch, tries=TRIES)
    executor = SparkExecutor(spark, resident_workers=1)
    engine = DirectEngine(executor, cache=str(tmp_path / "cache"))
    made = Service(load_settings(**values), engine=engine)
    executor.residents.start()
    yield made, executor
    executor.residents.close()
    monkeypatch.setattr(engine, "close", lambda: None)  # the session is the other tests' too
    made.stop()


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_stage_that_ends_its_workers_is_paused_and_another_goes_on(
    service: tuple[Service, SparkExecutor],
) -> None:
    """The resident worker dies of it, then Spark's own: both codes count as tries."""
    made, executor = service
    (resident,) = executor.residents.free
    codes = {"crash": "author_ended_process", "exit": "worker_ended"}
    for how in codes:
        give(made, how)
    step_until(made, lambda: paused(made) == {*codes})
    assert resident not in executor.residents.free
    for how, code in codes.items():
        assert [error["error_code"] for error in errors(made, how)] == [code] * TRIES
    assert errors(made, "crash")[0]["details"]["place"] == line_of("ctypes.string_at")
    give(made, "none")
    step_until(made, lambda: any(run.epoch == 0 for run in made.store.runs("none").items))
    assert not errors(made, "none")[0]
