"""A state kept by columns of its own: read, corrected, verified and changed by a service.

The state is read in the order that it asks for. Other columns are a change that is refused unless
the state is rebuilt; a description without them means what it did.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, State, Translate
from cbp.engine.direct import LocalEngine
from cbp.errors import CbpError, ChangeRefusedError, VersionUnreadableError
from cbp.model.version.version_change import Choice
from controller.loop.reading.reader import AsOf
from tests.controller.diamond import KEPT
from tests.controller.reading_client import Client
from tests.controller.verified import WAYS, verified
from tests.controller.world import DIAMOND, SCHEMA, Inline, World

pytestmark = pytest.mark.usefixtures("without_syncs")

ONLY = {**DIAMOND, "stages": {"left": DIAMOND["stages"]["left"]}}


class SumAs(Translate):
    """Adds up numbers per word, and keeps them under another name; `word` is something else."""

    items = Input(SCHEMA, route_by="word")
    sums = State("word BIGINT, n BIGINT, term STRING", route_by="term")
    totals = Output("word STRING, n BIGINT", key="word")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=-n, n=n, term=key.word)
        out.totals(word=key.word, n=n)


class SumByOther(SumAs):
    """The same columns, and another one holds the key."""

    key = "word STRING"
    sums = State("word BIGINT, n BIGINT, term STRING, other STRING", route_by="other")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        n = sum(r.n for r in group.items) + sum(r.n for r in group.sums)
        out.sums(word=-n, n=n, term="", other=key.word)
        out.totals(word=key.word, n=n)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, engine=LocalEngine, retention=KEPT, verifier=Inline())
    made.translators["sum"] = SumAs
    made.restart()
    made.controller.register(ONLY)
    made.controller.register({**ONLY, "name": "untouched"})
    for number in range(3):
        for name in ("diamond", "untouched"):
            made.arrive(name, "a", ("x", number), ("y", 1))
        made.clock.advance(1)
        made.ticks()
    yield made
    made.close()


def correct(client: Client, key: dict[str, Any]) -> None:
    made = [{"key": key, "records": [{"n": 40, "word": 0}]}]
    with client.session.connect() as service:
        service.post(
            *("dataflows", "diamond", "state", "left", "sums", "corrections"),
            content=json.dumps({"corrections": made}).encode(),
            content_type="application/json",
            query={"reason": "counted twice", "by": "me"},
        )


def test_its_records_are_read_and_corrected_by_its_own_columns(world: World) -> None:
    """Over REST, by key and page by page; a key by the stage's names is refused."""
    client = Client(world, world.controller)
    assert client.get()["stages"][0]["states"][0]["key"] == "term STRING"
    assert client.get("state", "left", "sums", term="x")["items"] == [
        {"word": -3, "n": 3, "term": "x"}
    ]
    pages = client.all("state/left.sums", limit=1)
    assert {row["term"]: row["n"] for row in pages} == {"x": 3, "y": 3}
    for refused in (
        lambda: client.get("state", "left", "sums", word="x"),
        lambda: correct(client, {"word": "x"}),
        lambda: correct(client, {"word": 7}),
    ):
        with pytest.raises(CbpError, match="term STRING"):
            refused()
    correct(client, {"term": "x"})
    world.arrive("diamond", "a", ("x", 2))
    world.ticks()
    assert client.get("state", "left", "sums", term="x")["items"] == [
        {"word": -42, "n": 42, "term": "x"}
    ]
    assert {row["term"] for row in client.all("state/left.sums")} == {"x", "y"}


@pytest.mark.parametrize("request_", [WAYS[0], WAYS[-1]], ids=lambda r: f"{r.split}-{r.engine}")
def test_it_is_verified(world: World, request_: Any) -> None:
    """Equal to a recomputation by either engine."""
    verification = verified(world, "untouched", request_)
    assert (verification.status, verification.error) == ("equal", None)
    assert {table.table: table.status for table in verification.tables}[
        "state/left.sums"
    ] == "equal"


def test_other_columns_are_a_change_that_is_refused_unless_rebuilt(world: World) -> None:
    """The error names both; kept by force, it is refused too; the old state is not read by key."""
    before = AsOf(at_ms=int(world.clock().timestamp() * 1000))
    world.translators["other"] = SumByOther
    world.restart()
    stages = {"left": {**ONLY["stages"]["left"], "translator": "other"}}
    for keep in ((), ("left",)):
        with pytest.raises(ChangeRefusedError) as refused:
            world.controller.change({**ONLY, "stages": stages}, choice=Choice(frozenset(keep)))
        told = {one.code: one.message for one in refused.value.mistakes}
        assert "keyed by (term)" in told["key_changed"]
        assert "looks records up by (other)" in told["key_changed"]
    choice = Choice(rebuild=frozenset({"left"}))
    world.clock.advance(1)
    world.controller.change({**ONLY, "stages": stages}, choice=choice)
    world.ticks()
    reading = world.controller.reading
    (actual,) = reading.look_up("diamond", "left", "sums", {"other": "x"})
    assert (actual["n"], actual["other"]) == (3, "x")
    with pytest.raises(VersionUnreadableError) as unreadable:
        reading.look_up("diamond", "left", "sums", {"other": "x"}, before)
    assert str(unreadable.value.details["path"]).endswith("state/left.sums")
