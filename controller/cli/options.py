"""The options of several commands, and how a command with them becomes one of Typer.

    def claims_command(session: Session, dataflow: DataflowName, listing: Listing = Listing()): ...

`as_command` replaces a group of options, such as `Listing`, by the options that are its fields, and
adds `--json`, which every command has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from cbp.client.rest import NULL_PARAMETER
from cbp.clock import MACHINE
from cbp.errors import CbpError, DefinitionError
from cbp.model.instants import zoned
from controller.cli.session import Session
from controller.registry.translator_paths import canonical_name, project_name, project_points
from controller.settings import Settings

COMPLETION_SECONDS = 2.0
"""How long the completion of a name waits for the service."""

_DAY = "%Y-%m-%d"
TIME_FORMATS = [
    _DAY,
    *(f"{_DAY}{sep}%H:%M:%S{part}" for sep in "T " for part in ("", ".%f", "%z", ".%f%z")),
]
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_AGE = re.compile(r"([0-9]{1,6})([smhd])")
_WHEN = (
    "a time, such as 2026-11-21T10:00:00+02:00 (UTC without an offset), or an age: 90s 15m 6h 2d"
)


def _instant(value: str) -> str:
    """Return a time, or an age before now, as the API takes it."""
    if (given := _AGE.fullmatch(value)) is not None:
        count, unit = given.groups()
        with suppress(OverflowError):  # before the year 1
            return (MACHINE.now() - timedelta(**{_UNITS[unit]: int(count)})).isoformat()
    for form in TIME_FORMATS:
        try:
            return zoned(datetime.strptime(value, form)).isoformat()  # noqa: DTZ007 - `zoned`
        except ValueError:
            continue
    raise typer.BadParameter(f"expected {_WHEN}; got {value!r}")  # noqa: EM102


def session_of(context: typer.Context) -> Session:
    """Return the session of this call."""
    if not isinstance(context.obj, Session):
        context.obj = Session()
    return context.obj


def complete_dataflows(context: typer.Context, incomplete: str) -> list[str]:
    """Return the dataflows whose names begin with this; none if the service answers too slowly."""
    try:
        with session_of(context).connect(answer_seconds=COMPLETION_SECONDS) as service:
            items = service.get("dataflows")["items"]
    except CbpError:
        return []
    return [item["name"] for item in items if item["name"].startswith(incomplete)]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Cursor = Annotated[
    str | None, typer.Option(help="Continue after the page that printed this cursor.")
]
Limit = Annotated[int, typer.Option(min=1, max=500, help="Maximum number of rows.")]
FileLimit = Annotated[
    int | None,
    typer.Option(min=1, max=500, help="Maximum number of rows; by default 20, or with --csv all."),
]
Since = Annotated[
    str | None,
    typer.Option(
        parser=_instant, metavar="TIME", help=f"Only entries that began or arrived since {_WHEN}."
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        parser=_instant, metavar="TIME", help=f"Only entries that began or arrived before {_WHEN}."
    ),
]
At = Annotated[
    datetime | None,
    typer.Option(
        formats=TIME_FORMATS,
        metavar="TIME",
        help="Read the snapshot that was the newest at this time, such as 2026-11-21 or "
        "2026-11-21T10:00:00+02:00. A time without an offset is in UTC.",
    ),
]
Epoch = Annotated[
    int | None, typer.Option(min=0, help="Read the first snapshot that has this epoch.")
]
OfStage = Annotated[
    str | None, typer.Option(help="Stage to which --epoch refers; by default every stage.")
]

DataflowName = Annotated[
    str, typer.Argument(help="Name of the dataflow.", autocompletion=complete_dataflows)
]
StageName = Annotated[str, typer.Argument(help="Name of the stage.")]
SourceName = Annotated[str, typer.Argument(help="Name of the source.")]
Reason = Annotated[str, typer.Option(help="Reason for the change; stored permanently.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Null = Annotated[list[str] | None, typer.Option("--null", help="A key column whose value is null.")]
Translators = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="PATH",
        help="A Python file, a folder of Python files, or a project folder. Documents can use the "
        "translators in it. Can be repeated.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", "--plan", help="Change nothing; show what would happen.")
]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV with a header instead of a table.")]


@dataclass(frozen=True)
class OptionGroup:
    """Options that several commands have together; `**group` are its query parameters."""

    def keys(self) -> list[str]:
        """Return the names of the options, in their order."""
        return [one.name for one in fields(self)]

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


@dataclass(frozen=True)
class Period(OptionGroup):
    """A range of time."""

    since: Since = None
    until: Until = None


@dataclass(frozen=True)
class Paging(OptionGroup):
    """A page of a list."""

    limit: Limit = 20
    cursor: Cursor = None


@dataclass(frozen=True)
class Listing(Paging, Period):
    """A page of a list, within a range of time."""


@dataclass(frozen=True)
class FilePaging(OptionGroup):
    """A page of a list; without a limit, all of it if it goes into a file."""

    limit: FileLimit = None
    cursor: Cursor = None

    def shown(self) -> FilePaging:
        """Return the page that is printed as a table."""
        return replace(self, limit=self.limit or Paging.limit)


@dataclass(frozen=True)
class SnapshotMoment(OptionGroup):
    """The moment of a snapshot; by default the present one."""

    epoch: Epoch = None
    stage: OfStage = None
    at: At = None

    def __getitem__(self, name: str) -> Any:
        return instant(self.at) if name == "at" else getattr(self, name)


def pairs(values: Mapping[str, Any], prefix: str = "_") -> list[tuple[str, str]]:
    """Return the query parameters of the options that are given.

    In a query whose other parameters are columns, the names of options begin with `_`.
    """
    return [(f"{prefix}{name}", str(value)) for name, value in values.items() if value is not None]


def key_pairs(key: Iterable[str], null: Iterable[str] | None) -> list[tuple[str, str]]:
    """Return the query parameters of a key: its texts `column=value`, and its null columns."""
    return [*map(pair, key), *((NULL_PARAMETER, column) for column in null or ())]


def instant(given: datetime | None) -> str | None:
    """Return a time as the API takes it. A time without an offset is in UTC."""
    return None if given is None else zoned(given).isoformat()


def as_command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command as Typer takes it; its first parameter is the session.

    A group's options have the defaults of the instance that is its parameter's default.
    """
    types = get_type_hints(function, include_extras=True)
    groups: dict[str, OptionGroup] = {}
    options = [_option("context", typer.Context)]
    for parameter in list(signature(function).parameters.values())[1:]:
        name, default = parameter.name, parameter.default
        if isinstance(default, OptionGroup):
            groups[name] = default
            options += _options_of(default)
        else:
            options.append(_option(name, types[name], default))
    options.append(_option("json_", AsJson, False))

    @wraps(function)
    def command(context: typer.Context, json_: bool, **given: Any) -> None:
        session = session_of(context)
        session.as_json = json_
        for name, defaults in groups.items():
            chosen = {option.name: given.pop(option.name) for option in fields(defaults)}
            given[name] = type(defaults)(**chosen)
        with closing(session):
            function(session, **given)

    # Typer reads these two attributes, so it sees the options in place of the groups.
    command.__annotations__ = {option.name: option.annotation for option in options}
    command.__signature__ = Signature(options)  # type: ignore[attr-defined]
    return command


def _options_of(group: OptionGroup) -> list[Parameter]:
    """Return the options of a group, in the order of its fields, with its values as defaults."""
    types = get_type_hints(type(group), include_extras=True)
    names = [option.name for option in fields(group)]
    return [_option(name, types[name], getattr(group, name)) for name in names]


def _option(name: str, kind: Any, default: Any = Parameter.empty) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def project_here(settings: Settings) -> dict[str, Any]:
    """Return the project in the current folder, as a value of `--translators`; empty if none.

    Also empty if its package is installed and allowed, since its names would occur twice.
    """
    here = Path.cwd()
    allowed = {canonical_name(package) for package in (*settings.allowed_packages, "cbp")}
    try:
        is_project = bool(project_points(here)) and project_name(here) not in allowed
    except DefinitionError:  # no TOML; it is read for its translators only if it is named
        is_project = False
    return {"translators": (here,)} if is_project else {}


def require_reason(reason: str, dry_run: bool) -> None:
    """Refuse a change without a reason."""
    if not reason and not dry_run:
        raise typer.BadParameter("a reason is required", param_hint="--reason")  # noqa: EM101


def stage_and_state(name: str) -> tuple[str, str]:
    """Return the two parts of `stage.state`; raises if a text has another form."""
    stage, _, state = name.partition(".")
    if not (stage and state):
        message = f"expected STAGE.STATE, such as count.counts; got {name!r}"
        raise typer.BadParameter(message)
    return stage, state


def pair(text: str) -> tuple[str, str]:
    """Return the column and the value of `column=value`; raises if the text has another form."""
    column, equals, value = text.partition("=")
    if not equals:
        message = f"expected COLUMN=VALUE, got {text!r}"
        raise typer.BadParameter(message)
    return column, value
