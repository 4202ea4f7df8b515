"""What a stage set aside, over REST, the command line, the metrics and the alerts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, Translate, framed
from cbp.engine.direct import LocalEngine
from controller.app.construction import alert_watch_for
from controller.cli import main
from controller.settings import Settings
from tests.controller.api.app_transport import TOKEN
from tests.controller.api.rejecting_shop import Shop
from tests.controller.loop.runs.test_set_aside import FRAGILE, MENDED, Fragile, mend, sums
from tests.controller.world import SCHEMA, World

pytestmark = pytest.mark.usefixtures("without_syncs")

AT = "/api/v1/dataflows/one/stages/sum"


class FragileShop(Shop):
    """One source and a stage whose code fails on 13; passes are made by hand."""

    def __init__(self, root: Path, document: dict[str, Any], **more: type[Translate]) -> None:
        self.world = World(root, engine=LocalEngine)
        self.world.translators |= {"fragile": Fragile, **more}
        self.world.restart()
        self.world.controller.register(document)
        self.settings = Settings(root=root, token=TOKEN)
        self.incoming = self.settings.drop_root / "one" / "a" / "incoming"
        self._open()

    def put_numbers(self, name: str, *records: tuple[str, int]) -> None:
        """Drop a file whose second line is blank, and let everything run."""
        lines = [json.dumps({"word": word, "n": n}) for word, n in records]
        self.drop(name, [lines[0], "", *lines[1:]])
        self.world.ticks()

    def cbp(self, capsys: Any, *arguments: str, code: int = 0) -> str:
        """Return what a command prints."""
        with pytest.raises(SystemExit) as ended:
            main(list(arguments), session=self.session)
        printed = capsys.readouterr()
        assert (ended.value.code or 0) == code, printed.err + printed.out
        return str(printed.out)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[FragileShop]:
    made = FragileShop(tmp_path, FRAGILE)
    yield made
    made.close()


def test_it_is_listed_with_file_and_line(shop: FragileShop) -> None:
    """In pages of any size; a blank line counts."""
    shop.put_numbers("monday.jsonl", ("a", 1), ("b", 13), ("b", 2), ("c", 3))
    page = shop.get(f"{AT}/set-aside")
    assert page["cursor"] is None
    assert [(one["key"], one["record"], one["file"], one["line"]) for one in page["items"]] == [
        ({"word": "b"}, {"word": "b", "n": 13}, "monday.jsonl", 3),
        ({"word": "b"}, {"word": "b", "n": 2}, "monday.jsonl", 4),
    ]
    first = shop.get(f"{AT}/set-aside", limit=1)
    second = shop.get(f"{AT}/set-aside", limit=1, cursor=first["cursor"])
    assert [*first["items"], *second["items"]] == page["items"]
    assert second["cursor"] is None
    assert shop.client.get(f"{AT}x/set-aside").status_code == 404
    assert shop.get("/api/v1/dataflows/one/stages/again/set-aside")["items"] == []


def test_a_dataflow_is_not_up_to_date_while_something_is_set_aside(
    shop: FragileShop, capsys: pytest.CaptureFixture[str]
) -> None:
    """`cbp status` counts it and ends with 4; so do summary, stage, metric and alert."""
    assert "up to date" in shop.cbp(capsys, "status")
    shop.put_numbers("monday.jsonl", ("a", 1), ("b", 13))
    printed = shop.cbp(capsys, "status", code=4)
    assert "1 record is set aside" in printed
    assert "cbp set-aside one sum" in printed
    printed = shop.cbp(capsys, "status", "one", code=4)
    assert "sum: 1 record is set aside" in printed
    assert re.search(r"^sum +set aside +\d", printed, re.MULTILINE)
    assert "sum: set aside, next epoch 1" in shop.cbp(capsys, "stage", "one", "sum")
    stages = {one["name"]: one for one in shop.get("/api/v1/dataflows/one")["stages"]}
    assert (stages["sum"]["state"], stages["sum"]["set_aside"]) == ("set_aside", 1)
    assert (stages["again"]["state"], stages["again"]["set_aside"]) == ("waiting", 0)
    assert shop.get("/api/v1/dataflows")["items"][0]["set_aside"] == {"sum": 1}
    (judged,) = shop.get("/api/v1/freshness")["dataflows"]
    assert (judged["state"], judged["left"]) == ("stuck", ["sum: 1 record is set aside"])
    metrics = shop.client.get("/api/v1/metrics").text
    assert 'cbp_set_aside_records{dataflow="one",stage="sum"} 1.0' in metrics
    watch = alert_watch_for(
        shop.settings,
        controller=shop.world.controller,
        store=shop.world.store,
        drop_folder=shop.app.state.parts.drop_folder,
        leads=lambda: True,
        clock=shop.world.clock,
    )
    (standing,) = watch.standing()
    assert (standing.alert.key, standing.alert.size) == ("set_aside:one/sum", 1)


def test_the_commands_list_it_try_it_and_give_it_back(
    shop: FragileShop, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run changes nothing, and ends with 1 while something would fail again."""
    assert "nothing is set aside" in shop.cbp(capsys, "set-aside", "one", "sum")
    shop.put_numbers("monday.jsonl", ("a", 1), ("b", 13))
    shop.put_numbers("tuesday.jsonl", ("b", 2))
    printed = shop.cbp(capsys, "set-aside", "one", "sum")
    assert "monday.jsonl:3" in printed
    assert "set_aside_behind" in printed
    listed = json.loads(shop.cbp(capsys, "set-aside", "one", "sum", "--json"))
    assert listed == shop.get(f"{AT}/set-aside", limit=20)
    printed = shop.cbp(capsys, "give-back", "one", "sum", "--dry-run", code=1)
    assert "2 records fail again" in printed
    mend(shop.world)
    assert "2 records would be applied" in shop.cbp(capsys, "give-back", "one", "sum", "--dry-run")
    assert len(shop.get(f"{AT}/set-aside")["items"]) == 2
    printed = shop.cbp(capsys, "give-back", "one", "sum", "--reason", "mended")
    assert "2 records applied as epoch 2" in printed
    shop.world.ticks()
    assert sums(shop.world) == {"a": 1, "b": 15}
    assert "up to date" in shop.cbp(capsys, "status")
    shop.cbp(capsys, "give-back", "one", "sum", "--reason", "again", code=1)


class Tens(Translate):
    """Frames by tens; a number that is missing has no frame."""

    items = Input(SCHEMA, route_by="word", frame_by=framed(lambda row: row.n // 10))
    totals = Output("word STRING, n BIGINT")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        out.totals(word=key.word, n=sum(row.n for row in group.items))


@pytest.mark.parametrize("on_error", ["stop", "set_aside"])
def test_a_record_without_a_frame_has_file_and_line(tmp_path: Path, on_error: str) -> None:
    """Also in the second file of an increment, and whether its stage stops or goes on."""
    document = {
        "name": "one",
        "sources": {"a": {"schema": SCHEMA, "format": "jsonl", "batch": {"files": 2}}},
        "stages": {"sum": {"translator": "tens", "inputs": {"items": "a"}, "on_error": on_error}},
    }
    shop = FragileShop(tmp_path, document, tens=Tens)
    shop.put("monday.jsonl", ['{"word": "a", "n": 1}'])
    shop.put("tuesday.jsonl", ['{"word": "a", "n": 11}', "", '{"word": "b"}'])
    shop.take_in()
    shop.world.ticks()
    if on_error == "set_aside":
        shop.world.controller.close("one", "a", key="k")
        shop.world.ticks()
        (one,) = shop.get(f"{AT}/set-aside")["items"]
        assert (one["file"], one["line"]) == ("tuesday.jsonl", 3)
        assert "items.frame_by failed at" in one["message"]
    else:
        error = shop.get(AT)["error"]
        assert error["message"].endswith("(the record is from tuesday.jsonl, line 3)")
    shop.close()


def test_a_stage_that_stops_names_file_and_line(tmp_path: Path) -> None:
    """Without the option, too: in the error of the run, and where it is shown."""
    stages = {**FRAGILE["stages"], "sum": dict(FRAGILE["stages"]["sum"])}
    del stages["sum"]["on_error"], stages["sum"]["set_aside_max"]
    shop = FragileShop(tmp_path, {**FRAGILE, "stages": stages})
    shop.put_numbers("monday.jsonl", ("a", 1), ("c", 3), ("b", 13))
    (run,) = shop.get("/api/v1/runs", status="FAILED")["items"]
    assert run["error"]["message"].endswith("(the record is from monday.jsonl, line 4)")
    assert run["error"]["details"]["origin"] == "the record is from monday.jsonl, line 4"
    assert run["error"]["details"]["records"] == {
        "items": {"flow": "a", "increment": 0, "record": 2}
    }
    shop.close()


def test_a_document_is_refused_with_the_place(shop: FragileShop) -> None:
    """An unknown word, a number out of range, and a limit without the option."""
    for given, said in (
        ({"on_error": "skip"}, "use one of stop, set_aside"),
        ({"on_error": "set_aside", "set_aside_max": 0}, "from 1 to 10000"),
        ({"set_aside_max": 5}, "only with `on_error: set_aside`"),
    ):
        stage = {**MENDED["stages"]["again"], **given}
        document = {**MENDED, "name": "two", "stages": {**MENDED["stages"], "again": stage}}
        answer = shop.client.post("/api/v1/dataflows/validate", json=document)
        (mistake,) = answer.json()["details"]["mistakes"]
        assert (mistake["code"], mistake["where"]) == ("on_error_invalid", "stages.again.on_error")
        assert said in mistake["message"]
