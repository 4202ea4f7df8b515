"""Documents are true: links lead somewhere, and files and tests that they name are there.

What the READMEs execute is held by `test_readme.py`.
"""

from __future__ import annotations

import io
import json
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

from controller.guides import PAGES
from tests.executed_documents import blocks
from tests.guides.write import renew
from tests.invariants import read_tests

REPO = Path(__file__).resolve().parents[1]
PACKAGES = ("cbp", "controller", "stages", "deploy", "tests")
DOCUMENTS = sorted(
    [
        *(
            REPO / name
            for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "deploy/SECURITY.md")
        ),
        *(
            path
            for package in PACKAGES
            for path in (REPO / package).rglob("README.md")
            if "node_modules" not in path.parts
        ),
        *PAGES.glob("*.md"),
    ]
)
NAMES = [path.relative_to(REPO).as_posix() for path in DOCUMENTS]
# What a document names and a command makes.
MADE = {"clicks.py", "deploy/secrets/spark_secret", "visits.py"}
LINES_MAX = {"README.md": 200, "ARCHITECTURE.md": 250}
# Rooms: packages whose own packages have a line of the code map each.
ROOMS = (
    "cbp",
    "cbp/model",
    "cbp/engine",
    "controller",
    "controller/cli",
    "controller/ingest",
    "controller/loop",
    "controller/store",
)
FENCED = re.compile(r"^```\w*\n.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
QUOTED = re.compile(r"`([\w./-]+\.(?:py|md|sh|toml|yaml|txt)|[\w.-]+(?:/[\w.-]+)+/?)`")
# Words that readers had to read twice; each has a plain one, such as reports, shows, is, any.
READ_TWICE = re.compile(r"\b(?:told|tells|lies|stands|whoever|whom)\b", re.IGNORECASE)
# A path of ours inside of a command.
COMMANDED = re.compile(
    r"(?<![\w/.])((?:cbp|controller|stages|deploy|tests)/[\w./-]+\.(?:py|md|sh))\b"
)


def prose(path: Path) -> str:
    """Return a document without its fenced blocks."""
    return FENCED.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """Return the names of a document's headings as links spell them."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_every_link_leads_to_a_file_and_a_heading(document: Path):
    """A link to a file of ours names one that is there, and a heading that it has."""
    broken = []
    for target in LINK.findall(prose(document)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = document.parent / name if name else document
        if file.is_dir():
            file = file / "README.md"
        if not file.is_file() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_every_file_that_is_named_is_there(document: Path):
    """A path of ours, in back quotes or in a command, exists: from the top or from here."""
    missing = []
    text = prose(document)
    saved = {block.name for block in blocks(document.read_text(encoding="utf-8"))}
    for name in [*QUOTED.findall(text), *COMMANDED.findall(text)]:
        first = name.split("/")[0]
        starts = [REPO, document.parent, REPO / "cbp" / "engine"]
        ours = first in PACKAGES or name.endswith((".py", ".md")) or (REPO / name).exists()
        if (
            ours
            and name not in MADE | saved
            and not any((start / name).exists() for start in starts)
        ):
            missing.append(name)
    assert missing == []


@cache
def names_of_tests() -> set[str]:
    return {name.rpartition("::")[2] for held in read_tests() for name, _ in held.tests}


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_every_test_that_is_named_is_there(document: Path):
    """A test that holds a rule is found by the name that the document gives it."""
    tests = names_of_tests()
    named = set(re.findall(r"`(test_\w+)(?:\[[^`]*\])?`", prose(document)))
    assert named - tests == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_a_file_that_a_service_loads_imports_the_test_kit_only_as_a_script(document: Path):
    """Each worker process imports the file, and the test kit takes seconds."""
    saved = [one for one in blocks(document.read_text(encoding="utf-8")) if one.name]
    assert [one.name for one in saved if "\nfrom cbp.testing" in one.content] == []


@pytest.mark.parametrize("name", LINES_MAX)
def test_what_many_read_is_short(name: str):
    """A stranger has five minutes; the whole is three pages."""
    lines = (REPO / name).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LINES_MAX[name]


def test_lines_of_the_architecture_fit_a_window():
    """No line has more than 120 characters."""
    lines = (REPO / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 120] == []


def test_the_code_map_has_every_room():
    """A new package fails here until the map says what is in it."""
    text = (REPO / "ARCHITECTURE.md").read_text(encoding="utf-8")
    code_map = text.partition("\n## Code map\n")[2].partition("\n## ")[0]
    rooms = [
        path.parent.relative_to(REPO).as_posix()
        for room in ROOMS
        for path in (REPO / room).glob("*/__init__.py")
    ]
    assert rooms
    assert [room for room in rooms if f"`{room}`" not in code_map] == []


def test_the_table_of_scopes_has_every_route_that_changes_something():
    """Each is in its scope's row of deploy/README.md; the document says what a route needs."""
    text = (REPO / "deploy" / "README.md").read_text(encoding="utf-8")
    table = text.partition("\n## Who may do what\n")[2].partition("\n\nThe ones that")[0]
    rows = dict(re.findall(r"^\| `(viewer|operator|admin)` \|(.*)$", table, re.MULTILINE))
    told = {scope: set(re.findall(r"`([a-z_]+_[a-z_]+)`", row)) for scope, row in rows.items()}
    needed: dict[str, set[str]] = {"viewer": set(), "operator": set(), "admin": set()}
    document = json.loads((REPO / "controller" / "ui" / "openapi.json").read_text())
    for methods in document["paths"].values():
        for method, operation in methods.items():
            if method != "get" and "x-cbp-scope" in operation:
                needed[operation["x-cbp-scope"]].add(operation["operationId"])
    assert told == needed


def words_of(path: Path) -> str:
    """Return what people read of a file: of Python, comments and strings, not names."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py" or not READ_TWICE.search(text):
        return text
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(t.string for t in tokens if t.type in (tokenize.COMMENT, tokenize.STRING))


def test_the_product_uses_plain_words():
    """No text of the product, its page or its guides has a word that must be read twice."""
    texts = [
        path
        for package in ("cbp", "controller", "deploy")
        for ending in ("py", "md", "ts", "tsx")
        for path in (REPO / package).rglob(f"*.{ending}")
        if "node_modules" not in path.parts and path.name != "schema.d.ts"
    ]
    found = {
        f"{path.relative_to(REPO)}: {line.strip()}"
        for path in [REPO / "README.md", *texts]
        for line in words_of(path).splitlines()
        if READ_TWICE.search(line)
    }
    assert found == set()


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_a_guide_is_what_the_code_says(page: Path) -> None:
    """Mended by `python -m tests.guides.write`."""
    text = page.read_text(encoding="utf-8")
    assert text == renew(text)
