"""Which guides there are, and that they travel with the package."""

from __future__ import annotations

import fnmatch
import tomllib
from pathlib import Path

import pytest

from cbp.errors import NotFoundError
from controller.guides import GROUPS, PAGES, Guide, find_guide, guides

REPO = Path(__file__).resolve().parents[3]
LINES_MIN, LINES_MAX = 20, 260
ABOUT_LENGTH_MAX = 240


def test_every_file_is_a_guide_and_every_guide_a_file() -> None:
    """A file that no list names would be found by nobody."""
    names = [name for group in GROUPS.values() for name in group]
    assert sorted(names) == sorted(path.stem for path in PAGES.glob("*.md"))
    assert [guide.name for guide in guides()] == names


@pytest.mark.parametrize("guide", guides(), ids=lambda guide: guide.name)
def test_a_guide_begins_with_its_task(guide: Guide) -> None:
    """A title, and one paragraph in which readers find themselves; then what to do."""
    assert guide.text.startswith(f"# {guide.title}\n\n")
    assert guide.about.endswith((".", "?"))
    assert len(guide.about) <= ABOUT_LENGTH_MAX
    assert "<!--" not in guide.text
    assert LINES_MIN <= len(guide.text.splitlines()) <= LINES_MAX


def test_an_unknown_guide_is_refused_with_the_names() -> None:
    """What is asked for is distinguished from what there is."""
    with pytest.raises(NotFoundError, match="roll-back") as caught:
        find_guide("nothing")
    assert caught.value.as_dict()["details"] == {"kind": "guide", "name": "nothing"}


def test_the_package_holds_them() -> None:
    """An installation, which has no checkout beside it, has every guide."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["controller.guides"]
    package = PAGES.parent
    held = {path for pattern in patterns for path in package.glob(pattern)}
    assert held == set(PAGES.iterdir())
    included = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert any(fnmatch.fnmatch("controller.guides", pattern) for pattern in included)
