"""Which guides there are, in the order in which they are listed, and their texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from cbp.errors import NotFoundError

PAGES = Path(__file__).parent / "pages"

GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Write a dataflow": (
            "start",
            "source-formats",
            "follow-a-delta-table",
            "files-in-a-bucket",
            "two-stages-and-a-join",
            "results-by-day",
            "add-a-stage",
            "change-your-code",
            "package-translators",
        ),
        "Keep it running": (
            "fix-a-quarantined-file",
            "a-record-stops-a-stage",
            "correct-a-file",
            "roll-back",
            "back-fill",
            "how-fast-am-i",
            "run-on-a-cluster",
            "settings",
            "damage",
        ),
        "Read results": (
            "read-with-duckdb",
            "read-with-polars",
            "read-with-spark",
            "read-in-a-notebook",
        ),
    }
)
"""The names of the guides (the names of their files), by subject."""

_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Guide:
    """One guide, such as `roll-back`; `group` is its subject, a key of `GROUPS`.

    `title` is its first heading, and `about` its first paragraph, on one line: what it is for.
    The text is Markdown without comments.
    """

    name: str
    group: str
    title: str
    about: str
    text: str


@cache
def guides() -> tuple[Guide, ...]:
    """Return all guides, in order."""
    return tuple(_load(name, group) for group, names in GROUPS.items() for name in names)


def find_guide(name: str) -> Guide:
    """Return the guide of a name; the `NotFoundError` names all guides."""
    known = {guide.name: guide for guide in guides()}
    if name not in known:
        raise NotFoundError(kind="guide", name=name, hint=f"use one of {', '.join(known)}")
    return known[name]


def _load(name: str, group: str) -> Guide:
    text = _COMMENT.sub("", (PAGES / f"{name}.md").read_text(encoding="utf-8")).rstrip() + "\n"
    title, about, _ = text.split("\n\n", 2)
    return Guide(name, group, title.removeprefix("# "), " ".join(about.split()), text)
