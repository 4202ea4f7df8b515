"""How many records were put aside, where an operator looks: over REST and on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from controller.cli import main
from controller.cli.session import Waits
from tests.controller.api.app_transport import AppTransport
from tests.controller.api.rejecting_shop import SOUND, WRONG, Shop

pytestmark = pytest.mark.usefixtures("without_syncs")

ONE = "/api/v1/dataflows/one"
FILES = {"none": SOUND[:2], "some": [SOUND[2], *WRONG[:2]], "all": WRONG}
COUNTS = {"none": 0, "some": 2, "all": 3}


class Living(AppTransport):
    """Takes in what was dropped, and applies it, before each request."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(shop.app)
        self._shop = shop

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._shop.take_in()
        self._shop.world.ticks()
        return super().handle_request(request)


OpenShop = Callable[..., Shop]


@pytest.fixture
def open_shop(tmp_path: Path) -> Iterator[OpenShop]:
    shops = list[Shop]()

    def open_one(**source: Any) -> Shop:
        shops.append(Shop(tmp_path, **source))
        return shops[-1]

    yield open_one
    for shop in shops:
        shop.close()


def figures(shop: Shop) -> dict[str, Any]:
    """Return every figure of rejected records, by what it counts."""
    claims = shop.get(f"{ONE}/claims")["items"]
    increments = shop.get(f"{ONE}/increments", flow="a")["items"]
    (source,) = shop.get(f"{ONE}/sources")["items"]
    (summary,) = shop.get("/api/v1/dataflows")["items"]
    grid = shop.get(f"{ONE}/increments/grid", flow="a")["items"]
    assert shop.get(ONE)["summary"]["rejected"] == summary["rejected"]
    assert [one["rejected"] for one in grid] == [one["rejected"] for one in increments]
    return {
        "claims": {one["path"]: one["rejected"] for one in claims},
        "increments": {one["index"]: one["rejected"] for one in increments},
        "source": source["rejected"],
        "dataflow": summary["rejected"],
    }


def test_nothing_is_counted_before_something_is_rejected(open_shop: OpenShop) -> None:
    """A source without rejected records has 0 everywhere, and the dataflow names no source."""
    shop = open_shop()
    shop.drop("none", FILES["none"])
    assert figures(shop) == {
        "claims": {"none": 0},
        "increments": {0: 0},
        "source": 0,
        "dataflow": {},
    }


def test_every_level_counts_the_same_records_and_a_restart_changes_none(
    open_shop: OpenShop,
) -> None:
    """Files with none, some and only wrong records: each figure is the number of those listed."""
    shop = open_shop()
    for name, lines in FILES.items():
        shop.drop(name, lines)
    counted = figures(shop)
    assert counted == {
        "claims": COUNTS,
        "increments": {0: 0, 1: 2, 2: 3},
        "source": 5,
        "dataflow": {"a": 5},
    }
    listed = shop.get(f"{ONE}/sources/a/rejects")["items"]
    assert {name: sum(one["file"] == name for one in listed) for name in FILES} == COUNTS
    one = shop.get(f"{ONE}/increments/a/2")
    assert (one["records"], one["rejected"]) == (0, 3)
    shop.restart()
    assert figures(shop) == counted


def test_files_of_one_increment_have_figures_of_their_own(open_shop: OpenShop) -> None:
    """The increment has the sum; a claim that goes on or was refused has none."""
    shop = open_shop(batch={"files": 10})
    for name, lines in FILES.items():
        shop.put(name, lines)
    shop.put("refused", WRONG * 2)
    shop.take_in()
    counted = figures(shop)
    assert counted["claims"] == COUNTS | {"refused": 0}
    assert counted["increments"] == {0: 5}
    shop.restart()
    assert figures(shop) == counted


def test_files_keep_their_figures_when_the_store_forgets_their_increment(
    open_shop: OpenShop,
) -> None:
    """A retention of inputs shortens the store; what was rejected stays listed, and counted."""
    shop = open_shop()
    for name, lines in FILES.items():
        shop.drop(name, lines)
    shop.drop("last", SOUND[3:])
    shop.world.ticks()
    assert shop.world.store.forget_increments("one", "a", below=9) == 3
    counted = figures(shop)
    assert counted["increments"] == {3: 0}
    assert counted["claims"] == COUNTS | {"last": 0}
    assert (counted["source"], counted["dataflow"]) == (5, {"a": 5})


def test_a_log_that_cannot_be_read_hides_only_its_figures(open_shop: OpenShop) -> None:
    """Claims, sources and the dataflow are shown, as if nothing had been rejected."""
    shop = open_shop(batch={"files": 10})
    for name, lines in FILES.items():
        shop.put(name, lines)
    shop.take_in()
    folder = Path(shop.world.store.dataflow("one").folder)
    for path in (*folder.glob("sources/a/_log/*.json"), *folder.glob("rejects/a/_delta_log/*")):
        path.write_text("{")
    counted = figures(shop)
    assert counted["claims"] == dict.fromkeys(FILES, 0)
    assert (counted["source"], counted["dataflow"], counted["increments"]) == (0, {}, {0: 5})


@pytest.mark.soak
def test_commands_show_a_column_only_where_something_was_rejected(
    open_shop: OpenShop, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, sources, increments and the state of a dataflow, in 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    shop = open_shop()

    def cbp(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments), session=shop.session)
        printed = capsys.readouterr()
        behind = 3 if arguments[0] == "status" else 0  # no run applies what was dropped
        assert ended.value.code in (None, 0, behind), printed.err + printed.out
        assert all(len(line) <= 80 for line in printed.out.splitlines()), printed.out
        return printed.out

    tables: tuple[tuple[str, ...], ...] = (
        ("claims", "one"),
        ("sources", "one"),
        ("increments", "one"),
        ("increments", "one", "--grid"),
    )
    shop.drop("none", FILES["none"])
    assert all("rejected" not in cbp(*words) for words in (*tables, ("status",), ("status", "one")))
    shop.drop("all", FILES["all"])
    for words in tables:
        heading, *rows = [line.split() for line in cbp(*words).splitlines() if line.strip()][:4]
        assert "rejected" in heading, words
        assert any("3" in row for row in rows), words
    for words in ("status",), ("status", "one"):
        assert "one.a: 3 records were rejected (see: cbp rejects one a)" in cbp(*words)


def test_a_drop_that_waits_says_how_many_records_each_file_lost(
    open_shop: OpenShop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sentence for the file that has some, with the command that lists them; else none."""
    shop = open_shop()
    session = replace(shop.session, transport=Living(shop), waits=Waits(poll_seconds=0))
    paths = []
    for name, lines in FILES.items():
        paths.append(tmp_path / f"{name}.jsonl")
        paths[-1].write_text("\n".join([*lines, ""]))
    with pytest.raises(SystemExit) as ended:
        main(["drop", "one", "a", *map(str, paths), "--upload", "--wait"], session=session)
    printed = capsys.readouterr()
    assert not ended.value.code, printed.err + printed.out
    said = [line.partition(" -> ")[2] for line in printed.out.splitlines()]
    assert said == [
        "none.jsonl, increment 0 of a, applied",
        "some.jsonl, increment 1 of a, applied; 2 records rejected (see: cbp rejects one a)",
        "all.jsonl, increment 2 of a, applied; 3 records rejected (see: cbp rejects one a)",
    ]
