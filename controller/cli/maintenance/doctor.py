"""The command `cbp doctor`: what this machine lacks, and how to fix it.

Each check answers `ok`, `warn` (it works, with a drawback) or `fail`, and says what
to do. A check changes nothing permanently; a probe file is removed again.
"""

from __future__ import annotations

import errno
import os
import platform
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from rich.console import Console

from cbp.clock import MACHINE
from cbp.errors import CbpError
from cbp.errors.counts import format_count
from controller.cli.errors import ChecksFailedError
from controller.cli.maintenance.machine_checks import (
    check_clock,
    check_database,
    check_folder,
    check_java,
    check_port_free,
    delta_jars,
    existing_part,
    needs_encoding,
)
from controller.cli.maintenance.scrub import folders, look
from controller.cli.session import Session
from controller.client.service_client import FileUnreadableError
from controller.settings import Settings
from controller.terminal import print_table

READ_SECONDS = 30.0
"""How long tables are read; `cbp scrub` reads all of them."""

FREE_WARN_BYTES, FREE_FAIL_BYTES = 10 * 10**9, 10**9

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """The finding of one check; `remedy` says what to do, and is empty if all is well."""

    name: str
    status: Status
    found: str
    remedy: str = ""


def doctor_command(session: Session) -> None:
    """Check Python, Java, the Delta jars, folders, port, clock, disk and database."""
    with Console(stderr=True).status("checking this machine"):
        checks = list(examine(session))
    failed = [check.name for check in checks if check.status == "fail"]
    # With --json, the document says what failed: no error document is printed after it.
    session.exit_if_json({"checks": [asdict(check) for check in checks]}, status=int(bool(failed)))
    rows = [(check.status, check.name, check.found, check.remedy) for check in checks]
    print_table(("", "check", "found", "what to do"), rows, empty="nothing to check")
    if failed:
        raise ChecksFailedError(failed)


def examine(session: Session) -> Iterable[Check]:
    """Yield every check in turn."""
    settings = session.settings
    yield Check("Python", "ok", platform.python_version())
    if settings.engine == "spark":
        yield _tried("Java", check_java, "install Java 17 or later (a runtime or a JDK)")
        yield _jars(settings)
    for name, folder in _folders(settings):
        yield _tried(
            name,
            lambda folder=folder: check_folder(folder),  # type: ignore[misc]
            "choose a folder that this user owns, on a local disk: CBP_ROOT, CBP_TABLES, "
            "CBP_DROP_ROOT",
        )
    yield from _readers(settings)
    yield from _disks(settings)
    yield _tried(
        "port",
        lambda: check_port_free(settings, session.transport),
        "stop the program that uses it, or choose another port with CBP_PORT",
    )
    yield _tried(
        "clock",
        lambda: check_clock(settings.root),
        "set the clock, and run a time service (chrony, systemd-timesyncd)",
    )
    yield _database(settings)
    yield _rights(settings)
    try:
        yield _lost(settings)
        yield from _damages(settings)
    except FileUnreadableError as error:
        yield Check("tables", "fail", error.message, "run this command as the user of the service")
    yield _dropped_copies(settings)


def _rights(settings: Settings) -> Check:
    """Check whether other users of this machine may read data, database or token."""
    root = settings.root
    paths = [root, settings.drop_root, Path(settings.tables), settings.token_file]
    if (database := _sqlite_path(settings)) is not None:
        paths.append(database)
    open_ = [path for path in dict.fromkeys(paths) if _others_may(path)]
    # They cannot reach what is inside a folder that is closed to them.
    behind = [p for p in open_ if root in p.parents and root.exists() and not _others_may(root)]
    if left := [str(path) for path in open_ if path not in behind]:
        text = f"other users of this machine can read {', '.join(left)}"
        return Check("rights", "warn", text, f"run: chmod -R o-rwx {shlex.join(left)}")
    return Check("rights", "ok", "other users of this machine can read none of these files")


def _others_may(path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and bool(status.st_mode & 0o007)


def _sqlite_path(settings: Settings) -> Path | None:
    """Return the path of a SQLite database; `None` for another kind, or if the URL is invalid."""
    from controller.store.database.damage import sqlite_path  # loads SQLAlchemy

    with suppress(CbpError):  # the check of the database reports it
        return sqlite_path(settings.database_url)
    return None


def _database(settings: Settings) -> Check:
    """Check whether the database answers, and whether a SQLite file is undamaged."""
    from controller.store.database.connections import files_of  # loads SQLAlchemy
    from controller.store.database.damage import damage_of

    path = _sqlite_path(settings)
    files = [] if path is None else [one for one in files_of(path) if os.path.exists(one)]
    if closed := [str(one) for one in files if not os.access(one, os.R_OK | os.W_OK)]:
        remedy = f"run: chmod u+rw {shlex.join(closed)}, or act as the user of the service"
        return Check("database", "fail", f"this user may not write {', '.join(closed)}", remedy)
    if path is not None and (why := damage_of(path)):
        remedy = "no record is lost; stop the service, then run: cbp recover --rebuild"
        return Check("database", "fail", f"{path} is damaged: {why}", remedy)
    return _tried(
        "database",
        lambda: check_database(settings.database_url),
        "check CBP_DATABASE_URL, and that the server runs and accepts your login",
    )


def _lost(settings: Settings) -> Check:
    """Check whether there are tables that the database does not know."""
    from controller.store.database.damage import known_dataflows  # loads SQLAlchemy

    there = folders(settings)
    path = _sqlite_path(settings)
    if there and path is not None and not os.access(path, os.R_OK):
        tables = f"there are tables of {', '.join(there)}"
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            text, remedy = f"the database {path} is missing, but {tables}", "cbp recover --rebuild"
            return Check("tables", "fail", text, f"restore them with: {remedy}")
        except OSError:  # its folder is closed, for example
            pass
        text = f"{tables}, but this user cannot read whether the database {path} has them"
        return Check("tables", "fail", text, "run this command as the user of the service")
    unknown = sorted(there.keys() - known_dataflows(path)) if path is not None else []
    if unknown:
        text = f"{path} has no entry for the tables of {', '.join(unknown)}"
        remedy = (
            "if they were not deleted on purpose (cbp delete without --purge), stop the service "
            "and restore them with: cbp recover --rebuild"
        )
        # A dataflow that was deleted without --purge leaves its tables, so this may be intended.
        return Check("tables", "fail" if len(unknown) == len(there) else "warn", text, remedy)
    return Check("tables", "ok", f"tables of {format_count(len(there), 'dataflow')}")


def _damages(settings: Settings, seconds: Callable[[], float] = MACHINE.seconds) -> Iterator[Check]:
    """Read the files on disk for some seconds, and report what is damaged."""
    until = seconds() + READ_SECONDS
    files = damaged = 0
    whole = True

    def going_on() -> bool:
        nonlocal whole
        whole = seconds() < until
        return whole

    for looked in look(settings, (), going_on=going_on):
        files += 1
        if looked.damage is not None:
            damaged += 1
            damage_text = f"{looked.damage.code}: {looked.damage.path}: {looked.damage.why}"
            yield Check("damage", "fail", damage_text, looked.damage.next_step)
    if not whole:
        text = (
            f"{format_count(files, 'file was', 'files were')} read in {READ_SECONDS:.0f} s; "
            "the others were not checked"
        )
        yield Check("files", "warn", text, "read everything with: cbp scrub")
    elif not damaged:
        yield Check("files", "ok", f"no damage in {format_count(files, 'file')}")


def _dropped_copies(settings: Settings) -> Check:
    from cbp.engine.state.copies import dropped_copies

    notes = dropped_copies(settings.cache)
    if not notes:
        return Check("index copies", "ok", "none is damaged")
    count = format_count(len(notes), "copy was", "copies were")
    text = f"{count} damaged and rebuilt, last {notes[-1]['copy']}: {notes[-1]['why']}"
    remedy = "nothing is lost; check the disk of the cache folder, then remove damaged.jsonl there"
    return Check("index copies", "warn", text, remedy)


_ROOM = {
    errno.ENOSPC: "free some space on its disk",
    errno.EDQUOT: "free some space, or raise this user's quota",
    errno.EROFS: "mount its disk as writable",
}
"""Remedies for any check that cannot write, by the error number."""


def _tried(name: str, check: Callable[[], str], remedy: str) -> Check:
    """Run one check; an exception becomes its failure."""
    try:
        return Check(name, "ok", check())
    except OSError as error:
        remedy = _ROOM.get(error.errno or 0, remedy)
        return Check(name, "fail", error.strerror or str(error), remedy)
    except (CbpError, LookupError, RuntimeError) as error:
        return Check(name, "fail", str(error.args[0] if error.args else error), remedy)


def _jars(settings: Settings) -> Check:
    jars = delta_jars(settings.spark_conf)
    if jars is not None:
        return Check("Delta jars", "ok", jars)
    remedy = "download them once, with access to the network: bash deploy/entrypoint.sh prepare"
    return Check("Delta jars", "warn", "none on this machine yet", remedy)


def _folders(settings: Settings) -> list[tuple[str, str]]:
    folders = [("root folder", str(settings.root)), ("drop folder", str(settings.drop_root))]
    if "://" not in settings.tables:
        folders.append(("tables folder", settings.tables))
    return [*folders, ("cache folder", str(settings.cache))]


def _readers(settings: Settings) -> Iterable[Check]:
    """Warn if a reader of the tables is known to find none of their files."""
    if "://" not in settings.tables and needs_encoding(settings.tables):
        text = f"Polars cannot read tables with a _bucket column below {settings.tables!r}"
        remedy = (
            "choose a path without spaces and special characters (CBP_TABLES), or use the code "
            "that `cbp snapshot DATAFLOW --for polars` prints"
        )
        yield Check("readers", "warn", text, remedy)


def _disks(settings: Settings) -> Iterator[Check]:
    """Check the free space on each disk that holds a folder of the service.

    A cache alone on a small disk, or in memory, is no failure: it can be rebuilt.
    """
    seen = set[int]()
    for name, folder in _folders(settings):
        with suppress(OSError):  # the check of the folder says that it cannot be read
            place = existing_part(Path(folder))
            device = place.stat().st_dev
            if device not in seen:
                seen.add(device)
                check = _disk(place)
                small_cache = name == "cache folder" and check.status == "fail"
                yield replace(check, status="warn") if small_cache else check


def _disk(place: Path) -> Check:
    free = shutil.disk_usage(place).free
    text = f"{free / 10**9:.1f} GB free at {place}"
    if free < FREE_FAIL_BYTES:
        return Check("disk", "fail", text, "free some space; runs stop when the disk is full")
    if free < FREE_WARN_BYTES:
        return Check("disk", "warn", text, "free some space before the tables grow")
    return Check("disk", "ok", text)
