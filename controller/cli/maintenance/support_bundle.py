"""The command `cbp support-bundle`: one file about the state of this service, without secrets.

In it: versions, settings, findings of `cbp doctor`, and the service's answers about dataflows,
runs, waits, quarantine, events, alerts and metrics (none if it does not answer). Not in it: tokens,
passwords, records of any table, contents of dropped files. The messages and details of errors of
author's code can have values of records; they are left out unless asked for.

Guaranteed: every text passes the masks before it is written (tests/controller/cli/maintenance/
test_support_bundle.py plants secrets everywhere).
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cbp.errors import AuthorCodeError, CbpError
from cbp.errors.counts import format_count
from cbp.errors.masks import Masker
from controller.cli.maintenance.doctor import examine
from controller.cli.session import Session

PACKAGES = (
    "alembic", "apscheduler", "cbp", "delta-spark", "deltalake", "fastapi", "numpy", "pandas",
    "polars", "psycopg", "pyarrow", "pydantic", "pyspark", "sqlalchemy", "starlette", "uvicorn",
)  # fmt: skip
ITEMS_MAX = 100
DATAFLOWS_MAX = 200
_LEFT_OUT = "left out; `--with-messages` includes it"

_README = """A support bundle of CBP, made by `cbp support-bundle`.

It describes the state of one service. It has no tokens, no passwords and no records of tables. It
has names of dataflows, stages, columns, folders and dropped files{messages}. Read it before you
pass it on.

errors.json names what could not be collected, and why.
"""


def support_bundle_command(
    session: Session,
    file: Annotated[
        Path | None, typer.Argument(help="The ZIP file to write; must not exist.")
    ] = None,
    with_messages: Annotated[
        bool,
        typer.Option(
            "--with-messages", help="Include the messages of errors that authors' code raised."
        ),
    ] = False,
) -> None:
    """Write one file for a bug report: the state of this service, without secrets or records."""
    now = session.clock.now()
    path = file or Path(f"cbp-support-{now:%Y%m%dT%H%M%SZ}.zip")
    masker = Masker(session.settings.secret_values())
    errors: dict[str, str] = {}
    try:
        target = path.open("xb")
    except OSError as error:
        message = f"{path} cannot be written ({error.strerror}); name another file"
        raise typer.BadParameter(message) from error
    with (
        Console(stderr=True, quiet=session.as_json).status("collecting") as status,
        target,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as bundle,
    ):
        contents: dict[str, Any] = {}
        for name, collect in _parts(session, with_messages=with_messages):
            status.update(f"collecting {name}")
            try:
                contents[name] = collect()
            except (
                Exception
            ) as error:  # one part must not stop the others: this is for broken services
                errors[name] = error.message if isinstance(error, CbpError) else repr(error)
        # All are collected before any is written, since they repeat messages of each other.
        redaction = _Redaction(masker, _quotes(contents), with_messages=with_messages)
        for name, content in contents.items():
            is_text = isinstance(content, str)
            bundle.writestr(name, redaction.text(content) if is_text else redaction.json(content))
        bundle.writestr("errors.json", redaction.json(errors))
    session.exit_if_json({"path": str(path), "files": list(contents), "errors": errors})
    typer.echo(
        f"{path}: {format_count(len(contents), 'file')}, {path.stat().st_size:,} bytes; "
        "no secrets, no records"
    )
    for name, why in errors.items():
        typer.echo(f"  without {name}: {why}", err=True)


def _parts(session: Session, *, with_messages: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of each file, and what collects its content."""
    messages = ", and messages of errors that authors' code raised" if with_messages else ""
    yield "README.txt", lambda: _README.format(messages=messages)
    yield "versions.json", _versions
    yield "settings.json", session.settings.effective
    yield "doctor.json", lambda: [asdict(check) for check in examine(session)]
    dataflows: list[str] = []

    def list_dataflows() -> list[str]:
        pages = session.pages("dataflows", limit=ITEMS_MAX)
        names = (item["name"] for page in pages for item in page["items"])
        dataflows.extend(list(islice(names, DATAFLOWS_MAX)))  # none, if a page cannot be read
        return dataflows

    yield "service/dataflows.json", list_dataflows
    yield "service/health.json", partial(session.rest.get, "health", "ready")
    for name in ("leader", "degraded", "alerts", "recoveries", "translators"):
        yield f"service/{name}.json", partial(session.rest.get, name)
    yield "service/metrics.txt", lambda: session.rest.text("metrics")
    yield "service/events.json", lambda: session.rest.get("events", "recent", limit=ITEMS_MAX)
    yield "service/runs.json", lambda: session.rest.get("runs", limit=ITEMS_MAX)
    yield "service/failed.json", lambda: session.rest.get("runs", status="FAILED", limit=ITEMS_MAX)
    for name in dataflows:
        for part in ("", "waiting", "intentions", "claims", "rollbacks", "corrections"):
            path = ("dataflows", name, part) if part else ("dataflows", name)
            title = f"service/dataflows/{name}/{part or 'dataflow'}.json"
            yield title, partial(session.rest.get, *path)


def _versions() -> dict[str, Any]:
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {"python": sys.version, "platform": platform.platform(), "packages": versions}


class _Redaction:
    """Returns the texts of the bundle without secrets and without what may quote records.

    Args:
        quotes: Messages to leave out wherever they occur, since other texts repeat them.
    """

    def __init__(self, masker: Masker, quotes: Iterable[str], *, with_messages: bool) -> None:
        self._masker, self._with_messages = masker, with_messages
        self._quotes = () if with_messages else sorted(set(quotes), key=len, reverse=True)

    def text(self, text: str) -> str:
        """Return a text as the bundle has it."""
        # Messages first: after masking, a message with a secret would no longer be recognised.
        return self._masker.text(self._without_quotes(text))

    def json(self, value: Any) -> str:
        """Return a JSON value as the bundle has it, as text."""
        shown = value if self._with_messages else self._without_records(value)
        return json.dumps(self._masker.value(shown), indent=1)

    def _without_quotes(self, text: str) -> str:
        for quote in self._quotes:
            text = text.replace(quote, _LEFT_OUT)
        return text

    def _without_records(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._without_quotes(value)
        if isinstance(value, list):
            return [self._without_records(item) for item in value]
        if not isinstance(value, dict):
            return value
        left_out = _WORDS if _may_quote_records(value) else frozenset[str]()
        shown = {}
        for name, item in value.items():
            if name == "reason" and isinstance(item, dict):
                # Why a file was refused: the message quotes its lines.
                item = {key: item[key] for key in _REASON if key in item}
            shown[name] = _LEFT_OUT if name in left_out else self._without_records(item)
        return shown


def _quotes(value: Any) -> Iterator[str]:
    """Yield the messages in a JSON value that may quote records."""
    if isinstance(value, list):
        for item in value:
            yield from _quotes(item)
    elif isinstance(value, dict):
        messages = [value[name] for name in _WORDS & value.keys() if _may_quote_records(value)]
        if isinstance(reason := value.get("reason"), dict):
            messages.append(reason.get("message"))
        yield from (message for message in messages if message and isinstance(message, str))
        for item in value.values():
            yield from _quotes(item)


def _may_quote_records(document: dict[str, Any]) -> bool:
    """Return whether a document is an error of author's code."""
    return document.get("error_code") in _AUTHOR_CODES


def _codes_below(error: type[CbpError]) -> Iterator[str]:
    for below in error.__subclasses__():
        yield below.code
        yield from _codes_below(below)


_AUTHOR_CODES = frozenset([AuthorCodeError.code, *_codes_below(AuthorCodeError)])
_REASON = ("code", "file", "line")
_WORDS = frozenset({"message", "detail", "details", "text"})
