"""The mistakes that authors make most, each made as in an author's file, and what is said of it.

A row has the code, the line at fault (its comment is `# here`), and the whole message. The same
text is in `cbp status`, `cbp logs`, REST and the page, whatever process ran the stage
(tests/spark/test_commonest_on_spark.py). Tested elsewhere: what is kept on a translator
(test_author_state.py), what cannot be sent (tests/cbp/engine/workers/test_unsendable.py), loops
without an end (tests/controller/loop/runs/test_time_limit.py), prints
(tests/controller/run_logs/test_run_logs.py).
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cbp.engine.direct import LocalEngine
from cbp.errors import CbpError, DataflowInvalidError
from tests.cbp.sdk.commonest import (
    AT_CALLS,
    AT_DECLARATION,
    HELPER,
    Declared,
    Mistake,
    compiled,
    file_of,
    line_of,
)
from tests.driver import Driver


@pytest.mark.parametrize("mistake", AT_CALLS, ids=lambda one: one.name)
def test_a_mistake_in_a_call_is_told_whole(mistake: Mistake, tmp_path: Path) -> None:
    """Stage, function, file and line, key, what came, what was expected, and what to do."""
    with compiled(mistake.name, mistake.code, tmp_path) as dataflow:
        driver = Driver(LocalEngine(cache=f"{tmp_path}/cache"), dataflow, tmp_path / "tables")
        driver.feed("urls", [{"url": "a", "n": None}])
        with pytest.raises(CbpError) as caught:
            driver.run_until_idle()
    error, file = caught.value, file_of(mistake.name, tmp_path)
    place = f"{file}:{line_of(mistake.code)}"
    says = mistake.says.replace("HELPER", f"{tmp_path / HELPER}")
    assert error.code == mistake.error_code
    assert error.message == (
        f"stage 'count': Count.translate failed at {place} for key ('a',): {says}"
    )
    assert error.details["place"] == place


@pytest.mark.parametrize("declared", AT_DECLARATION, ids=lambda one: one.name)
def test_a_mistake_in_a_declaration_is_told_before_data_comes(
    declared: Declared, tmp_path: Path
) -> None:
    """By `cbp validate`, `cbp dev` and a registration: where, what came, and what to write."""
    with (
        pytest.raises(DataflowInvalidError) as caught,
        compiled(declared.name, declared.code, tmp_path),
    ):
        """Nothing is compiled."""
    (mistake,) = caught.value.mistakes
    file = file_of(declared.name, tmp_path)
    assert mistake.code == declared.mistake_code
    assert mistake.place == f"{file}:{line_of(declared.code)}"
    assert mistake.message == declared.says.replace("FILE", file.name).replace(
        "PYTHON", sys.executable
    )
