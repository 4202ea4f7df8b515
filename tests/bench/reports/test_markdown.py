"""Tables for the README say what the documents say, and no more."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.__main__ import main
from tests.bench.measurements.result import Measured, Sample, document
from tests.bench.reports.markdown import BEGIN, END, markdown, placed


def measured(candidate: str, seconds: float, rounds: int = 7, **other: Any) -> Measured:
    """Give a result."""
    samples = [Sample(seconds * n, 1, None, 1, {}, cpu_seconds=0.5) for n in range(1, rounds + 1)]
    plain = Measured.of(
        samples,
        workload="url-count",
        candidate=candidate,
        form="sql",
        state_keys=1000,
        increment_records=10,
        floor_seconds=0.25,
        cold_seconds=9.0,
        index_bytes=3_000_000,
    )
    return replace(plain, **other)


def tables(*results: Measured, complete: bool = True) -> str:
    """Give the tables of one document."""
    return markdown({"first": json.loads(json.dumps(document(results, complete=complete)))})


def row_of(name: str, text: str) -> str:
    """Return the only row of a candidate."""
    (actual,) = [line for line in text.splitlines() if line.startswith(f"| {name}")]
    return actual


def test_a_cell_has_the_median_the_least_and_the_most() -> None:
    """The fastest of each size is marked, with CPU seconds, cold run and copies."""
    text = tables(measured("cbp", 1.0), measured("duckdb-key", 0.25))
    assert row_of("**ours**, sql", text) == "| **ours**, sql | 4 (1 to 7) | 0.5 | 9 | 3 MB |"
    assert "| **1** (0.25 to 1.8) |" in row_of("DuckDB, primary key", text)
    assert "| URL count, 1,000 keys | 10 |" in text
    assert "0.25" in row_of("an empty Spark job", text)


def test_it_is_said_where_a_peer_wins() -> None:
    """A peer that is faster is named with its ratio; one that is slower is not."""
    said = tables(measured("cbp", 1.0), measured("duckdb-key", 0.25)).splitlines()[-1]
    assert said.endswith("url-count, 10 records: DuckDB, primary key, 4 x.")
    assert "Where a peer" not in tables(measured("cbp", 0.2), measured("duckdb-key", 0.25))


def test_few_rounds_and_an_unfinished_document_are_told() -> None:
    """Nobody takes one round, or what was never compared, for more than it is."""
    assert "| **1*** (1 to 1) |" in row_of("**ours**", few := tables(measured("cbp", 1.0, 1)))
    assert "Fewer than 7 rounds" in few
    assert "Fewer" not in tables(measured("cbp", 1.0))
    assert "Ended before all was compared: first." in tables(measured("cbp", 1.0), complete=False)


def test_other_workloads_have_a_row_with_their_error() -> None:
    """Graphs are compared at a measured error, beside that of a stale answer."""
    graph: dict[str, Any] = {"workload": "pagerank", "error": 1.3e-4, "error_stale": 2.2e-4}
    text = tables(measured("cbp", 1.0, **graph), measured("scratch", 0.25, **graph))
    rows = [line for line in text.splitlines() if line.startswith("| pagerank, 1,000 keys | 10")]
    assert [row.count("| 0.00013 | 0.00022 |") for row in rows] == [1, 1]
    assert "| 28 in 7 |" in rows[0]


def test_the_first_document_that_has_a_case_counts() -> None:
    """Ours takes part in every benchmark, and is in the table once."""
    one, other = (document([measured("cbp", s)], complete=True) for s in (1.0, 2.0))
    text = markdown({"table": one, "slow": other})
    assert "| **4** (1 to 7) |" in row_of("**ours**", text)


def test_the_command_puts_tables_between_two_lines(tmp_path: Path) -> None:
    """The old table is replaced, all else is left; a file without the lines is refused."""
    target, actual = tmp_path / "README.md", tmp_path / "table.json"
    actual.write_text(json.dumps(document([measured("cbp", 1.0)], complete=True)))
    target.write_text(f"before\n{BEGIN}\nearlier tables\n{END}\nafter\n")
    call = ["tables", str(actual), "--into", str(target)]
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(call)
        assert ended.value.code == 0
    text = target.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert text.count("**ours**") == 1
    assert "earlier tables" not in text
    target.write_text("no lines")
    with pytest.raises(SystemExit) as ended:
        main(call)
    assert ended.value.code == 2
    with pytest.raises(ValueError, match="figures: begin"):
        placed("no lines", "")
