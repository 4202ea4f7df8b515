"""`python -m tests.bench soak` runs a service, prints and draws the figures; growth fails it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import structlog

from controller.app.leader_duties import LeaderDuties
from tests.bench.__main__ import main
from tests.bench.measurements.held_memory import held_memory_bytes
from tests.bench.soak import service_soak
from tests.controller.cli.conftest import Outcome

LEFT_BYTES = 1 << 20

Soak = Callable[..., Outcome]


@pytest.fixture
def soak(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Soak:
    """Run the command with these arguments."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str | Path) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            main(["soak", *map(str, arguments)])
        printed = capsys.readouterr()
        status = ended.value.code
        return Outcome(status if isinstance(status, int) else 0, printed.out, printed.err)

    return run


@pytest.mark.soak
def test_the_figures_are_printed_written_and_drawn(soak: Soak, tmp_path: Path) -> None:
    """And the folder that it made is gone, unless a place for it was named."""
    before = structlog.get_config()
    written, picture = tmp_path / "soak.json", tmp_path / "soak.png"
    root = tmp_path / "kept"
    root.mkdir()
    outcome = soak(
        *("--runs", "40", "--json", written, "--picture", picture, "--root", root),
        *("--growth-max", "50"),  # so few runs tell nothing about time
    )
    structlog.configure(**before)
    assert outcome.status == 0, outcome.err
    for words in ("seconds per run", "bytes on disk", "resident memory", "open files", "growth"):
        assert words in outcome.out
    assert "more per run" in outcome.out
    actual = json.loads(written.read_text())
    assert (actual["runs"], len(actual["samples"])) == (40, 40)
    assert picture.stat().st_size > 1000
    assert [path.name[:9] for path in root.iterdir()] == ["cbp-soak-"]
    assert soak("--runs", "10").status == 2


@pytest.mark.soak
def test_a_leak_fails_the_soak(soak: Soak, monkeypatch: pytest.MonkeyPatch) -> None:
    """What each run leaves in memory, open, or on the disk ends it with status 1, and is named."""
    before, kept = structlog.get_config(), list[bytes]()
    scan = LeaderDuties.scan
    # Of what this process holds already, since that is what it is compared with.
    leaked_bytes = held_memory_bytes() // 100
    leaked_files = len(os.listdir("/proc/self/fd")) // 50 + 1
    with ExitStack() as opened:

        def leaking(duties: LeaderDuties) -> None:
            scan(duties)
            kept.append(b"x" * leaked_bytes)
            for _ in range(leaked_files):
                opened.enter_context(open(os.devnull, "rb"))
            (duties._settings.root / f"left-{len(kept)}").write_bytes(bytes(LEFT_BYTES))

        monkeypatch.setattr(LeaderDuties, "scan", leaking)
        monkeypatch.setattr(service_soak, "DISK_RUNS_MIN", 40)
        disk = ("--disk-per-run-max", str(LEFT_BYTES // 2))
        outcome = soak("--runs", "40", "--growth-max", "1.1", *disk)
        structlog.configure(**before)
    assert outcome.status == 1, outcome.out
    for shown in ("soak_grew", "1.1 (--growth-max)", f"{LEFT_BYTES // 2} bytes"):
        assert shown in " ".join(outcome.err.split())
    for words in ("resident memory in bytes by", "open files by", "bytes on disk per run by"):
        assert words in outcome.err
    assert "files on disk per run by" in outcome.err
