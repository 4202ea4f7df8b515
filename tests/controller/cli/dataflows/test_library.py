"""What documents are made of: translators, ready dataflows, and the versions of a dataflow."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.cli.main import main
from controller.cli.new import starter_files
from controller.cli.session import Session
from controller.registry import parse_document
from controller.settings import Settings
from stages.translators.latest import Latest
from tests.controller.api.app_transport import TOKEN, AppTransport
from tests.controller.rest import api_of_world
from tests.controller.world import ONE, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def session_of(world: World) -> Session:
    settings = Settings(root=world.root, token=TOKEN)
    return Session(settings, AppTransport(api_of_world(world, settings)))


def printed(world: World, capsys: pytest.CaptureFixture[str], *command: str) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(command, session=session_of(world))
    assert not ended.value.code
    return capsys.readouterr().out


def answered(world: World, capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    return json.loads(printed(world, capsys, *command, "--json"))


def test_a_translator_tells_what_it_reads_and_writes(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inputs, outputs and states with their columns and keys, as its class declares them."""
    items = answered(world, capsys, "translators")["items"]
    (sum_,) = [one for one in items if one["name"] == "sum"]
    assert sum_["ports"] == {
        "inputs": [{"name": "items", "columns": "word STRING, n BIGINT", "key": "word"}],
        "outputs": [{"name": "totals", "columns": "word STRING, n BIGINT", "key": "word"}],
        "states": [{"name": "sums", "columns": "word STRING, n BIGINT", "key": "word STRING"}],
    }
    assert "items -> totals" in printed(world, capsys, "translators")


def test_one_translator_is_described_with_its_parameters(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """The docstring of its class, what a document may say, and what it reads and writes."""
    world.translators["latest"] = Latest
    world.restart()
    text = printed(world, capsys, "translators", "latest")
    assert (inspect.getdoc(Latest) or "nothing") in text
    for name in inspect.signature(Latest).parameters:
        assert f"  parameter {name}: " in text
    assert answered(world, capsys, "translators", "latest")["summary"] in text
    ports = printed(world, capsys, "translators", "sum")
    assert "  input items: word STRING, n BIGINT, key word\n" in ports


def test_a_translator_that_is_not_there_has_names_like_it(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed that could be taken for a description."""
    with pytest.raises(SystemExit) as ended:
        main(["translators", "summ"], session=session_of(world))
    assert ended.value.code == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "did you mean sum" in " ".join(shown.err.split())


def test_a_ready_dataflow_is_a_document(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Each one that a package ships is listed, and its text is a document of its name."""
    items = answered(world, capsys, "examples")["items"]
    assert {"clustering", "crawl_queue", "pagerank", "set_diff"} <= {one["name"] for one in items}
    for one in items:
        assert one["problem"] == ""
        assert one["summary"]
        assert parse_document(one["text"], "application/yaml")[0]["stages"]
    text = printed(world, capsys, "examples", "crawl_queue")
    assert parse_document(text, "application/yaml")[0]["name"] == "crawl_queue"


def test_a_version_tells_what_it_changed(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Newest first, page by page, with the lines that differ from the version before."""
    world.controller.register(ONE)
    world.clock.advance(60)
    world.controller.change({**ONE, "description": "counts words"})
    world.controller.change({**ONE, "description": "counts"})
    (newest,) = answered(world, capsys, "versions", "one", "--limit", "1")["items"]
    assert (newest["version"], newest["anew"]) == (3, [])
    changed = [line for line in newest["difference"] if line[0] in "+-"]
    assert changed == ["-description: counts words", "+description: counts"]
    page = answered(world, capsys, "versions", "one", "--limit", "2")
    assert [one["version"] for one in page["items"]] == [3, 2]
    rest = answered(world, capsys, "versions", "one", "--cursor", page["cursor"])
    assert [(one["version"], one["difference"]) for one in rest["items"]] == [(1, None)]
    assert rest["cursor"] is None
    assert page["items"][1]["at"] > rest["items"][0]["at"]
    assert "+description: counts words" in printed(world, capsys, "versions", "one", "--diff")


def test_translators_are_listed_without_a_service(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before there is one: what is installed, or with a file's; so are ready dataflows."""
    monkeypatch.chdir(tmp_path)
    own, broken = tmp_path / "own_visits.py", tmp_path / "broken.py"
    own.write_text(starter_files("own")["own/visits.py"])
    broken.write_text("import nothing_of_this_name")

    def cbp(*arguments: str) -> tuple[Any, str]:
        session = Session(Settings(root=tmp_path / "root", port=1))
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--json"], session=session)
        output = capsys.readouterr()
        assert not ended.value.code, output
        return json.loads(output.out), output.err

    listed, said = cbp("translators")
    assert "no service answers" in said
    names = {one["name"] for one in listed["items"]}
    assert {"latest", "top_k"} <= names
    more, said = cbp("translators", "--translators", str(own))
    (name,) = {one["name"] for one in more["items"]} - names
    assert not said
    one, _ = cbp("translators", name, "--translators", str(own))
    assert one["ports"]["inputs"]
    _, said = cbp("translators", "--translators", str(broken))
    assert "nothing_of_this_name" in said
    examples, _ = cbp("examples")
    name = examples["items"][0]["name"]
    assert cbp("examples", name)[0]["text"] == examples["items"][0]["text"]
