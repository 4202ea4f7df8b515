"""The loop of `cbp dev`: a saved file is registered; after an error the old code goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.model.author.source_modules import load_sources
from controller.cli.dev import DevelopmentLoop
from controller.cli.new import starter_files
from controller.client.service_client import ServiceClient
from tests.authored import write
from tests.controller.served import served
from tests.controller.world import until

NAME = "starter_dev"
SECOND = """
  again:
    translator: starter_dev_visits
    inputs: {visits: visits}
"""
CODE = starter_files(NAME)[f"{NAME}/visits.py"]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / NAME
    write(folder, starter_files(NAME))
    yield folder
    load_sources(str(folder), lambda _: None, [])


class Developer:
    """An author who saves files, and reads what is printed."""

    def __init__(self, project: Path, settings: Any, app: Any, client: ServiceClient) -> None:
        self.project, self.client = project, client
        self.said: list[str] = []
        self.loop = DevelopmentLoop(
            settings,
            app.state.registry,
            [project / "dataflow.yaml"],
            say=lambda line, style="": self.said.append(line),
        )

    def save(self, path: str, text: str) -> str:
        """Save a file; return what is printed."""
        self.said.clear()
        write(self.project, {path: text})
        self.loop.look()
        self.loop.look()
        return "\n".join(self.said)

    def pages(self, stage: str = "count") -> dict[str, Any]:
        rows = self.client.get("dataflows", NAME, "state", stage, "pages", "records")["items"]
        return {row["page"]: row["visits"] for row in rows}

    def drop(self, name: str, *pages: str) -> None:
        records = [{"page": page, "at": "2026-11-23"} for page in pages]
        self.client.post(
            "dataflows",
            NAME,
            "sources",
            "visits",
            "files",
            query={"name": name},
            content="".join(json.dumps(one) + "\n" for one in records).encode(),
            content_type="application/octet-stream",
        )


@pytest.fixture
def developer(project: Path, tmp_path: Path) -> Iterator[Developer]:
    with (
        served(tmp_path / "data", worker_processes=True, translators=(project,)) as (
            settings,
            app,
            _,
        ),
        ServiceClient(settings) as client,
    ):
        yield Developer(project, settings, app, client)


def test_a_saved_file_is_registered_and_an_error_is_told(developer: Developer) -> None:
    """State is computed anew, and that is printed; with an error the old code goes on."""
    developer.loop.register(developer.project / "dataflow.yaml")
    developer.drop("1.jsonl", "/", "/", "/docs")
    until(lambda: developer.pages() == {"/": 2, "/docs": 1})

    said = developer.save(f"{NAME}/visits.py", CODE.replace("visits=count", "visits=count * 10"))
    assert f"{NAME} is at version 2" in said
    assert "count: recomputed" in said
    assert "Until count has read 1 increment again, readers see count.pages empty" in said
    # The new code reads what it kept itself, ten times as much each time it is called.
    until(lambda: developer.pages() == {"/": 20, "/docs": 10})

    said = developer.save(f"{NAME}/visits.py", CODE.replace("count = len", "count == = len"))
    line = 1 + CODE[: CODE.index("count = len")].count("\n")
    assert f"{developer.project / NAME / 'visits.py'}:{line})" in said
    assert "SyntaxError" in said
    developer.drop("2.jsonl", "/new")
    until(lambda: developer.pages().get("/new") == 10)

    assert "does not change the code of any registered dataflow" in developer.save(
        f"{NAME}/visits.py", CODE.replace("visits=count", "visits=count * 10") + "# a comment\n"
    )
    assert f"{NAME} is at version 3" in developer.save(f"{NAME}/visits.py", CODE)
    until(lambda: developer.pages() == {"/": 2, "/docs": 1, "/new": 1})


@pytest.mark.soak
def test_a_stage_added_to_a_document_reads_what_came_before(developer: Developer) -> None:
    """With the default choice its state is that of a stage that was there from the beginning."""
    developer.loop.register(developer.project / "dataflow.yaml")
    developer.drop("1.jsonl", "/", "/", "/docs")
    until(lambda: developer.pages() == {"/": 2, "/docs": 1})
    path = "dataflow.yaml"
    text = (developer.project / path).read_text()
    said = developer.save(path, text + SECOND)
    assert "again: added (new in the document)" in said
    assert "again.visits reads: 1 increment, 3 records" in said
    until(lambda: developer.pages("again") == {"/": 2, "/docs": 1})


def test_a_saved_document_is_registered(developer: Developer) -> None:
    """A mistake in it is reported by its place; nothing changes."""
    text = (developer.project / "dataflow.yaml").read_text()
    assert "registered starter_dev" in developer.save("dataflow.yaml", text + "# saved\n")
    said = developer.save("dataflow.yaml", text.replace("inputs: {visits", "inputs: {vists"))
    assert "stages.count" in said
    assert "keeps running" in said
    more = text.replace("any_order: true", "any_order: true, buckets: 2")
    assert "version 2" in developer.save("dataflow.yaml", more)


def test_a_refused_document_is_registered_once_the_code_is_mended(developer: Developer) -> None:
    """Nobody has to save the document once more."""
    wrong = CODE.replace(
        '"page STRING, at STRING", route_by', '"page STRING, time STRING", route_by'
    )
    developer.save(f"{NAME}/visits.py", wrong)
    text = (developer.project / "dataflow.yaml").read_text()
    assert "column 'time'" in developer.save("dataflow.yaml", f"{text}\n")
    said = developer.save(f"{NAME}/visits.py", CODE)
    assert f"registered {NAME}" in said
    assert "does not change the code of any registered dataflow" not in said


def test_a_promise_that_cannot_be_kept_is_named(developer: Developer) -> None:
    """`any_order: true` lets files be corrected; what keeps them from it is said at once."""
    routed = 'by(lambda visit: visit.page.lower(), "STRING")'
    code = CODE.replace("import Input, Translate, View", "import Input, Translate, View, by")
    code = code.replace('route_by="page"', f"route_by={routed}")
    code = code.replace("    visits = Input", '    key = "page STRING"\n    visits = Input')
    developer.save(f"{NAME}/visits.py", code)
    text = (developer.project / "dataflow.yaml").read_text()
    assert "any_order: true" in text
    said = developer.save("dataflow.yaml", f"{text}\n")
    refused = "no file of visits can be replaced or taken back: stages.count"
    assert f"{refused} cannot apply corrections" in said
    assert "is routed by a function" in said
    (source,) = developer.client.get("dataflows", NAME)["sources"]
    assert source["uncorrectable"] in said


@pytest.mark.soak
def test_other_columns_are_refused_with_the_way_to_begin_anew(developer: Developer) -> None:
    """An author who renames a column is shown a way that works: delete, save, drop again."""
    code = CODE.replace("visits BIGINT", "hits BIGINT").replace("visits=count", "hits=count")
    code = code.replace("page.visits", "page.hits")
    developer.loop.register(developer.project / "dataflow.yaml")
    developer.drop("a", "/", "/")
    until(lambda: developer.pages() == {"/": 2})
    said = developer.save(f"{NAME}/visits.py", code)
    assert f"to start over without its tables, run cbp delete {NAME} --purge" in said
    developer.client.delete("dataflows", NAME, purge="true")
    document = (developer.project / "dataflow.yaml").read_text(encoding="utf-8")
    assert f"registered {NAME}" in developer.save("dataflow.yaml", f"{document}\n")
    developer.drop("a", "/", "/")
    rows = ("dataflows", NAME, "state", "count", "pages", "records")
    until(lambda: [row["hits"] for row in developer.client.get(*rows)["items"]] == [2])
