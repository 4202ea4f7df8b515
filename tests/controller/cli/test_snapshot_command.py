"""`cbp snapshot` against the real controller: what it prints can be run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.controller.cli.conftest import Cbp, Outcome
from tests.controller.live import live
from tests.controller.world import DIAMOND


def test_the_command_prints_versions_and_python(cbp: Cbp, tmp_path: Path):
    """What it prints for Polars and delta-rs runs as it is, and reads the published state."""
    made = live(tmp_path / "live")
    made.world.controller.register(DIAMOND)
    made.world.arrive("diamond", "a", ("a", 1))
    made.world.arrive("diamond", "b", ("a", 1))
    made.world.clock.advance(1)
    made.world.ticks()

    def run(*arguments: str) -> Outcome:
        return cbp("snapshot", "diamond", *arguments, session=made.session)

    text = run()
    assert "the newest state of all its tables" in text.out
    assert "state/join.pairs" in text.out
    answer = run("--latest", "--json").json
    assert {t["epoch"] for t in answer["tables"]} == {0}
    scope: dict[str, Any] = {}
    exec(run("--for", "polars").out, scope)
    assert scope["left_sums"].select("word", "n").rows() == [("a", 1)]
    exec(run("--for", "deltalake").out, scope)
    assert scope["left_sums"].version() == 1
    assert "VERSION AS OF 1" in answer["python"]["spark"]
    assert run("--epoch", "7", "--json").json["error_code"] == "not_found"
    assert run("--latest", "--epoch", "0").status == 2
    assert run("--stage", "left", "--json").json["error_code"] == "request_invalid"
    made.world.close()
