"""The command `cbp new`: a starter project in a folder of its own.

A project is a package with an entry point for its translator, a document, a few records, and a test
with `cbp.testing`. It needs no installation: `cbp serve` in its folder reads its `pyproject.toml`
(`controller.registry.translator_files`). `pip install .` makes a package of it, for production.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from cbp.errors import AlreadyExistsError, DefinitionError, Mistake
from cbp.model.author.sibling_packages import is_installed
from cbp.model.flow.schema import is_name
from controller.cli.errors import FolderUnwritableError
from controller.cli.session import Session
from controller.terminal import print_text

Name = Annotated[str, typer.Argument(help="Name of the project, its folder and its dataflow.")]


def new_command(session: Session, name: Name) -> None:
    """Make a starter project: a package with a translator, its test, a document and records.

    The folder NAME is created in the current folder. It may already exist if it is empty.
    """
    check_project_name(name)
    folder = Path(name)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise AlreadyExistsError(kind="folder with files", name=str(folder))
        files = starter_files(name)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise FolderUnwritableError(folder, error.strerror or str(error)) from error
    session.exit_if_json({"folder": str(folder.absolute()), "files": sorted(files)})
    print_text(f"made {folder}/ with {len(files)} files; try:", "green")
    print_text(f"  cd {folder}")
    print_text("  python -m pytest               # in memory")
    print_text("  cbp dev dataflow.yaml          # the service; and, in another terminal:")
    print_text(f"  cbp drop {name} visits records/*.jsonl --wait")
    print_text(f"  cbp state {name} count.pages")


NAME_MAX = 40
_TAKEN = frozenset({"test", "tests", "records", "src"})
"""Names of a project's own folders, or names with a meaning for tools."""

_FILES = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$distribution"
version = "0.1"
requires-python = ">=3.11"
dependencies = ["cbp"]

# Translators by the names that documents use: `name = "module:Class"`. `cbp serve` reads this.
[project.entry-points."cbp.translators"]
${name}_visits = "$name.visits:Visits"

[tool.setuptools]
packages = ["$name"]

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
""",
    "$name/__init__.py": '''"""Translators of $name."""
''',
    "$name/visits.py": '''\
"""Counts the visits of each page."""

from cbp import Input, Translate, View


class Visits(Translate):
    """Keep, for each page, the number of visits and the time of the last one."""

    visits = Input("page STRING, at STRING", route_by="page")
    pages = View("page STRING, visits BIGINT, last STRING", key="page")

    def translate(self, key, group, out):
        """Called once per page of an increment, with its visits and its kept records."""
        times = [visit.at for visit in group.visits]
        count = len(times)
        for page in group.pages:
            count += page.visits
            times.append(page.last)
        # State that is not emitted again is deleted.
        out.pages(page=key.page, visits=count, last=max(times))
''',
    "tests/test_visits.py": '''\
"""Runs the translator in memory, without a service."""

from $name.visits import Visits

from cbp.testing import check_any_order, run_epochs

MONDAY = [{"page": "/", "at": "09:00"}, {"page": "/docs", "at": "09:05"}]
TUESDAY = [{"page": "/", "at": "10:00"}]


def test_visits_are_counted_over_increments():
    """Tuesday changes the page that it names, and no other."""
    result = run_epochs(Visits, [MONDAY, TUESDAY])
    assert [tuple(page) for page in result.view("pages")] == [
        ("/", 2, "10:00"),
        ("/docs", 1, "09:05"),
    ]


def test_any_split_and_order_of_the_input_give_the_same():
    """As `any_order: true` promises; this fails if a call forgets to emit its state again."""
    check_any_order(Visits, [MONDAY, TUESDAY])
''',
    "dataflow.yaml": """\
name: $name
sources:
  visits: {schema: "page STRING, at STRING", format: jsonl}
stages:
  # any_order: a page's record does not depend on the order of its visits (tests/test_visits.py).
  # So a file can be corrected: cbp replace, cbp retract.
  count: {translator: ${name}_visits, inputs: {visits: visits}, any_order: true}
""",
    "records/monday.jsonl": """\
{"page": "/", "at": "2026-11-23T09:00:00Z"}
{"page": "/docs", "at": "2026-11-23T09:05:00Z"}
{"page": "/", "at": "2026-11-23T09:07:00Z"}
""",
    "records/tuesday.jsonl": """\
{"page": "/docs", "at": "2026-11-24T08:30:00Z"}
""",
    "README.md": """\
# $name

A dataflow for CBP: `$name/visits.py` counts the visits of each page, `dataflow.yaml` wires it to
its source. In this folder:

    python -m pytest                              # in memory, in a second
    cbp dev dataflow.yaml                         # the service; a saved change applies at once

In another terminal, same folder:

    cbp drop $name visits records/*.jsonl --wait
    cbp state $name count.pages
    cbp replace $name visits tuesday.jsonl FILE --reason "sent again"     # a corrected Tuesday

Change `$name/visits.py` and save it: `cbp dev` registers the new version, counts the input again
with it, and says so. Without `cbp dev`: `cbp serve --engine local`, `cbp register dataflow.yaml`,
and that again after a change, with `--rebuild count` (count again) or `--keep count` (continue).

Your own files: `cbp infer FILE` prints what to write below `sources` (`cbp help source-formats`).
Another class: a module beside `visits.py`, and a line for it in `pyproject.toml`.

For production install the package into the service's environment, and allow it:

    python -m pip install .
    CBP_ALLOWED_PACKAGES=$distribution cbp serve
""",
    ".gitignore": """\
cbp-data/
__pycache__/
""",
}


def check_project_name(name: str) -> None:
    """Raise an error if no project can have this name.

    Raises:
        DefinitionError: Rule `project_name_invalid`.
    """
    if not is_name(name) or len(name) > NAME_MAX:
        why = (
            f"consists only of a-z, 0-9 and '_', begins with a letter, and has at most {NAME_MAX} "
            "characters"
        )
        advice = _advice(name)
    elif keyword.iskeyword(name) or name in _TAKEN:
        why, advice = "is not a Python keyword or one of the project's own folders", f"{name}_flow"
    elif is_installed(name):
        why, advice = "is not the name of an installed package", f"{name}_flow"
    else:
        return
    shown = name if len(name) <= NAME_MAX else f"{name[:NAME_MAX]}..."
    message = f"expected a name that {why}; got {shown!r}"
    if advice:
        message += f"; for example {advice}"
    raise DefinitionError(Mistake("project_name_invalid", "NAME", message))


def starter_files(name: str) -> Mapping[str, str]:
    """Return the text of each file of a project, by its path in the project's folder."""
    values = {"name": name, "distribution": name.replace("_", "-")}
    return {
        Template(path).substitute(values): Template(text).substitute(values)
        for path, text in _FILES.items()
    }


def _advice(name: str) -> str:
    letters = "".join(one if one.isascii() and one.isalnum() else "_" for one in name.lower())
    advice = letters.strip("_")[:NAME_MAX]
    return advice if is_name(advice) else ""
