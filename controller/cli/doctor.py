"""The command `cbp doctor`: what this machine lacks, and how to mend it.

Each check answers `ok`, `warn` (it works, with a drawback) or `fail`, and says what
to do. A check changes nothing that lasts; a probe file is removed again.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Literal

import typer
from rich.console import Console

from controller.cli.errors import ChecksFailedError
from controller.cli.output import print_json, print_table
from controller.cli.probes import (
    check_clock,
    check_database,
    check_folder,
    check_java,
    check_port_free,
    delta_jars,
)
from controller.cli.session import AsJson, Session, session
from controller.settings import Settings

__all__ = ["Check", "doctor_command", "examine"]

PYTHON_MIN = (3, 11)
FREE_WARN_BYTES, FREE_FAIL_BYTES = 10 * 10**9, 10**9

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found.

    Attributes:
        remedy: What to do; empty when all is well.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""


def doctor_command(context: typer.Context, json_: AsJson = False) -> None:
    """Check Python, Java, the Delta jars, folders, port, clock, disk and database."""
    given = session(context)
    with Console(stderr=True).status("looking at this machine"):
        checks = list(examine(given))
    if json_:
        print_json({"checks": [asdict(check) for check in checks]})
    else:
        rows = [(check.status, check.name, check.found, check.remedy) for check in checks]
        print_table(("", "check", "found", "what to do"), rows, empty="nothing to check")
    failed = [check.name for check in checks if check.status == "fail"]
    if failed and json_:
        raise typer.Exit(1)  # the document has been printed
    if failed:
        raise ChecksFailedError(failed)


def examine(given: Session) -> Iterable[Check]:
    """Yield every check in turn."""
    settings = given.settings
    yield _python()
    if settings.engine == "spark":
        yield _tried(
            "Java", check_java, "install a Java runtime of version 17 or later (a JDK too)"
        )
        yield _jars(settings)
    for name, folder in _folders(settings):
        yield _tried(
            name,
            lambda folder=folder: check_folder(folder),  # type: ignore[misc]
            "choose a folder of your own on a local disk: CBP_ROOT, CBP_TABLES, CBP_DROP_ROOT",
        )
    yield _disk(settings)
    yield _tried(
        "port",
        lambda: check_port_free(settings, given.transport),
        "stop what uses it, or choose another one with CBP_PORT",
    )
    yield _tried(
        "clock",
        lambda: check_clock(settings.root),
        "set the clock, and let a time service (chrony, systemd-timesyncd) keep it",
    )
    yield _tried(
        "database",
        lambda: check_database(settings.database_url),
        "look at CBP_DATABASE_URL, and whether the server runs and lets you in",
    )


def _tried(name: str, check: Callable[[], str], remedy: str) -> Check:
    """Run one check; what it raises is what is wrong."""
    try:
        return Check(name, "ok", check())
    except OSError as error:
        return Check(name, "fail", error.strerror or str(error), remedy)
    except (LookupError, RuntimeError) as error:
        return Check(name, "fail", str(error.args[0] if error.args else error), remedy)


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] >= PYTHON_MIN:
        return Check("Python", "ok", found)
    return Check("Python", "fail", found, "install Python 3.11 or later")


def _jars(settings: Settings) -> Check:
    found = delta_jars(settings.spark_conf)
    if found is not None:
        return Check("Delta jars", "ok", found)
    remedy = "they are downloaded once: bash deploy/entrypoint.sh prepare (needs the network)"
    return Check("Delta jars", "warn", "none on this machine yet", remedy)


def _folders(settings: Settings) -> list[tuple[str, str]]:
    folders = [("root folder", str(settings.root)), ("drop folder", str(settings.drop_root))]
    if "://" not in settings.tables:
        folders.append(("tables folder", settings.tables))
    return [*folders, ("cache folder", str(settings.cache))]


def _disk(settings: Settings) -> Check:
    place = settings.root
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    found = f"{free / 10**9:.1f} GB free at {place}"
    if free < FREE_FAIL_BYTES:
        return Check("disk", "fail", found, "make room; runs stop when the disk is full")
    if free < FREE_WARN_BYTES:
        return Check("disk", "warn", found, "make room before the tables grow")
    return Check("disk", "ok", found)
