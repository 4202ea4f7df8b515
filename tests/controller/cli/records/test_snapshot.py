"""`cbp snapshot` against the real controller: what it prints can be run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars
import pytest

from controller.cli.records.snapshot import snippet
from tests.controller.cli.conftest import Cbp, Outcome
from tests.controller.live import live
from tests.controller.world import DIAMOND


@pytest.mark.parametrize("folder", ["live", "a b%c'd"])
def test_the_command_prints_versions_and_python(cbp: Cbp, tmp_path: Path, folder: str):
    """What it prints for each reader runs as it is, and reads the published records."""
    made = live(tmp_path / folder)
    made.world.controller.register(DIAMOND)
    made.world.arrive("diamond", "a", ("a", 1))
    made.world.arrive("diamond", "b", ("a", 1))
    made.world.clock.advance(1)
    made.world.ticks()
    made.world.arrive("diamond", "a", ("a", 5))  # its state has a deletion vector then
    made.world.clock.advance(1)
    made.world.ticks()

    def run(*arguments: str) -> Outcome:
        return cbp("snapshot", "diamond", *arguments, session=made.session)

    text = run()
    assert "the newest state of all its tables" in text.out
    assert "state/join.pairs" in text.out
    answer = run("--latest", "--json").json
    assert {t["epoch"] for t in answer["tables"]} == {0, 1}
    for reader in ("polars", "deltalake", "duckdb"):
        scope: dict[str, Any] = {}
        exec(run("--for", reader).out, scope)
        made_of = scope["left_sums"]
        if reader == "duckdb":
            assert made_of.select("word, n").fetchall() == [("a", 6)]
        else:
            assert polars.DataFrame(made_of).select("word", "n").rows() == [("a", 6)]
    assert "VERSION AS OF 2" in answer["python"]["spark"]
    assert run("--epoch", "7", "--json").json["error_code"] == "not_found"
    assert run("--latest", "--epoch", "0").status == 2
    assert run("--stage", "left", "--json").json["error_code"] == "request_invalid"
    made.world.close()


def test_each_table_has_a_variable_of_its_own():
    """Also where two names are alike without their points, or are words of Python."""
    tables = [
        {"table": f"flows/{name}", "path": "/t", "version": 1} for name in ("a_b.c", "a.b_c", "in")
    ]
    lines = snippet("spark", tables).splitlines()
    assert [line.split(" = ")[0] for line in lines] == ["a_b_c", "a_b_c_", "in_"]


def test_a_path_in_a_snippet_for_spark_is_quoted():
    """Quotes and backticks of a path end neither Python's string nor SQL's name."""
    table = {"table": "flows/a.b", "path": "/x \"y'z`", "version": 3}
    called: list[str] = []

    class Session:
        sql = staticmethod(called.append)

    exec(snippet("spark", [table]), {"spark": Session})
    assert called == ["SELECT * FROM delta.`/x \"y'z``` VERSION AS OF 3"]


def test_states_and_flows_are_read_as_of_a_moment(cbp: Cbp, tmp_path: Path):
    """By key and by pages, of an epoch and at a snapshot's own time; the cursor goes on."""
    made = live(tmp_path / "live")
    made.world.controller.register(DIAMOND)
    for n in (1, 5):
        made.world.arrive("diamond", "a", ("a", n), ("b", n))
        made.world.arrive("diamond", "b", ("a", n))
        made.world.clock.advance(1.25)
        made.world.ticks()

    def items(*arguments: str) -> Any:
        return cbp(*arguments, "--json", session=made.session).json["items"]

    at = cbp("snapshot", "diamond", "--epoch", "0", "--json", session=made.session).json["at"]
    for moment in (["--epoch", "0"], ["--at", at]):
        assert items("state", "diamond", "left.sums", "word=a", *moment) == [{"word": "a", "n": 1}]
        kept = items("state", "diamond", "left.sums", *moment)
        assert sorted(row["n"] for row in kept) == [1, 1]
        assert {row["n"] for row in items("records", "diamond", "left.totals", *moment)} == {1}
    assert items("state", "diamond", "left.sums", "word=a") == [{"word": "a", "n": 6}]
    first = cbp("state", "diamond", "left.sums", "--limit", "1", session=made.session)
    cursor = first.out.rpartition("more with: --cursor ")[2].strip()
    rest = items("state", "diamond", "left.sums", "--cursor", cursor)
    assert [row["n"] for row in rest] == [6]
    assert rest[0]["word"] not in first.out.splitlines()[-2]
    made.world.close()
