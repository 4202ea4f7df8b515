"""Corrected input under `kill -9`: files replaced, retracted; rebuilds, swaps, roll-backs, losses.

One real service without Spark; `corrections.py` takes random steps and compares with Polars.
`CBP_CORRECTIONS` sets the number of steps (12 by default), `CBP_SEED` chooses them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.system.corrections import Corrected

pytestmark = [pytest.mark.system, pytest.mark.soak, pytest.mark.timeout(3600)]

STEPS = int(os.environ.get("CBP_CORRECTIONS", "12"))
SEED = int(os.environ.get("CBP_SEED", "1"))


def test_what_counts_is_in_all_tables_whatever_was_killed(tmp_path: Path) -> None:
    """After each correction, swap, roll-back and loss, whether it was cut short or not."""
    corrected = Corrected(tmp_path, SEED)
    try:
        corrected.play(STEPS)
    except BaseException as error:
        error.add_note(f"seed {SEED}: " + "; ".join(corrected.trace))
        raise
    finally:
        corrected.close()
    print(corrected.done)
