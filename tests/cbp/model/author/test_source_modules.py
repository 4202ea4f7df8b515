"""Modules that are loaded from text travel with their work to processes without their files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.workers.shipping import pickled
from cbp.model.author.code_fingerprint import fingerprint
from cbp.model.author.source_modules import SourceModule, SourceSet, load_sources, travelling

COUNT = """
from functools import lru_cache
from sourced_text import cleaned

LOCK = __import__("threading").Lock()


@lru_cache
def cached(text):
    return cleaned(text)


class Count:
    class Inner:
        mark = "!"

    def one(self, text):
        with LOCK:
            return cached(text) + self.Inner.mark
"""
TEXT = "def cleaned(text):\n    from sourced_late import suffix\n    return text + suffix\n"
FILES = {"sourced_count": COUNT, "sourced_text": TEXT, "sourced_late": "suffix = '?'\n"}

_WORKER = """
import pickle, sys
sys.path[:0] = sys.argv[1:]
while size := sys.stdin.buffer.read(8):
    print(pickle.loads(sys.stdin.buffer.read(int(size)))())
"""


def reader(files: dict[str, str]) -> Callable[[str], SourceModule | None]:
    """Return what reads these modules, as a folder that is nowhere on disk has them."""

    def read(name: str) -> SourceModule | None:
        text = files.get(name)
        return text and SourceModule(name, f"/nowhere/{name}.py", False, text.encode())  # type: ignore[return-value]

    return read


@pytest.fixture
def load() -> Iterator[Callable[..., SourceSet]]:
    """What loads `sourced_count`, with what it imports later; nothing of it stays."""

    def load_(**changed: str) -> SourceSet:
        sources = load_sources("/nowhere", reader({**FILES, **changed}), ["sourced_count"])
        if hasattr(loaded(), "Count"):
            fingerprint(loaded().Count)  # a translator has one, which follows imports in functions
        return sources

    yield load_
    load_sources("/nowhere", reader({}), [])


def loaded() -> Any:
    return sys.modules["sourced_count"]


def asked(*requests: bytes) -> list[str]:
    """Return what one new process says that is sent these requests, one after the other."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _WORKER, str(Path(__file__).parents[4])],
        input=b"".join(b"%8d" % len(request) + request for request in requests),
        capture_output=True,
        check=True,
        timeout=120,
    )
    return done.stdout.decode().splitlines()


def test_work_of_two_versions_needs_no_file_on_the_worker(load: Any) -> None:
    """Each runs with its own text, also what it imports later; the older one after the newer."""
    load()
    old = loaded().Count
    before = pickled(lambda: old().one("a"))
    load(sourced_text=TEXT.replace("text + suffix", "text + text"))
    new = loaded().Count
    assert asked(before, pickled(lambda: new().one("a")), pickled(lambda: old().one("b"))) == [
        "a?!",
        "aa!",
        "b?!",
    ]


def test_classes_inside_classes_and_modules_travel(load: Any) -> None:
    """By the way in which they are reached from their module."""
    load()
    inner, text = loaded().Count.Inner, sys.modules["sourced_text"]
    assert asked(pickled(lambda: inner.mark + text.cleaned("a"))) == ["!a?"]
    assert travelling(Path) is None
    assert travelling([]) is None


def test_what_was_loaded_stays_if_the_new_text_cannot_be(load: Any) -> None:
    """Nothing is half new: neither modules by name, nor what their imports find."""
    first = load()
    count, text = loaded(), sys.modules["sourced_text"]
    with pytest.raises(ZeroDivisionError):
        load(sourced_count="import sourced_text\n1 / 0\n", sourced_text="x = 1\n")
    assert (loaded(), sys.modules["sourced_text"]) == (count, text)
    assert count.Count().one("a") == "a?!"
    assert {one.name for one in first.modules} >= {"sourced_count", "sourced_text"}


def test_a_fingerprint_follows_the_text_and_its_own_imports(load: Any) -> None:
    """As that of a package does: comments do not count, and a helper's code does."""
    load()
    code = fingerprint(loaded().Count)
    load(sourced_count=COUNT + "# a comment\n")
    assert fingerprint(loaded().Count) == code
    load(sourced_text=TEXT.replace("text + suffix", "suffix + text"))
    assert "sourced_text.cleaned" in ";".join(code.differences(fingerprint(loaded().Count)))


def test_a_file_does_not_hide_an_installed_module(load: Any) -> None:
    """A service imports modules too; its own must not come from an author's folder."""
    load(sourced_count="import polars, colorsys\n", polars="1 / 0", colorsys="1 / 0")
    assert loaded().polars.__file__ != "/nowhere/polars.py"
