"""Files of log lines: read in pages, bounded, and whole whatever was cut off."""

from __future__ import annotations

import os
from pathlib import Path

from controller.run_logs import RunLogFiles, RunLogLimits


def events(
    logs: RunLogFiles, place: int | None = None, *, run: str = "r", limit: int = 100
) -> list[str]:
    return [line["event"] for line in logs.read("d", run, place, limit=limit).lines]


def test_lines_are_read_from_where_one_left_off(tmp_path: Path) -> None:
    """Each line once, in order, also those that come later."""
    logs = RunLogFiles(tmp_path)
    assert logs.read("d", "r", None, limit=9).lines == []
    for number in range(5):
        logs.append("d", "r", {"event": str(number)})
    first = logs.read("d", "r", 0, limit=2)
    logs.append("d", "r", {"event": "5"})
    assert [line["event"] for line in first.lines] == ["0", "1"]
    assert events(logs, first.place) == ["2", "3", "4", "5"]
    assert events(logs, limit=2) == ["4", "5"], "without a place: the last ones"


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    """A crash in the middle of a line costs that line alone."""
    logs = RunLogFiles(tmp_path)
    logs.append("d", "r", {"event": "whole"})
    with (tmp_path / "d" / "r.jsonl").open("ab") as file:
        file.write(b'{"event": "ha')
    assert events(logs) == ["whole"]
    logs.append("d", "r", {"event": "next"})
    assert events(logs) == ["whole", "next"]


def test_the_log_of_a_run_has_a_bound(tmp_path: Path) -> None:
    """A translator that logs every record fills no disk; the last line says that more came."""
    logs = RunLogFiles(tmp_path, RunLogLimits(run_bytes_max=1_000))
    for number in range(200):
        logs.append("d", "r", {"event": str(number), "run": "r"})
    assert (tmp_path / "d" / "r.jsonl").stat().st_size <= 1_000
    seen = events(logs)
    assert seen[:3] == ["0", "1", "2"]
    assert len(seen) > 10
    assert seen[-1] in ("log.truncated", str(len(seen) - 1)), "nothing in the middle is missing"


def test_the_oldest_logs_go_first(tmp_path: Path) -> None:
    """By number, by bytes and by age; what is left is read as before."""
    for limits in (
        RunLogLimits(runs_max=2),
        RunLogLimits(bytes_max=40),
        RunLogLimits(seconds_max=35.0),
    ):
        folder = tmp_path / str(hash(limits))
        logs = RunLogFiles(folder, limits)
        for number in range(4):
            logs.append("d", f"r{number}", {"event": str(number)})
            os.utime(folder / "d" / f"r{number}.jsonl", (number * 10, number * 10))
        assert logs.prune(50.0) == 2
        assert [events(logs, run=f"r{n}") for n in range(4)] == [[], [], ["2"], ["3"]]
        assert logs.prune(50.0) == 0


def test_the_folder_goes_with_its_last_log(tmp_path: Path) -> None:
    """It is made again by the next line of a run."""
    logs = RunLogFiles(tmp_path, RunLogLimits(runs_max=1))
    for number, dataflow in enumerate(("old", "d")):
        logs.append(dataflow, "r", {"event": dataflow})
        os.utime(tmp_path / dataflow / "r.jsonl", (number, number))
    assert logs.prune(2.0) == 1
    assert os.listdir(tmp_path) == ["d"]
    assert events(logs) == ["d"]
    logs.append("old", "r", {"event": "again"})
    assert sorted(os.listdir(tmp_path)) == ["d", "old"]


def test_the_logs_of_a_dataflow_can_be_removed(tmp_path: Path) -> None:
    """Those of no other; a dataflow without logs has none to remove."""
    logs = RunLogFiles(tmp_path / "logs")
    for dataflow in ("d", "other"):
        logs.append(dataflow, "r", {"event": dataflow})
    for name in ("other", "none", "..", ""):
        logs.forget(name)
    assert os.listdir(tmp_path / "logs") == ["d"]
    assert events(logs) == ["d"]


def test_no_name_leads_out_of_the_folder(tmp_path: Path) -> None:
    """A field of an entry is not ours: it may hold anything."""
    logs = RunLogFiles(tmp_path / "logs")
    for dataflow, run in (("..", "r"), ("d", "../../x"), ("/etc", "r"), ("d", ""), ("a/b", "r")):
        logs.append(dataflow, run, {"event": "x"})
        assert logs.read(dataflow, run, None, limit=1).lines == []
    assert [*tmp_path.rglob("*.jsonl")] == []
