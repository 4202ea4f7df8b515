"""The doctor: a good machine passes, each illness is found and has a remedy."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import socket
import sqlite3
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from cbp.clock import MACHINE
from controller.cli.maintenance import doctor, machine_checks
from controller.cli.maintenance.doctor import Check, examine
from controller.cli.session import Session
from controller.settings import Settings
from tests.controller.api.app_transport import AppTransport
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp
from tests.machine import needs_postgres_driver
from tests.simulated_time import ManualClock


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _checks(settings: Settings, transport: httpx.BaseTransport | None = None) -> dict[str, Check]:
    return {check.name: check for check in examine(Session(settings, transport))}


def _java(folder: Path, told: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    java.chmod(0o755)
    return folder


def test_a_good_machine_passes_and_is_left_as_it_was(cbp: Cbp, tmp_path: Path, port: int) -> None:
    """No check fails, and no probe file stays."""
    settings = Settings(root=tmp_path / "root", port=port, engine="local")
    outcome = cbp("doctor", "--json", session=Session(settings))
    assert {c["name"]: c["status"] for c in outcome.json["checks"] if c["status"] == "fail"} == {}
    assert outcome.status == 0
    assert list(tmp_path.iterdir()) == []


def test_what_is_wrong_ends_with_status_1(cbp: Cbp, tmp_path: Path) -> None:
    """For people with a table and the names of the failed checks; for programs too."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = Settings(root=tmp_path, port=taken.getsockname()[1], engine="local")
        session = Session(given, httpx.MockTransport(lambda _: httpx.Response(404)))
        shown = cbp("doctor", session=session)
        told = cbp("doctor", "--json", session=session)
    assert (shown.status, told.status) == (1, 1)
    assert "CBP_PORT" in shown.out
    assert "port" in shown.err
    assert [c["name"] for c in told.json["checks"] if c["status"] == "fail"] == ["port"]


def test_a_port_on_which_the_service_answers_is_well(service: Service) -> None:
    """A doctor that is called while the service runs does not complain about it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        object.__setattr__(service.settings, "port", taken.getsockname()[1])
        actual = machine_checks.check_port_free(service.settings, AppTransport(service.app))
    assert "the service answers" in actual


@pytest.mark.parametrize(
    ("told", "status"),
    [
        ('openjdk version "17.0.15" 2025-04-15', "ok"),
        ('openjdk version "21" 2023-09-19', "ok"),
        ('openjdk version "16.0.2" 2021-07-20', "fail"),
        ('java version "1.8.0_402"', "fail"),
        ("Unrecognized option", "fail"),
    ],
)
def test_java_must_be_new_enough(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, told: str, status: str
) -> None:
    """17 passes, 16 fails; the old way of counting is understood."""
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "java", told)))
    check = _checks(Settings(root=tmp_path, port=port))["Java"]
    assert check.status == status
    assert bool(check.remedy) == (status == "fail")


def test_a_machine_without_java_is_told_so(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when JAVA_HOME names a folder without it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert _checks(Settings(root=tmp_path, port=port))["Java"].status == "fail"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "JAVA_HOME" in _checks(Settings(root=tmp_path, port=port))["Java"].found


def test_a_java_that_hangs_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other checks do not wait for it longer than its time."""
    java = _java(tmp_path, "never read")
    (java / "bin" / "java").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setenv("JAVA_HOME", str(java))
    with pytest.raises(RuntimeError, match="within"):
        machine_checks.check_java(0.01)


@pytest.mark.parametrize("url", ["nonsense", "postgresql://h:port/x", "oracle://h/x"])
def test_a_database_that_no_url_names_is_one_failure(tmp_path: Path, port: int, url: str) -> None:
    """The other checks still run."""
    checks = _checks(Settings(root=tmp_path, port=port, engine="local", database_url=url))
    failed = [name for name, check in checks.items() if check.status == "fail"]
    assert failed == ["database"]


def test_folders_that_cannot_be_read_are_failures(tmp_path: Path, port: int) -> None:
    """Each is reported: no error ends the other checks."""
    checks = _checks(Settings(root=tmp_path / ("long" * 100), port=port, engine="local"))
    failed = {name for name, check in checks.items() if check.status == "fail"}
    assert {"root folder", "tables folder", "database", "tables"} <= failed
    assert checks["port"].status == "ok"


def test_a_database_that_cannot_be_reached_is_not_called_missing(tmp_path: Path) -> None:
    """Nobody restores over a database that only another user can read."""
    (tmp_path / "tables/clicks/_description").mkdir(parents=True)
    lost = doctor._lost(Settings(root=tmp_path))
    assert (lost.status, "is missing" in lost.found, "recover" in lost.remedy) == (
        "fail",
        True,
        True,
    )
    away = Settings(root=tmp_path, database_url=f"sqlite:///{tmp_path}/{'long' * 100}.db")
    lost = doctor._lost(away)
    assert (lost.status, "cannot read" in lost.found, "recover" in lost.remedy) == (
        "fail",
        True,
        False,
    )


def test_jars_are_looked_for_where_spark_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the home directory, or where `spark.jars.ivy` says."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert machine_checks.delta_jars({}) is None
    version = importlib.metadata.version("delta-spark")
    jars = tmp_path / ".ivy2.5.2" / "jars"
    jars.mkdir(parents=True)
    (jars / f"io.delta_delta-spark_4.2_2.13-{version}.jar").touch()
    assert version in (machine_checks.delta_jars({}) or "")
    assert machine_checks.delta_jars({"spark.jars.ivy": str(tmp_path / "elsewhere")}) is None


def test_a_folder_where_link_replaces_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that could be overwritten is no commit."""
    monkeypatch.setattr(os, "link", lambda _from, _to: None)
    with pytest.raises(RuntimeError, match="link"):
        machine_checks.check_folder(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reported for the folder that it is, with a remedy."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    checks = _checks(Settings(root=tmp_path, port=port, engine="local"))
    assert (checks["root folder"].status, checks["drop folder"].status) == ("fail", "fail")
    assert "not writable" in checks["root folder"].found


@pytest.mark.parametrize(("off", "wrong"), [(0.0, False), (-60.0, True), (60.0, True)])
def test_a_clock_that_disagrees_with_the_files_is_refused(
    tmp_path: Path, off: float, wrong: bool
) -> None:
    """A minute ahead or behind is found; agreement passes."""
    clock = ManualClock(MACHINE.now() + timedelta(seconds=off))
    if wrong:
        with pytest.raises(RuntimeError, match="apart"):
            machine_checks.check_clock(tmp_path, clock)
    else:
        assert "agrees" in machine_checks.check_clock(tmp_path, clock)


def test_a_clock_that_was_never_set_is_refused(tmp_path: Path) -> None:
    """1970 is reported as such."""
    with pytest.raises(RuntimeError, match="never set"):
        machine_checks.check_clock(tmp_path, ManualClock(datetime(1970, 1, 1, tzinfo=UTC)))


def test_a_path_that_polars_cannot_read_is_told(tmp_path: Path, port: int) -> None:
    """A warning with what to do; a plain path has none."""
    good, bad = tmp_path / "plain", tmp_path / "with space"
    assert "readers" not in _checks(Settings(root=good, port=port, engine="local"))
    check = _checks(Settings(root=bad, port=port, engine="local"))["readers"]
    assert check.status == "warn"
    assert "cbp snapshot" in check.remedy


@pytest.mark.parametrize(
    ("free", "status"),
    [
        (doctor.FREE_WARN_BYTES, "ok"),
        (doctor.FREE_WARN_BYTES - 1, "warn"),
        (doctor.FREE_FAIL_BYTES, "warn"),
        (doctor.FREE_FAIL_BYTES - 1, "fail"),
    ],
)
def test_a_disk_that_fills_up_is_told_in_time(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, free: int, status: str
) -> None:
    """First a warning, then a failure, each from its limit on."""

    class Usage:
        def __init__(self) -> None:
            self.free = free

    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage())
    assert _checks(Settings(root=tmp_path, port=port, engine="local"))["disk"].status == status


def test_a_database_that_may_not_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    """It can be read, so only the service would notice, at its start."""
    sqlite3.connect(tmp_path / "cbp.db").close()
    may = os.access

    def of_another(path: Path, mode: int) -> bool:
        return may(path, mode) and not (mode & os.W_OK and str(path).endswith("cbp.db"))

    monkeypatch.setattr(os, "access", of_another)
    check = _checks(Settings(root=tmp_path, port=port, engine="local"))["database"]
    assert check.status == "fail"
    assert f"chmod u+rw {tmp_path / 'cbp.db'}" in check.remedy


@pytest.mark.parametrize(("which", "status"), [("drop_root", "fail"), ("cache", "warn")])
def test_each_disk_of_the_service_is_looked_at(
    which: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    """Drop folder or cache can be on another disk, which can be full; a cache can be made again."""

    class Usage:
        def __init__(self, place: object) -> None:
            self.free = 5 if "proc" in str(place) else 10**12

    monkeypatch.setattr("shutil.disk_usage", Usage)
    place: Any = {which: Path("/proc/self/of-another-disk")}
    given = Settings(root=tmp_path, port=port, engine="local", **place)
    disks = [check for check in examine(Session(given)) if check.name == "disk"]
    assert [check.status for check in disks] == ["ok", status]


def test_a_full_disk_is_what_keeps_checks_from_an_answer(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the clock nor the choice of the folder is wrong then."""

    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(doctor, "check_folder", full)
    monkeypatch.setattr(doctor, "check_clock", full)
    checks = _checks(Settings(root=tmp_path, port=port, engine="local"))
    remedies = {checks[name].remedy for name in ("root folder", "tables folder", "clock")}
    assert remedies == {"free some space on its disk"}


def test_the_database_is_looked_at_and_not_made(tmp_path: Path) -> None:
    """A missing file stays missing, a good one is read, anything else is reported."""
    path = tmp_path / "a b.db"
    url = f"sqlite:///{path}"
    assert "first start" in machine_checks.check_database(url)
    assert not path.exists()
    sqlite3.connect(path).close()
    path.write_bytes(b"")
    assert "can be read" in machine_checks.check_database(url)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(RuntimeError, match="not a database"):
        machine_checks.check_database(url)


def test_a_database_server_that_is_away_is_told_without_its_password(port: int) -> None:
    """With host and port, never with what was sent to it."""
    needs_postgres_driver()
    url = f"postgresql+psycopg://cbp:swordfish@127.0.0.1:{port}/cbp"
    with pytest.raises(RuntimeError) as caught:
        machine_checks.check_database(url)
    assert f"127.0.0.1:{port}" in str(caught.value)
    assert "swordfish" not in str(caught.value)


def test_what_other_users_may_read_is_told_with_the_command_that_closes_it(
    tmp_path: Path, port: int
) -> None:
    """A folder that is open, or a database in one; nothing behind a folder that is closed."""
    root = tmp_path / "my root"
    root.mkdir(mode=0o700)
    (root / "token").touch(0o600)
    (root / "cbp.db").touch()
    (root / "cbp.db").chmod(0o644)
    settings = Settings(root=root, port=port, engine="local")
    assert doctor._rights(settings).status == "ok"
    root.chmod(0o755)
    actual = doctor._rights(settings)
    assert actual.status == "warn"
    assert actual.remedy == f"run: chmod -R o-rwx '{root}' '{root}/cbp.db'"
    assert str(root / "token") not in actual.remedy
    subprocess.run(actual.remedy.removeprefix("run: "), shell=True, check=True)
    assert doctor._rights(settings).status == "ok"
