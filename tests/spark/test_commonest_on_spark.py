"""What is said of an author's mistake does not depend on the engine: a worker of Spark says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import DirectEngine
from cbp.engine.spark import SparkExecutor
from cbp.errors import CbpError
from tests.cbp.sdk.commonest import AT_CALLS, HELPER, Mistake, compiled, file_of, line_of
from tests.driver import Driver

pytestmark = pytest.mark.spark

SHOWN = [one for one in AT_CALLS if one.name in ("text_for_number", "in_a_helper", "other_key")]
"""What is reported by the check of types, of code in another file, and by a rule of calls."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the author's folder: a worker that has loaded a helper's text keeps its path."""
    return tmp_path_factory.mktemp("author")


@pytest.mark.part(every=3)
@pytest.mark.parametrize("mistake", SHOWN, ids=lambda one: one.name)
def test_a_worker_of_spark_says_the_same(mistake: Mistake, spark: Any, folder: Path) -> None:
    """The whole message, with the author's line, from a file that only the driver has read."""
    with compiled(mistake.name, mistake.code, folder) as dataflow:
        engine = DirectEngine(SparkExecutor(spark), cache=f"{folder}/cache")
        driver = Driver(engine, dataflow, folder / mistake.name)
        driver.feed("urls", [{"url": "a", "n": None}])
        with pytest.raises(CbpError) as caught:
            driver.run_until_idle()
    place = f"{file_of(mistake.name, folder)}:{line_of(mistake.code)}"
    says = mistake.says.replace("HELPER", f"{folder / HELPER}")
    assert (caught.value.code, caught.value.message) == (
        mistake.error_code,
        f"stage 'count': Count.translate failed at {place} for key ('a',): {says}",
    )
