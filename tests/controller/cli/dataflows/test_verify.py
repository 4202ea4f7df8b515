"""`cbp verify` against the real controller: what it prints, and how it ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.model.version.version_change import Choice
from tests.controller.changing import Upgraded
from tests.controller.cli.conftest import Cbp
from tests.controller.live import live
from tests.controller.wavering import STEPS, Wavering, wavering
from tests.controller.world import ONE, Inline


@pytest.fixture(autouse=True)
def _steady() -> Iterator[None]:
    yield
    STEPS.steps = itertools.repeat(0)


def test_the_command_tells_and_exits_by_the_verdict(cbp: Cbp, tmp_path: Path):
    """0 equal, 1 different with the first groups, 2 a wrong call; JSON as the service has it."""
    made = live(tmp_path / "live", verifier=Inline(), translators={"wavering": Wavering})
    wavering(made.world)

    def run(*arguments: str) -> Any:
        return cbp("verify", "one", *arguments, session=made.session)

    equal = run("--time-limit", "2m")
    assert (equal.status, equal.err) == (0, "")
    assert "one equals its recomputation from scratch (2 tables," in equal.out
    STEPS.steps = itertools.repeat(1)
    differs = run("--split", "at-once")
    assert differs.status == 1
    assert "first at stage `sum`" in differs.out
    assert "expected  'a', 7" in differs.out
    answer = run("--json")
    assert (answer.status, answer.json["status"]) == (1, "differs")
    listed = cbp("verifications", "one", "--json", session=made.session).json["items"]
    assert [one["status"] for one in listed] == ["differs", "differs", "equal"]
    assert (listed[0]["id"], listed[0]["done"]) == (answer.json["id"], 1)
    first = cbp("differences", listed[0]["id"], "--limit", "1", "--json", session=made.session).json
    (one,) = first["items"]
    assert (one["columns"], one["key_columns"], one["key"]) == (["word", "n"], ["word"], ["'a'"])
    assert one["expected"] != one["found"] == [["'a'", "6"]]
    rest = ("--cursor", first["cursor"], "--json")
    more = cbp("differences", listed[0]["id"], *rest, session=made.session).json
    assert {one["table"], *(other["table"] for other in more["items"])} == {
        "state/sum.sums",
        "flows/sum.totals",
    }
    only = cbp("differences", listed[0]["id"], "--table", "x", session=made.session)
    assert "no differing key" in only.out
    STEPS.steps = itertools.count()
    assert "stage `sum` of one is not deterministic" in run().out
    assert run("--time-limit", "soon").status == 2
    assert cbp("verify", "nobody", "--json", session=made.session).json["error_code"] == "not_found"
    made.world.close()


def test_the_command_has_an_exit_status_for_it(cbp: Cbp, tmp_path: Path) -> None:
    """4, with the tables and their reasons; a difference is 1 all the same."""
    made = live(tmp_path / "live", verifier=Inline(), translators={"upgraded": Upgraded})
    upgraded = {**ONE, "stages": {"sum": {**ONE["stages"]["sum"], "translator": "upgraded"}}}
    made.world.controller.register(ONE)
    made.world.store.pause_stage("one", "sum", "by hand")
    made.world.arrive("one", "a", ("a", 1))
    made.world.ticks()
    answer = cbp("verify", "one", session=made.session)
    assert answer.status == 4
    shown_text = " ".join(answer.out.split())
    assert "one is undecided: no difference was found" in shown_text
    assert "2 of 2 tables could not be compared" in shown_text
    shown: Any = cbp("verify", "one", "--json", session=made.session)
    assert (shown.status, shown.json["status"]) == (4, "undecided")
    assert {one["status"] for one in shown.json["tables"]} == {"undecided"}
    made.world.store.pause_stage("one", "sum", "")
    made.world.ticks()
    assert cbp("verify", "one", session=made.session).status == 0
    made.world.controller.change(upgraded, choice=Choice(keep=frozenset({"sum"})))
    made.world.arrive("one", "a", ("a", 1))
    made.world.ticks()
    answer = cbp("verify", "one", session=made.session)
    assert answer.status == 4
    assert "older epochs are not compared" in " ".join(answer.out.split())
    made.world.close()
