"""`cbp soak`: runs a service of its own, prints the four figures, writes and draws them."""

from __future__ import annotations

import json
from pathlib import Path

import structlog

from tests.controller.cli.conftest import Cbp


def test_the_figures_are_printed_written_and_drawn(cbp: Cbp, tmp_path: Path) -> None:
    """And the folder that it made is gone, unless a place for it was named."""
    before = structlog.get_config()
    written, picture = tmp_path / "soak.json", tmp_path / "soak.png"
    root = tmp_path / "kept"
    root.mkdir()
    outcome = cbp("soak", "--runs", "40", "--json", written, "--picture", picture, "--root", root)
    structlog.configure(**before)
    assert outcome.status == 0, outcome.err
    for words in ("seconds per run", "bytes on disk", "resident memory", "open files", "growth"):
        assert words in outcome.out
    found = json.loads(written.read_text())
    assert (found["runs"], len(found["samples"])) == (40, 40)
    assert picture.stat().st_size > 1000
    assert [path.name[:9] for path in root.iterdir()] == ["cbp-soak-"]
    assert cbp("soak", "--runs", "10").status == 2
