"""Numbers in messages agree with their nouns."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cbp.errors.counts import format_count, format_times

REPO = Path(__file__).resolve().parents[3]
BOTH = re.compile(r"[a-z]\(s\)")


@pytest.mark.parametrize(
    ("number", "nouns", "expected"),
    [
        (0, ("file",), "0 files"),
        (1, ("file",), "1 file"),
        (2_000, ("file",), "2,000 files"),
        (1, ("entry is", "entries are"), "1 entry is"),
        (3, ("entry is", "entries are"), "3 entries are"),
    ],
)
def test_a_number_agrees_with_its_noun(number: int, nouns: tuple[str, ...], expected: str) -> None:
    """One of them, or several: none is several."""
    assert format_count(number, *nouns) == expected


def test_how_often_is_said_in_a_word_if_there_is_one() -> None:
    """Once is not in a row."""
    assert [format_times(n) for n in (0, 1, 2)] == ["0 times", "once", "2 times"]
    assert [format_times(n, "in a row") for n in (1, 2)] == ["once", "2 times in a row"]


def test_no_text_leaves_the_number_to_its_reader() -> None:
    """Nothing says `file(s)`: `format_count` knows which it is."""
    packages = [REPO / name for name in ("cbp", "controller", "stages")]
    files = [
        path for one in packages for path in one.rglob("*.py") if "node_modules" not in path.parts
    ]
    assert len(files) > 300
    suspects = [path for path in files if BOTH.search(path.read_text())]  # comments may say it
    assert [text for path in suspects for text in texts(path) if BOTH.search(text)] == []
    guides = [
        REPO / "README.md",
        *(path for one in (*packages, REPO / "deploy") for path in one.glob("*.md")),
    ]
    assert [path for path in guides if BOTH.search(path.read_text())] == []


def texts(path: Path) -> Iterator[str]:
    """Yield the literal texts of a module, docstrings included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
