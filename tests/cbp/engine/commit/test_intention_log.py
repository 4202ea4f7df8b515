"""The intention log on a disk that loses its power."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from cbp.engine.commit.intention_log import IntentionLog
from cbp.engine.storage.files import LocalFiles
from cbp.model.flow.position import Position, StagePosition
from tests.simulation.disk import Disk


@pytest.mark.parametrize("seed", range(6))
def test_a_removed_position_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """What only it needed may go as soon as it is removed, so a loss of power brings none back."""
    root, shadow = tmp_path / "disk", tmp_path / "shadow"
    root.mkdir()
    shadow.mkdir()
    disk = Disk(root, shadow)
    monkeypatch.setattr(os, "fsync", disk.fsync)
    disk.sync_all()
    files = LocalFiles()
    for epoch in (1, 2, 3):
        stages = {"one": StagePosition(epoch, None, {})}
        IntentionLog(str(root / "df"), files).put_position(Position("df", stages, ()))
    disk.lose(random.Random(seed))
    kept = IntentionLog(str(root / "df"), files).positions()
    assert [position.number for position in kept] == [3]
