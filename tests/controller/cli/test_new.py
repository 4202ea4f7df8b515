"""The command `cbp new`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.cli.new import starter_files
from controller.cli.session import Session
from controller.server.service_process import free_port
from controller.settings import Settings, load_settings
from tests.controller.cli.conftest import Cbp


def test_a_project_is_made_in_its_folder(
    cbp: Cbp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty folder may exist; what to do next is printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "starter_new").mkdir()
    outcome = cbp("new", "starter_new")
    assert outcome.status == 0
    assert "cbp dev dataflow.yaml" in outcome.out
    made = {
        str(path.relative_to(tmp_path / "starter_new")): path.read_text()
        for path in (tmp_path / "starter_new").rglob("*")
        if path.is_file()
    }
    assert made == dict(starter_files("starter_new"))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("starter_new", "already_exists"),
        ("file", "already_exists"),
        ("../up", "project_name_invalid"),
    ],
)
def test_nothing_that_is_there_is_overwritten(
    cbp: Cbp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str
) -> None:
    """Neither a folder with files nor a file; and nothing is made outside this folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "starter_new").mkdir()
    (tmp_path / "starter_new/own.py").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = sorted(tmp_path.parent.rglob("*"))
    outcome = cbp("new", name, "--json")
    assert outcome.status == 1
    assert outcome.json["error_code" if code == "already_exists" else "details"]
    assert code in outcome.out
    assert sorted(tmp_path.parent.rglob("*")) == before


def test_a_service_in_the_folder_finds_its_translators(
    cbp: Cbp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing else to set; not in another folder, nor where its package is installed."""
    served: list[Settings] = []

    def run_server(settings: Settings, *_: Any) -> bool:
        served.append(settings)
        return True

    monkeypatch.setattr("controller.server.process.run_server", run_server)
    monkeypatch.setenv("CBP_ROOT", str(tmp_path / "root"))
    monkeypatch.chdir(tmp_path)
    assert cbp("new", "starter_new").status == 0
    project, port = tmp_path / "starter_new", str(free_port())
    for folder, allowed in ((project, ""), (tmp_path, ""), (project, "cbp,starter-new")):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("CBP_ALLOWED_PACKAGES", allowed or "cbp")
        given = Session(load_settings())
        assert cbp("serve", "--port", port, session=given).status == 0
    assert [one.translators for one in served] == [(project,), (), ()]
