"""The pages of the demo: what is found, what links where, and how it is split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.engine.reference.engine import ReferenceEngine
from controller.demo.pages import (
    LAST,
    CorpusTooSmallError,
    Page,
    expected_touched,
    find_modules,
    installed_folders,
    read_page,
    split,
)
from controller.demo.run import document
from controller.registry import Registry
from controller.settings import load_settings

DATAFLOW = Registry(load_settings().allowed_packages).compile(document())
NAMES = st.sampled_from(["a", "a.x", "a.y", "b", "b.x", "c", "c.x", "d.x"])


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def links(folder: Path, name: str) -> list[str]:
    modules = find_modules([folder])
    page = read_page(name, modules[name], modules)
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
    assert list(find_modules([tmp_path])) == ["a", "b", "b.c"]


def test_a_package_hides_the_module_of_its_name(tmp_path: Path):
    """As Python does: `a/__init__.py` wins over `a.py`, and the first folder over the second."""
    one = write(tmp_path / "one", {"a.py": "", "a/__init__.py": "", "c.py": ""})
    two = write(tmp_path / "two", {"c.py": ""})
    assert find_modules([one, two]) == {"a": one / "a" / "__init__.py", "c": one / "c.py"}


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
    assert links(tmp_path, "a") == ["b", "b.c", "gzip", "json", "os", "os.path", "zlib"]


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
    assert links(tmp_path, "top") == ["top.up"]
    assert links(tmp_path, "top.inner") == ["top.inner", "top.inner.sibling", "top.up"]
    assert links(tmp_path, "top.inner.sibling") == ["top.inner", "top.up"]


@pytest.mark.parametrize("source", [b"def", b"\xff\xfe", b"a = '\x00'", b"print 1"])
def test_a_file_that_is_no_python_is_skipped(tmp_path: Path, source: bytes):
    """A broken file of somebody's package does not end the demo."""
    write(tmp_path, {"a.py": source})
    assert read_page("a", tmp_path / "a.py", ()) is None


def test_a_warning_in_a_foreign_file_is_silent(tmp_path: Path):
    """Invalid escapes in other people's strings are their business."""
    write(tmp_path, {"a.py": r"x = '\d'" + "\nimport os"})
    assert links(tmp_path, "a") == ["os"]


def test_a_file_that_vanishes_is_skipped(tmp_path: Path):
    """A package may be removed while the demo reads."""
    assert read_page("a", tmp_path / "a.py", ()) is None


def test_this_interpreter_has_thousands_of_pages():
    """The demo's input is real and large wherever its own dependencies are installed."""
    assert len(find_modules(installed_folders())) > 2000


def pages_of(sizes: list[int]) -> list[Page]:
    return [Page(f"s{s}.m{n}", f"s{s}", []) for s, size in enumerate(sizes) for n in range(size)]


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


def page(url: str, *links: str) -> Page:
    return Page(url, url.partition(".")[0], list(links))


def test_what_is_touched_counted_by_hand():
    """Two pages: links to a.x, b and c; d is crawled, has no link and was unknown; a.y had one."""
    before = [page("a", "b.x", "a.y"), page("e", "a")]
    now = [page("a.y", "a.x", "b"), page("d", "b", "c")]
    assert expected_touched(now, before) == {
        # a, b, c; and a.x, b, c with the totals of a, b, c
        "count_in_links": (3, 6),
        # a, b, c, d; and a.x, b, c, a.y, d with the totals of a, b, c, d
        "merge": (4, 9),
        # a.x, b, c; and a.y, which leaves
        "threshold": (4, 3),
    }


def states(engine: ReferenceEngine) -> dict[str, set[tuple[object, ...]]]:
    names = {"count_in_links": "counts", "merge": "known", "threshold": "queue"}
    return {
        stage: {tuple(r.values()) for r in engine.state(stage, name)}
        for stage, name in names.items()
    }


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Page], list[Page]]:
    urls = draw(st.lists(NAMES, unique=True, max_size=8))
    links = st.lists(NAMES, unique=True, max_size=4)
    pages = [page(url, *draw(links)) for url in urls]
    cut = draw(st.integers(0, len(pages)))
    return pages[:cut], pages[cut:]


@given(histories())
def test_what_is_touched_is_what_changes_in_the_reference_engine(
    history: tuple[list[Page], list[Page]],
):
    """The records written are exactly those that are new in the oracle's state."""
    engine = ReferenceEngine(DATAFLOW)
    before, now = history

    def feed(pages: Sequence[Page]) -> dict[str, set[tuple[object, ...]]]:
        engine.feed("pages", [one.record() for one in pages])
        engine.run_until_idle()
        return states(engine)

    old, new = feed(before), feed(now)
    for stage, (_, written) in expected_touched(now, before).items():
        assert written == len(new[stage] - old[stage])
