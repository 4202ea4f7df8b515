"""Which tests the quick run of a change plays."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.gate.changed import OTHERS, changed_files, choose, read_importers

IMPORTERS = {
    "cbp/a.py": ["cbp/b.py", "tests/cbp/test_a.py", "tests/cbp/test_other.py"],
    "cbp/b.py": ["tests/cbp/test_b.py"],
    "tests/world.py": ["tests/cbp/test_b.py"],
}


def test_the_nearest_tests_come_first() -> None:
    """The test that mirrors a module, then others that import it, then those of its importers."""
    assert choose(["cbp/a.py"], IMPORTERS, {}).files == (
        "tests/cbp/test_a.py",
        "tests/cbp/test_other.py",
        "tests/cbp/test_b.py",
    )


def test_what_does_not_fit_the_time_is_left_out_and_named() -> None:
    """A change that all tests concern still takes two minutes; nothing is left out in silence."""
    seconds = {"tests/cbp/test_a.py": 3.0, "tests/cbp/test_other.py": 9.0}
    choice = choose(["cbp/a.py"], IMPORTERS, seconds, seconds_max=6.0)
    assert choice.files == ("tests/cbp/test_a.py", "tests/cbp/test_b.py")
    assert choice.left_out == ("tests/cbp/test_other.py",)


def test_a_changed_test_always_runs() -> None:
    """Whatever it takes: it is what the author works on."""
    choice = choose(["tests/cbp/test_b.py"], IMPORTERS, {"tests/cbp/test_b.py": 999.0})
    assert choice.files == ("tests/cbp/test_b.py",)


def test_a_changed_helper_of_tests_runs_its_tests() -> None:
    """What tests share is imported, too."""
    assert choose(["tests/world.py"], IMPORTERS, {}).files == ("tests/cbp/test_b.py",)


@pytest.mark.parametrize("path", ["README.md", "controller/ui/src/main.tsx", "deploy/check.sh"])
def test_what_nobody_imports_has_tests_too(path: str) -> None:
    """A document, the page and the scripts have tests that read them."""
    assert choose([path], {}, {}).files


def test_the_tests_of_other_files_exist() -> None:
    """A renamed test would be looked for in vain."""
    root = Path(__file__).resolve().parents[2]
    missing = [test for tests in OTHERS.values() for test in tests if not (root / test).exists()]
    assert missing == []


def test_imports_are_read_from_the_sources(tmp_path: Path) -> None:
    """Absolute and relative imports, of modules and of names in packages."""
    for path, text in {
        "cbp/__init__.py": "",
        "cbp/a.py": "",
        "cbp/b.py": "from . import a\n",
        "tests/test_a.py": "def test():\n    from cbp.a import anything\n",
        "tests/test_b.py": "from cbp import b\nimport cbp.a\n",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    importers = read_importers(tmp_path)
    assert importers["cbp/a.py"] == {"cbp/b.py", "tests/test_a.py", "tests/test_b.py"}
    assert importers["cbp/b.py"] == {"tests/test_b.py"}


def test_a_change_is_what_was_committed_since_and_what_was_not(tmp_path: Path) -> None:
    """Commits of this branch, edits and new files; nothing of what main got meanwhile."""

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

    def commit(name: str) -> None:
        (tmp_path / name).write_text(name, encoding="utf-8")
        git("add", name)
        git("commit", "-qm", name)

    git("init", "-qb", "main")
    commit("old.py")
    git("checkout", "-qb", "work")
    commit("committed.py")
    git("checkout", "-q", "main")
    commit("of_main.py")
    git("checkout", "-q", "work")
    (tmp_path / "old.py").write_text("edited", encoding="utf-8")
    (tmp_path / "new.py").write_text("new", encoding="utf-8")
    assert changed_files(tmp_path) == ["committed.py", "new.py", "old.py"]
