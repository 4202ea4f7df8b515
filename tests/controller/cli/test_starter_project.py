"""What `cbp new` makes: a project that is tested and registered as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cbp.errors import DefinitionError
from cbp.model.author.source_modules import load_sources
from controller.cli.new import check_project_name, starter_files
from controller.registry import Registry, TranslatorFiles
from tests.authored import write

NAME = "starter_shop"


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    write(tmp_path, starter_files(NAME))
    yield tmp_path
    load_sources(str(tmp_path), lambda _: None, [])


def test_its_tests_pass_as_they_are(project: Path) -> None:
    """In its folder, without an installation."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_its_document_names_its_translator(project: Path) -> None:
    """By the entry point of its `pyproject.toml`, which need not be installed."""
    registry = Registry([], files=TranslatorFiles([project]))
    document = yaml.safe_load((project / "dataflow.yaml").read_text())
    assert document["name"] == NAME
    assert registry.compile(document).stages["count"].translator.place.startswith(str(project))


def test_its_readme_has_some_twenty_lines_and_names_files_that_exist(project: Path) -> None:
    """It is the first thing that an author reads."""
    text = (project / "README.md").read_text()
    assert len(text.splitlines()) <= 26
    for path in (f"{NAME}/visits.py", "dataflow.yaml", "records/monday.jsonl"):
        assert (project / path).exists()
        assert path.rpartition("/")[0] in text


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a b",
        "../x",
        "Shop",
        "my-shop",
        "1st",
        "x" * 41,
        "a/b",
        "class",
        "json",
        "polars",
        "tests",
    ],
)
def test_odd_names_are_refused_with_what_would_do(name: str) -> None:
    """A module of the standard library or of a package would be imported in its place."""
    with pytest.raises(DefinitionError) as caught:
        check_project_name(name)
    assert caught.value.mistake.code == "project_name_invalid"
    if name in ("my-shop", "Shop", "json"):
        assert {"my-shop": "my_shop", "Shop": "shop", "json": "json_flow"}[name] in str(
            caught.value
        )


@pytest.mark.parametrize("name", ["shop", "s", "my_shop2", "x" * 40])
def test_plain_names_are_fine(name: str) -> None:
    """As names of dataflows are."""
    check_project_name(name)
