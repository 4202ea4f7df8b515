"""Translators of plain files: found by name, loaded anew by a registration, errors by line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.errors import DataflowInvalidError, DefinitionError, Mistake
from cbp.model.author.source_modules import load_sources
from cbp.model.dataflow.dataflow import Dataflow
from controller.registry import Registry, TranslatorFiles
from tests.authored import write
from tests.controller.world import until

COUNT = """
from cbp import Input, Output, TranslateRecords
from filed_text import cleaned


class FiledCount(TranslateRecords):
    urls = Input("url STRING")
    clean = Output("url STRING")

    def translate(self, record, out):
        out.clean(url=cleaned(record.url))


def lower(n: int = 1):
    return FiledCount()
"""
FILES = {"filed_count.py": COUNT, "filed_text.py": "def cleaned(text):\n    return text\n"}
PROJECT = """
[project]
name = "filed-shop"
[project.entry-points."cbp.translators"]
filed_sum = "filed_count:FiledCount"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a translator's file and what it imports; nothing of it stays loaded."""
    write(tmp_path, FILES)
    yield tmp_path
    for path in (tmp_path, *tmp_path.iterdir()):
        load_sources(str(path), lambda _: None, [])


def document(translator: str) -> dict[str, object]:
    stage = {"translator": translator, "inputs": {"urls": "urls"}}
    return {"name": "d", "sources": {"urls": {"schema": "url STRING"}}, "stages": {"count": stage}}


def registry(*paths: Path) -> Registry:
    return Registry([], files=TranslatorFiles(paths))


def compiled(known: Registry, translator: str = "FiledCount") -> Dataflow:
    return known.compile(document(translator))


def refused(known: Registry, translator: str = "FiledCount") -> Mistake:
    """Return the one mistake of a document."""
    with pytest.raises(DataflowInvalidError) as caught:
        compiled(known, translator)
    (mistake,) = caught.value.mistakes
    return mistake


def code(known: Registry, translator: str = "FiledCount") -> str:
    return compiled(known, translator).stages["count"].translator.code.text


@pytest.mark.parametrize("path", ["filed_count.py", "."])
@pytest.mark.parametrize("name", ["FiledCount", "filed_count:FiledCount", "filed_count:lower"])
def test_a_class_of_a_file_is_named_alone_or_with_its_file(
    folder: Path, path: str, name: str
) -> None:
    """Also a function that makes a translator; beside those of packages."""
    known = registry(folder / path)
    assert compiled(known, name).stages["count"].translator.place.startswith(str(folder))
    assert {"FiledCount", "url_count"} < {*known.names()}
    assert known.describe("FiledCount").package == "filed_count.py"


@pytest.mark.parametrize("layout", ["", "src/"])
def test_a_project_offers_its_entry_points(tmp_path: Path, layout: str) -> None:
    """Nothing is installed; its own names count, and not those of its classes."""
    write(tmp_path, {"pyproject.toml": PROJECT})
    write(tmp_path, {f"{layout}{path}": text for path, text in FILES.items()})
    known = registry(tmp_path)
    assert "filed_sum" in known.names()
    assert "FiledCount" not in known.names()
    assert compiled(known, "filed_sum")
    load_sources(str(tmp_path / layout.rstrip("/")), lambda _: None, [])


def test_an_entry_point_without_its_class_is_told(folder: Path) -> None:
    """Also at the second try; the other names of the project work."""
    write(folder, {"pyproject.toml": PROJECT + 'filed_none = "filed_count:Missing"\n'})
    known = registry(folder)
    for _ in range(2):
        assert "filed_count does not define Missing" in refused(known, "filed_none").message
    assert compiled(known, "filed_sum")


@pytest.mark.parametrize("edited", FILES)
def test_a_registration_takes_the_code_that_is_on_disk(folder: Path, edited: str) -> None:
    """What is registered keeps its code, and shows the newer file until then."""
    known = registry(folder / "filed_count.py")
    before = compiled(known)
    assert known.newer_files(before, "count") == []
    text = {"filed_count.py": COUNT.replace("(record.url)", "(record.url + 'x')")}
    write(folder, {edited: text.get(edited, "def cleaned(text):\n    return text + text\n")})
    assert known.newer_files(before, "count") == [str(folder / edited)]
    again = known.compile_registered(document("FiledCount"))
    assert again.stages["count"].translator.code == before.stages["count"].translator.code
    after = compiled(known)
    assert after.stages["count"].translator.code != before.stages["count"].translator.code
    assert known.newer_files(after, "count") == []
    known.require_loaded(after)


def test_a_file_with_equal_code_is_not_newer_once_it_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registration calls that no change; a file that is edited after it counts as changed."""
    known = registry(folder / "filed_count.py")
    before = compiled(known)
    write(folder, {"filed_count.py": f"import json  # not used\n{COUNT}"})
    assert known.newer_files(before, "count") == [str(folder / "filed_count.py")]
    compiled(known)
    made, resolve = list[str](), known.resolve

    def noted(name: str, parameters: Any) -> Any:
        made.append(name)
        return resolve(name, parameters)

    monkeypatch.setattr(known, "resolve", noted)
    for _ in range(3):
        assert known.newer_files(before, "count") == []
    assert len(made) == 1, "an author's constructor may take long"
    monkeypatch.undo()
    write(folder, {"filed_text.py": "def cleaned(text):\n    return text + text\n"})
    assert known.newer_files(before, "count") == [str(folder / name) for name in FILES]
    compiled(known)
    assert known.newer_files(before, "count") == [str(folder / name) for name in FILES]


def test_an_error_of_a_new_file_is_told_by_its_line_and_the_old_code_stays(folder: Path) -> None:
    """A document is refused; what is registered compiles; a mended file is taken at once."""
    known = registry(folder / "filed_count.py")
    was = code(known)
    write(folder, {"filed_count.py": COUNT + "def broken(:\n"})
    line = COUNT.count("\n") + 1
    mistake = refused(known)
    assert (mistake.code, mistake.place) == (
        "translator_failed",
        f"{folder / 'filed_count.py'}:{line}",
    )
    assert "SyntaxError" in mistake.message
    assert known.compile_registered(document("FiledCount"))
    write(folder, FILES | {"filed_text.py": "import filed_missing\n"})
    mistake = refused(known)
    assert mistake.place == f"{folder / 'filed_text.py'}:1"
    assert "pip install filed_missing" in mistake.message
    write(folder, FILES)
    assert code(known) == was


def test_a_file_that_is_wrong_from_the_start_keeps_no_other_name_away(folder: Path) -> None:
    """Its own names cannot be known: whatever is unknown may be one of them."""
    write(folder, {"filed_count.py": "x = 1 / 0\n"})
    known = registry(folder / "filed_count.py")
    assert "url_count" in known.names()
    assert refused(known).place == f"{folder / 'filed_count.py'}:1"
    assert known.compile(document("url_count"))
    write(folder, {"filed_count.py": "import sys\nsys.exit(3)\n"})
    assert "__main__" in refused(known).message
    write(folder, FILES)
    assert compiled(known)


@pytest.mark.parametrize("wrong", ["def broken(:\n", "1 / 0\n", "raise SystemExit(3)\n"])
def test_a_wrong_file_beside_it_keeps_no_translator_away_at_the_start(
    folder: Path, wrong: str
) -> None:
    """What is registered goes on after a restart; who registers is told of the wrong file."""
    write(folder, {"filed_wrong.py": f"import cbp\n{wrong}"})
    known = registry(folder)
    assert known.compile_registered(document("FiledCount"))
    assert refused(known).place == f"{folder / 'filed_wrong.py'}:2"
    assert known.compile_registered(document("FiledCount"))
    write(folder, {"filed_wrong.py": "import cbp\n"})
    assert compiled(known)


def test_an_import_that_hangs_holds_nobody_who_looks_for_newer_files(folder: Path) -> None:
    """It goes on in a thread of its own, and what is loaded stays until it has ended."""
    known = registry(folder / "filed_count.py")
    before = compiled(known)
    gate = folder / "gate"
    gate.touch()
    waits = f"import os, time\nwhile os.path.exists({str(gate)!r}):\n    time.sleep(0.01)\n"
    write(folder, {"filed_text.py": waits + "def cleaned(text):\n    return text\n"})
    loads = known.translator_files.loads
    assert [known.renew(), known.renew()] == [loads, loads]
    assert known.newer_files(before, "count") == [str(folder / "filed_text.py")]
    gate.unlink()
    until(lambda: known.translator_files.loads > loads)
    assert known.renew() == loads + 1


def test_a_name_of_a_ready_translator_is_to_be_another_one(folder: Path) -> None:
    """Those of this package cannot be left out, so the author's own gets another name."""
    write(folder, {"pyproject.toml": PROJECT + 'url_count = "filed_count:FiledCount"\n'})
    mistake = refused(registry(folder), "url_count")
    assert mistake.code == "translator_ambiguous"
    assert f"rename the translator of {folder.name}" in mistake.message


def test_a_name_in_two_files_is_named_with_its_file(folder: Path) -> None:
    """The error names both."""
    write(folder, {"filed_other.py": COUNT})
    known = registry(folder / "filed_count.py", folder / "filed_other.py")
    mistake = refused(known)
    assert mistake.code == "translator_ambiguous"
    assert "filed_other:FiledCount" in mistake.message
    assert compiled(known, "filed_other:FiledCount")
    assert {"filed_count:FiledCount", "filed_other:FiledCount"} < {*known.names()}


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("missing.py", None, "does not exist"),
        ("notes.txt", "", "not a Python file"),
        ("my-flow.py", "", "my_flow.py"),
        ("json.py", "", "installed module"),
        ("polars.py", "", "installed module"),
        ("package/__init__.py", "", "is a package"),
    ],
)
def test_odd_paths_are_refused_at_the_start(
    folder: Path, name: str, text: str | None, word: str
) -> None:
    """With what to do; no code is loaded."""
    if text is not None:
        write(folder, {name: text})
    with pytest.raises(DefinitionError) as caught:
        TranslatorFiles([folder / name if "/" not in name else (folder / name).parent])
    assert caught.value.mistake.code == "translators_path_invalid"
    assert word in caught.value.message


def test_a_name_of_a_module_of_python_is_refused_where_the_file_shadows_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code of Python's modules is not compared, so a new version of the file went unnoticed."""
    write(folder, {"antigravity.py": COUNT})
    monkeypatch.syspath_prepend(folder)  # as `python -m controller.cli serve` in that folder
    with pytest.raises(DefinitionError, match="installed module") as caught:
        TranslatorFiles([folder / "antigravity.py"])
    assert caught.value.mistake.code == "translators_path_invalid"


def test_modules_of_one_name_in_two_folders_are_refused(folder: Path) -> None:
    """The second would get the first one's code."""
    write(folder, {"more/filed_count.py": COUNT, "more/filed_text.py": ""})
    with pytest.raises(DefinitionError) as caught:
        TranslatorFiles([folder / "filed_count.py", folder / "more"])
    assert str(folder / "more") in caught.value.message


def test_a_folder_is_searched_for_files_that_import_cbp(folder: Path) -> None:
    """Scripts, tests and hidden files beside them are not run."""
    others = dict.fromkeys(("script.py", "test_it.py", "conftest.py", ".hidden.py"), "1 / 0\n")
    write(folder, others)
    files = TranslatorFiles([folder])
    assert (files.names(), files.problems()) == ({"FiledCount": "filed_count.py"}, [])
    assert "filed_script" not in sys.modules


def test_an_unknown_name_is_told_how_a_file_is_named(folder: Path) -> None:
    """Another spelling of a class is guessed; a class without a file gets the option named."""
    assert "FiledCount" in refused(registry(folder / "filed_count.py"), "filed_count").message
    assert "--translators" in refused(registry(), "FiledCount").message
