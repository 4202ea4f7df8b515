from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cbp.engine.direct import LocalEngine
from cbp.testing import run_dataflow
from tests.cbp.sdk.mistakes import Run, one_stage
from tests.driver import Driver


@pytest.fixture(params=["kit", "engine"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run a stage over one increment of two URLs, in the test kit or in the engine."""

    def in_kit(translator: Any) -> None:
        run_dataflow(one_stage(translator), {"urls": [["a", "b"]]})

    def in_engine(translator: Any) -> None:
        driver = Driver(LocalEngine(cache=f"{tmp_path}/cache"), one_stage(translator), tmp_path)
        driver.feed("urls", [{"url": "a"}, {"url": "b"}])
        driver.run_until_idle()

    return in_kit if request.param == "kit" else in_engine
