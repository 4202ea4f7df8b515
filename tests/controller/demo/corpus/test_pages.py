"""The pages of the demo: what is found, what links where, and how it is split."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.demo.corpus.pages import (
    LAST,
    Module,
    Page,
    all_names,
    find_modules,
    installed_folders,
    read_page,
    sample,
    split,
    write_pages,
)
from controller.demo.errors import CorpusTooSmallError


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def links(folder: Path, name: str) -> tuple[str, ...]:
    modules = find_modules([folder])
    page = read_page(next(m for m in modules if m.name == name), all_names(modules))
    assert page is not None
    return page.links


def test_modules_are_found_by_dotted_name(tmp_path: Path):
    """One page per module; test suites, data folders and stray names are left out."""
    write(
        tmp_path,
        {
            "b/__init__.py": "",
            "b/c.py": "",
            "b/tests/test_c.py": "",
            "b/data-1/x.py": "",
            "b/not-a-name.py": "",
            "b-1.0.dist-info/x.py": "",
            "a.py": "",
            "__init__.py": "",
            "__editable___b_finder.py": "",
            "b/__pycache__/c.py": "",
        },
    )
    actual = find_modules([tmp_path])
    assert [(m.name, m.site) for m in actual] == [("a", "a"), ("b", "b"), ("b.c", "b")]


def test_a_package_hides_the_module_of_its_name(tmp_path: Path):
    """As Python does: `a/__init__.py` wins over `a.py`, and the first folder over the second."""
    one = write(tmp_path / "one", {"a.py": "", "a/__init__.py": "", "c.py": ""})
    two = write(tmp_path / "two", {"c.py": ""})
    actual = {m.name: m.path for m in find_modules([one, two])}
    assert actual == {"a": one / "a" / "__init__.py", "c": one / "c.py"}


def test_links_are_what_is_imported(tmp_path: Path):
    """Absolute, aliased, nested and repeated imports; distinct and sorted."""
    source = """
import os, os.path as p
from json import dumps
def f():
    if True:
        try:
            import zlib
        except ImportError:
            import os
        finally:
            from b import c, nothing
    match 1:
        case 1:
            import gzip
g = lambda: __import__("not_seen")
"""
    write(tmp_path, {"a.py": source, "b/__init__.py": "", "b/c.py": ""})
    assert links(tmp_path, "a") == ("b", "b.c", "gzip", "json", "os", "os.path", "zlib")


def test_relative_imports_are_resolved(tmp_path: Path):
    """Against the package, which for an `__init__.py` is itself; beyond the top is no link."""
    source = (
        "from . import sibling, x\nfrom .sibling import y\nfrom ..up import z\nfrom .... import no"
    )
    write(
        tmp_path,
        {
            "top/__init__.py": "from . import up",
            "top/up.py": "",
            "top/inner/__init__.py": source,
            "top/inner/sibling.py": "from . import z\nfrom .. import up",
        },
    )
    assert links(tmp_path, "top") == ("top.up",)
    assert links(tmp_path, "top.inner") == ("top.inner", "top.inner.sibling", "top.up")
    assert links(tmp_path, "top.inner.sibling") == ("top.inner", "top.up")


@pytest.mark.parametrize("source", [b"def", b"\xff\xfe", b"a = '\x00'", b"print 1"])
def test_a_file_that_is_no_python_is_skipped(tmp_path: Path, source: bytes):
    """A broken file of somebody's package does not end the demo."""
    write(tmp_path, {"a.py": source})
    (module,) = find_modules([tmp_path])
    assert read_page(module, frozenset()) is None


def test_a_warning_in_a_foreign_file_is_silent(tmp_path: Path):
    """Invalid escapes in other people's strings are their business."""
    write(tmp_path, {"a.py": r"x = '\d'" + "\nimport os"})
    assert links(tmp_path, "a") == ("os",)


def test_a_file_that_vanishes_is_skipped(tmp_path: Path):
    """A package may be removed while the demo reads."""
    assert read_page(Module("a", tmp_path / "a.py", False), frozenset()) is None


def test_this_interpreter_has_thousands_of_pages():
    """The demo's input is real and large wherever its own dependencies are installed."""
    assert len(find_modules(installed_folders())) > 2000


def pages_of(sizes: list[int]) -> list[Page]:
    return [Page(f"s{s}.m{n}", f"s{s}", ()) for s, size in enumerate(sizes) for n in range(size)]


@given(st.lists(st.integers(1, 40), min_size=16, max_size=30), st.integers(1, 5))
def test_every_page_is_in_exactly_one_part(sizes: list[int], increments: int):
    """The parts are a partition, sites stay whole, and the last part has ten pages."""
    pages = pages_of(sizes)
    parts = split(pages, increments)
    assert Counter(page.url for part in parts for page in part) == Counter(p.url for p in pages)
    assert len(parts) == increments + 1
    assert len(parts[-1]) == LAST
    homes = Counter(site for part in parts[:-1] for site in {page.site for page in part})
    assert set(homes.values()) == {1}


@given(st.permutations(pages_of([7, 5, 4, 3, 2, 2])))
def test_the_split_does_not_depend_on_the_order(pages: list[Page]):
    """The same installation gives the same increments."""
    assert split(pages, 3) == split(pages_of([7, 5, 4, 3, 2, 2]), 3)


def test_parts_are_of_similar_size():
    """No increment is much larger than another one, as far as whole sites allow."""
    parts = split(pages_of([30, 29, 28, 5, 4, 3, 2, 1, 1, 1]), 3)
    assert max(map(len, parts[:-1])) - min(map(len, parts[:-1])) <= 3


@pytest.mark.parametrize("sizes", [[5, 5, 4], [100, 100]])
def test_too_small_a_corpus_says_what_to_do(sizes: list[int]):
    """Too few pages or packages is an error that names the options that help."""
    with pytest.raises(CorpusTooSmallError) as caught:
        split(pages_of(sizes), 5)
    assert caught.value.code == "demo_corpus_too_small"


@given(st.integers(0, 50), st.one_of(st.none(), st.integers(0, 60)))
def test_a_sample_has_the_wanted_size(size: int, limit: int | None):
    """A limit gives exactly so many distinct modules, in order."""
    modules = [Module(f"m{n:02}", Path("x"), False) for n in range(size)]
    taken = sample(modules, limit)
    assert len(taken) == (size if limit is None else min(limit, size))
    assert taken == sorted(set(taken), key=lambda module: module.name)


def test_pages_are_written_as_json_lines(tmp_path: Path):
    """One object per line with the columns of the source `pages`, non-ASCII kept."""
    write_pages(tmp_path / "p.jsonl", [Page("ä.b", "ä", ("c", "d")), Page("e", "e", ())])
    lines = (tmp_path / "p.jsonl").read_text(encoding="utf-8").splitlines()
    assert list(map(json.loads, lines)) == [
        {"url": "ä.b", "site": "ä", "links": ["c", "d"]},
        {"url": "e", "site": "e", "links": []},
    ]
