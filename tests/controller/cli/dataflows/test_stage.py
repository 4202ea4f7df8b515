"""`cbp stage` and `cbp increment` against the real controller, and what REST says of a stage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, State, Translate
from tests.controller.cli.conftest import Cbp
from tests.controller.live import Live, live
from tests.controller.world import DIAMOND, SCHEMA


class Picky(Translate):
    """Keeps what it saw; raises on one value."""

    items = Input(SCHEMA, route_by="word")
    seen = State(SCHEMA)
    totals = Output(SCHEMA)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Keep the newest record of a key."""
        for row in group.items:
            if row.n == 13:
                message = "thirteen"
                raise ValueError(message)
            out.seen(word=row.word, n=row.n)
            out.totals(word=row.word, n=row.n)


PICKY = {
    "name": "picky",
    "sources": {"a": {"schema": SCHEMA}},
    "stages": {
        "keep": {
            "translator": "picky",
            "inputs": {"items": "a"},
            "buckets": 4,
            "limits": {"totals": {"records": 2}},
        },
        "again": {"translator": "picky", "inputs": {"items": "keep.totals"}, "buckets": 2},
    },
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Live]:
    made = live(tmp_path, translators={"picky": Picky})
    made.world.controller.register(PICKY)
    yield made
    made.world.close()


def rest(service: Live, *path: str, **query: Any) -> Any:
    with service.session.connect() as client:
        return client.get("dataflows", "picky", *path, **query)


def test_the_size_of_a_state_and_its_skew_are_those_of_the_table(cbp: Cbp, service: Live) -> None:
    """Live records, not those that were replaced; from the log, whatever is in the folder."""
    (none,) = rest(service, "stages", "keep", "states")["items"]
    assert (none["rows"], none["buckets"], none["skew"], none["histogram"]) == (0, 4, None, [])
    service.world.arrive("picky", "a", *((f"k{n}", n) for n in range(10)))
    service.world.ticks()
    service.world.arrive("picky", "a", ("k1", 100), ("k2", 100))
    service.world.ticks()
    (state,) = rest(service, "stages", "keep", "states")["items"]
    node = service.world.controller.dataflow("picky").stages["keep"]
    folder = service.world.store.dataflow("picky").folder
    live_rows = list(service.world.engine.records.read_state(folder, node, "seen"))
    assert (state["state"], state["rows"], len(live_rows)) == ("seen", 10, 10)
    assert sum(state["histogram"]) == 4
    assert state["skew"] == pytest.approx(state["rows_max"] / (10 / 4))
    assert state["bytes"] > 0
    text = cbp("stage", "picky", "keep", session=service.session)
    assert text.status == 0, text.err
    assert "seen" in text.out
    assert "assemble" in text.out


def test_a_stage_says_its_code_and_what_holds_the_stage_before_it(service: Live) -> None:
    """A limit is at the reader's input; a source holds nothing up."""
    keep, again = (rest(service, "stages", name) for name in ("keep", "again"))
    assert keep["limits"] == {}
    assert again["limits"] == {"items": {"increments": None, "records": 2, "bytes": None}}
    assert keep["code"]["version"] == 1
    assert keep["code"]["registered"] == keep["code"]["loaded"] != ""
    assert keep["code"]["drift"] == ""
    assert "/test_stage.py:" in keep["code"]["place"]
    assert (keep["error"], keep["run"], keep["failed_run"]) == (None, None, None)
    assert keep["wait"]["kind"] == ""
    assert rest(service, "stages", "again")["stage"]["name"] == "again"


def test_a_stage_that_failed_names_the_authors_line_and_the_run(cbp: Cbp, service: Live) -> None:
    """While it is tried again and when it has stopped; a good run makes it good."""
    service.world.arrive("picky", "a", ("k", 13))
    service.world.ticks()
    failed = rest(service, "stages", "keep")
    newest = service.world.store.runs("picky", stage="keep", limit=1).items[0]
    assert (failed["failed_run"], failed["run"]) == (newest.id, None)
    assert failed["error"]["error_code"] == "author_code_failed"
    assert "/test_stage.py:" in failed["error"]["details"]["place"]
    service.world.clock.advance(60)
    service.world.ticks()
    assert "thirteen" in cbp("stage", "picky", "keep", session=service.session).out


def test_the_records_of_an_increment_are_paged_with_their_columns(cbp: Cbp, service: Live) -> None:
    """They are exactly this increment's, of sources and of stages; there is none beyond its end."""
    service.world.arrive("picky", "a", *((f"k{n}", n) for n in range(5)))
    service.world.arrive("picky", "a", ("other", 1))
    service.world.ticks()
    path = ("increments", "a", "0", "records")
    first = rest(service, *path, limit=3)
    rest_ = rest(service, *path, limit=3, cursor=first["cursor"])
    assert first["columns"] == [{"name": "word", "type": "STRING"}, {"name": "n", "type": "BIGINT"}]
    assert [row["n"] for row in (*first["items"], *rest_["items"])] == list(range(5))
    assert rest_["cursor"] is None
    written = rest(service, "increments", "keep.totals", "0", "records")["items"]
    assert sorted(row["word"] for row in written) == [f"k{n}" for n in range(5)]
    outcome = cbp("increment", "picky", "a", "1", session=service.session)
    assert "other" in outcome.out
    assert "k0" not in outcome.out
    for flow, index in (("a", "2"), ("nobody", "0"), ("keep.totals", "9")):
        gone = cbp("increment", "picky", flow, index, "--json", session=service.session)
        assert (gone.status, gone.json["error_code"]) == (1, "not_found")


def test_a_stage_that_is_not_there_is_not_found(cbp: Cbp, service: Live) -> None:
    """Neither its figures nor its states."""
    for arguments in (("stage", "picky", "nobody"), ("stage", "nobody", "keep")):
        outcome = cbp(*arguments, "--json", session=service.session)
        assert (outcome.status, outcome.json["error_code"]) == (1, "not_found")


def test_a_stage_inside_a_run_of_others_shows_its_own_figures(cbp: Cbp, tmp_path: Path) -> None:
    """Every stage of a diamond has its page, those that share a run too."""
    made = live(tmp_path / "d")
    made.world.controller.register(DIAMOND)
    made.world.arrive("diamond", "a", ("x", 1))
    made.world.arrive("diamond", "b", ("x", 1))
    made.world.ticks()
    for stage in DIAMOND["stages"]:
        outcome = cbp("stage", "diamond", stage, "--json", session=made.session)
        assert outcome.status == 0, outcome.err
        assert outcome.json["runs"][0]["status"] == "COMMITTED"
    made.world.close()
