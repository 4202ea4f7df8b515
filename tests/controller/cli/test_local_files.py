"""Files of this machine that a command cannot read or write, and calls that no calendar holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cbp.client.errors import ServiceUnreachableError
from cbp.client.rest import RestClient
from controller.cli.session import Session
from controller.settings import Settings
from controller.store.base import DataflowRecord, open_store
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp


def test_a_fetch_that_breaks_off_leaves_no_file(
    cbp: Cbp, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a refused file would be taken for the whole one."""

    @contextmanager
    def broken(_client: RestClient, *_path: str) -> Iterator[Iterator[bytes]]:
        def parts() -> Iterator[bytes]:
            yield b"half"
            raise ServiceUnreachableError(service.settings.url, "it stopped")

        yield parts()

    monkeypatch.setattr(RestClient, "stream_bytes", broken)
    to = tmp_path / "original"
    assert cbp("quarantine", "fetch", "clicks", "urls", "c3", "--to", to).status == 1
    assert not to.exists()


def test_an_error_of_the_file_system_names_its_file(cbp: Cbp) -> None:
    """The operating system refuses this name: one coded error, no traceback."""
    name = "long" * 100
    outcome = cbp("dev", name, "--json")
    assert (outcome.status, outcome.json["error_code"]) == (1, "operating_failure")
    assert outcome.json["details"]["path"] == name


def test_a_preview_of_a_recovery_upgrades_no_database(cbp: Cbp, tmp_path: Path) -> None:
    """An earlier release may still serve it. One that cannot be used is named, not a copy of it."""
    settings = Settings(root=tmp_path, engine="local")
    path = tmp_path / "cbp.db"
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("CREATE TABLE of_an_earlier_release (a)")
    assert cbp("recover", "--json", session=Session(settings)).json == {"items": []}
    with closing(sqlite3.connect(path)) as opened:
        names = opened.execute("SELECT name FROM sqlite_schema").fetchall()
    assert names == [("of_an_earlier_release",)]
    path.unlink()
    with closing(open_store(settings.database_url)) as store:
        store.register(
            DataflowRecord("a", 1, {}, "/a", "running", datetime(2026, 11, 1, tzinfo=UTC)), {}
        )
        shown = cbp("recover", "--json", session=Session(settings)).json["items"]
    assert [(one["dataflow"], one["known"]) for one in shown] == [("a", True)]
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("UPDATE cbp_schema_version SET version_num = 'later'")
        opened.commit()
    outcome = cbp("recover", "--json", session=Session(settings))
    assert outcome.json["error_code"] == "database_newer"
    assert str(path) in outcome.json["message"]
    path.write_bytes(b"no database" * 500)
    outcome = cbp("recover", "--json", session=Session(settings))
    assert (outcome.status, outcome.json["error_code"]) == (1, "database_damaged")


def test_an_age_before_all_calendars_is_a_wrong_call(cbp: Cbp) -> None:
    """A million days are more than dates have."""
    outcome = cbp("runs", "--since", "999999d")
    assert (outcome.status, "999999d" in outcome.err) == (2, True)
