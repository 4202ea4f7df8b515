"""What is registered is what is loaded: files that changed since are named, and refused."""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cbp.errors import DataflowInvalidError, Mistake
from controller.registry import Registry
from tests.authored import forget, install, write

COUNT = """
from cbp import Input, Output, TranslateRecords
from shopping.text import cleaned


class Count(TranslateRecords):
    urls = Input("url STRING")
    clean = Output("url STRING")

    def translate(self, record, out):
        out.clean(url=cleaned(record.url))


def make(n: int = 1):
    return Count()
"""
FILES = {
    "shopping/__init__.py": "",
    "shopping/count.py": COUNT,
    "shopping/text.py": "def cleaned(text):\n    return text.strip()\n",
    "shopping/other.py": "from shopping import count\n",
}
DOCUMENT = {
    "name": "d",
    "sources": {"urls": {"schema": "url STRING"}},
    "stages": {"count": {"translator": "shopping_count", "inputs": {"urls": "urls"}}},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package, which is loaded anew in each test."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, FILES)
    install(tmp_path, "shopping", {"shopping_count": "shopping.count:Count"})
    yield tmp_path
    forget("shopping")


def judged(registry: Registry) -> tuple[Mistake, ...]:
    """Return why a document is refused."""
    try:
        registry.require_loaded(registry.compile(DOCUMENT))
    except DataflowInvalidError as error:
        return error.mistakes
    return ()


@pytest.mark.parametrize("edited", ["shopping/count.py", "shopping/text.py"])
def test_a_file_that_was_edited_is_refused_until_a_restart(folder: Path, edited: str) -> None:
    """The class's file and those that it calls count; the mistake names the file and what to do."""
    registry = Registry(["shopping"])
    assert judged(registry) == ()
    write(folder, {edited: FILES[edited].replace("strip", "lower") + "\n# more\n"})
    (mistake,) = judged(registry)
    assert (mistake.code, mistake.where) == ("code_not_loaded", "stages.count.translator")
    assert str(folder / edited) in mistake.message
    assert "restart the service" in mistake.message
    registry.compile(DOCUMENT)  # what runs goes on
    forget("shopping")
    assert judged(Registry(["shopping"])) == ()


def test_a_file_that_was_written_back_or_only_touched_is_what_is_loaded(folder: Path) -> None:
    """Its content counts; and files that the code does not need count never."""
    registry = Registry(["shopping"])
    assert judged(registry) == ()
    path = folder / "shopping/text.py"
    write(folder, {"shopping/text.py": "x = 1\n"})
    assert judged(registry)
    write(folder, {"shopping/text.py": FILES["shopping/text.py"]})
    os.utime(path, (1, 1))
    write(folder, {"shopping/other.py": "x = 1\n"})
    assert judged(registry) == ()
    path.unlink()
    assert judged(registry)


def test_a_module_that_was_loaded_with_its_package_is_noted_with_it(folder: Path) -> None:
    """Another translator of the package may be registered much later, when files are others."""
    write(folder, {"shopping/__init__.py": "import shopping.later\n"})
    later = COUNT.replace("strip", "lower").replace("Count", "Later")
    write(folder, {"shopping/later.py": later})
    points = {"shopping_count": "shopping.count:Count", "shopping_later": "shopping.later:Later"}
    install(folder, "shopping", points)
    registry = Registry(["shopping"])
    assert judged(registry) == ()
    write(folder, {"shopping/later.py": later.replace("clean", "cleaner")})
    stage = {"translator": "shopping_later", "inputs": {"urls": "urls"}}
    with pytest.raises(DataflowInvalidError) as refused:
        registry.require_loaded(registry.compile({**DOCUMENT, "stages": {"count": stage}}))
    assert refused.value.mistakes[0].code == "code_not_loaded"


def test_an_entry_point_that_names_another_object_is_refused(folder: Path) -> None:
    """A restart would load that one."""
    registry = Registry(["shopping"])
    assert judged(registry) == ()
    install(folder, "shopping", {"shopping_count": "shopping.count:make"})
    (mistake,) = judged(registry)
    assert mistake.code == "code_not_loaded"
    assert "shopping.count:Count -> shopping.count:make" in mistake.message


def test_the_function_that_makes_a_translator_counts(folder: Path) -> None:
    """It is the code of a version as well as the class is."""
    install(folder, "shopping", {"shopping_count": "shopping.count:make"})
    codes = []
    for n in (1, 2):
        write(folder, {"shopping/count.py": COUNT.replace("n: int = 1", f"n: int = {n}")})
        forget("shopping")
        stage = Registry(["shopping"]).compile(DOCUMENT).stages["count"]
        codes.append(stage.translator.code)
    (difference,) = codes[0].differences(codes[1])
    assert "shopping.count.make" in difference
    assert codes[0].parts.keys() >= {"shopping.count.Count", "shopping.text.cleaned"}


def test_an_archive_that_was_replaced_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package in one has no files of its own."""
    path = tmp_path / "shopping.zip"

    def pack(**more: str) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in {**FILES, **more}.items():
                archive.writestr(name, text)

    pack()
    monkeypatch.syspath_prepend(str(path))
    install(tmp_path, "shopping", {"shopping_count": "shopping.count:Count"})
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = Registry(["shopping"])
    try:
        assert judged(registry) == ()
        pack(more="x = 1\n")
        (mistake,) = judged(registry)
        assert str(path) in mistake.message
    finally:
        forget("shopping")


def test_what_is_not_allowed_names_the_setting(folder: Path) -> None:
    """The list adds to this package's own translators, which may always be named."""
    (mistake,) = judged(Registry([]))
    assert mistake.code == "translator_unknown"
    assert "offered by shopping" in mistake.message
    assert "CBP_ALLOWED_PACKAGES" in mistake.message
    assert "url_count" in Registry(["shopping"]).names()
    assert "shopping_count" in Registry(["Shopping"]).names()


def test_what_was_installed_behind_the_start_is_told(folder: Path) -> None:
    """The service looks for translators when it starts."""
    install(folder, "shopping", {})
    registry = Registry(["shopping"])
    install(folder, "shopping", {"shopping_count": "shopping.count:Count"})
    (mistake,) = judged(registry)
    assert mistake.code == "translator_unknown"
    assert "restart the service" in mistake.message
