"""Checks of this machine for `cbp doctor`: Java, folders, port, clock, database.

A check returns what it found as a sentence, or raises `OSError`, `LookupError` or
`RuntimeError`, whose text says what is wrong.
"""

from __future__ import annotations

import errno
import importlib.metadata
import os
import re
import secrets
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import httpx

from cbp.client.rest import LIVE_PATH
from cbp.clock import MACHINE, Clock
from controller.client.drop_folder import sync_folder
from controller.client.service_client import authorities_of
from controller.server.port import PortTakenError, check_port
from controller.settings import Settings

JAVA_MIN = 17
JAVA_SECONDS = 30.0
CLOCK_OFF_SECONDS = 2.0
# A clock that shows an earlier year than 2026 was never set.
CLOCK_MIN = 1_767_225_600.0
ANSWER_SECONDS = 5.0

_JAVA_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def check_java(seconds: float = JAVA_SECONDS) -> str:
    """Return the version of the Java that Spark would use; it must answer within `seconds`."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = "JAVA_HOME names a folder without bin/java" if home else "there is no java on PATH"
        raise LookupError(where)
    # Java prints its version on stderr.
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, timeout=seconds).stderr
    except subprocess.TimeoutExpired as error:
        message = f"{java} -version did not answer within {seconds:g} s"
        raise RuntimeError(message) from error
    match = _JAVA_VERSION.search(answer.decode(errors="replace"))
    if match is None:
        message = f"{java} -version prints no version"
        raise LookupError(message)
    # Versions before Java 9 begin with 1, such as 1.8.
    major = int(match[2] or 0) if match[1] == "1" else int(match[1])
    if major < JAVA_MIN:
        message = f"{java} is Java {major}, but Spark needs {JAVA_MIN} or later"
        raise RuntimeError(message)
    return f"Java {major} ({java})"


def delta_jars(spark_conf: Mapping[str, str]) -> str | None:
    """Return the path of Delta's jar for the installed version; `None` if not downloaded yet."""
    for jar in delta_archives(spark_conf):
        if jar.name.startswith("io.delta_delta-spark_"):
            return f"delta-spark {importlib.metadata.version('delta-spark')} in {jar.parent}"
    return None


def delta_archives(spark_conf: Mapping[str, str]) -> list[Path]:
    """Return the archives beside Delta's jar for the installed version, in Ivy's folder."""
    try:
        version = importlib.metadata.version("delta-spark")
    except importlib.metadata.PackageNotFoundError:
        return []
    ivy = spark_conf.get("spark.jars.ivy")
    homes = [Path(ivy)] if ivy else sorted(Path.home().glob(".ivy2*"))
    for home in homes:
        if any((home / "jars").glob(f"io.delta_delta-spark_*-{version}.jar")):
            return sorted((home / "jars").glob("*.jar"))
    return []


def check_folder(folder: str) -> str:
    """Try the operations of the service in a folder: write, sync, link, rename, remove."""
    existing = existing_part(Path(folder))
    if os.statvfs(existing).f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, f"the disk of {existing} is mounted read-only")
    if not os.access(existing, os.W_OK | os.X_OK):
        message = f"{existing} is not writable by this user"
        raise PermissionError(0, message)
    probe = existing / f".cbp-doctor-{secrets.token_hex(8)}"
    others = [probe.with_name(f"{probe.name}.{name}") for name in ("link", "renamed")]
    try:
        _write_synced(probe)
        os.link(probe, others[0])
        try:
            os.link(probe, others[0])
        except FileExistsError:
            pass
        else:
            message = f"{existing}: link(2) replaces existing files, so commits are not safe there"
            raise RuntimeError(message)
        probe.rename(others[1])
        sync_folder(existing)
    finally:
        for path in (probe, *others):
            with suppress(OSError):  # on a read-only disk this fails as the probe did
                path.unlink(missing_ok=True)
    return f"{folder} works" if Path(folder).exists() else f"{folder} can be created"


def existing_part(path: Path) -> Path:
    """Return a path if it exists, or else the nearest folder above it that exists."""
    while not path.exists():
        path = path.parent
    return path


def needs_encoding(path: str) -> bool:
    """Return whether a path has characters that a URI must encode, such as a space."""
    return quote(path) != path


def check_port_free(settings: Settings, transport: httpx.BaseTransport | None = None) -> str:
    """Return a text: the port is free, or the service itself answers there."""
    try:
        check_port(settings.host, settings.port)
    except PortTakenError as error:
        if _is_ours(settings, transport):
            return f"the service answers at {settings.url}"
        raise RuntimeError(error.message) from error
    return f"port {settings.port} on {settings.host} is free"


def check_clock(root: Path, clock: Clock = MACHINE) -> str:
    """Compare the clock with the timestamps of files, and with itself."""
    place = existing_part(root)
    now, steady = clock.now().timestamp(), clock.seconds()
    if now < CLOCK_MIN:
        message = f"the clock says {time.strftime('%Y-%m-%d', time.gmtime(now))}: it was never set"
        raise RuntimeError(message)
    probe = place / f".cbp-doctor-{secrets.token_hex(8)}"
    try:
        _write_synced(probe)
        stamp = probe.stat().st_mtime
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    passed = clock.seconds() - steady
    off = max(now - stamp, stamp - now - passed, abs(clock.now().timestamp() - now - passed))
    if off > CLOCK_OFF_SECONDS:
        message = f"the clock and the file system at {place} are {off:.1f} s apart"
        raise RuntimeError(message)
    return f"the clock agrees with the file system at {place}"


def check_database(url: str) -> str:
    """Open the database read-only, and close it again. Raises `DatabaseUrlError`, too."""
    from controller.store.database.connections import parse_url  # loads SQLAlchemy

    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _check_sqlite(Path(parsed.database or ""))
    shown = f"{parsed.host}:{parsed.port or 5432}/{parsed.database}"
    try:
        import psycopg  # of the extra `postgres`
    except ImportError as error:
        message = "PostgreSQL's driver is not installed: pip install 'cbp[postgres]'"
        raise RuntimeError(message) from error
    try:
        plain = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
        psycopg.connect(plain, connect_timeout=int(ANSWER_SECONDS)).close()
    except psycopg.Error as error:
        message = f"{shown}: {type(error).__name__}: {_without(str(error), parsed.password)}"
        raise RuntimeError(message) from error
    return f"PostgreSQL answers at {shown}"


def _check_sqlite(path: Path) -> str:
    if not path.exists():
        return f"{path} will be created at the first start"
    try:
        # `mode=ro` with a URI: a check must create neither a file nor a journal.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            opened.execute("PRAGMA schema_version").fetchone()
    except sqlite3.Error as error:
        message = f"{path}: {error}"
        raise RuntimeError(message) from error
    return f"{path} can be read"


def _is_ours(settings: Settings, transport: httpx.BaseTransport | None) -> bool:
    try:
        verify = authorities_of(settings)
        with httpx.Client(
            transport=transport, timeout=ANSWER_SECONDS, trust_env=False, verify=verify
        ) as http:
            answer = http.get(f"{settings.url}{LIVE_PATH}")
            return answer.is_success and answer.json() == {"status": "ok"}
    except (httpx.HTTPError, ValueError):
        return False


def _without(text: str, password: str | None) -> str:
    return text.replace(password, "********") if password else text


def _write_synced(path: Path) -> None:
    with path.open("xb") as file:
        file.write(b"cbp doctor\n")
        file.flush()
        os.fsync(file.fileno())
