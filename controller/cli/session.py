"""What commands share: the session (settings, connection), and the options of several commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated, Any

import httpx
import typer

from cbp.client import Client
from cbp.client.answers import Answer
from cbp.client.rest import ANSWER_SECONDS
from cbp.clock import MACHINE, Clock
from cbp.errors import CbpError
from cbp.model.instants import zoned
from controller.client.service_client import ServiceClient
from controller.settings import Settings, load_settings
from controller.terminal import print_json, print_text

COMPLETION_SECONDS = 2.0
"""How long the completion of a name waits for the service."""

_DAY = "%Y-%m-%d"
TIME_FORMATS = [
    _DAY,
    *(f"{_DAY}{sep}%H:%M:%S{part}" for sep in "T " for part in ("", ".%f", "%z", ".%f%z")),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Cursor = Annotated[
    str | None, typer.Option(help="Continue after the page that printed this cursor.")
]
Limit = Annotated[int, typer.Option(min=1, max=500, help="Maximum number of rows.")]

Epoch = Annotated[
    int | None, typer.Option(min=0, help="Read the first snapshot that has this epoch.")
]
Stage = Annotated[
    str | None, typer.Option(help="Stage to which --epoch refers; by default every stage.")
]
At = Annotated[
    datetime | None,
    typer.Option(
        formats=TIME_FORMATS,
        metavar="TIME",
        help="Read the newest snapshot at this time, such as 2026-11-21 or "
        "2026-11-21T10:00:00+02:00; UTC without an offset.",
    ),
]

StageName = Annotated[str, typer.Argument(help="Name of the stage.")]
SourceName = Annotated[str, typer.Argument(help="Name of the source.")]
Reason = Annotated[str, typer.Option(help="Reason; stored permanently.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Null = Annotated[list[str] | None, typer.Option("--null", help="A key column whose value is null.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", "--plan", help="Change nothing; show what would happen.")
]

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_AGE = re.compile(r"([0-9]{1,6})([smhd])")
_WHEN = (
    "a time, such as 2026-11-21T10:00:00+02:00 (UTC without an offset), or an age: 90s 15m 6h 2d"
)


def _moment(value: str) -> str:
    """Return a time, or an age before now, as the API takes it."""
    if (given := _AGE.fullmatch(value)) is not None:
        count, unit = given.groups()
        return (MACHINE.now() - timedelta(**{_UNITS[unit]: int(count)})).isoformat()
    for form in TIME_FORMATS:
        try:
            return zoned(datetime.strptime(value, form)).isoformat()  # noqa: DTZ007 - `zoned`
        except ValueError:
            continue
    raise typer.BadParameter(f"expected {_WHEN}; got {value!r}")  # noqa: EM102


Since = Annotated[
    str | None,
    typer.Option(
        parser=_moment, metavar="TIME", help=f"Only entries that began or arrived since {_WHEN}."
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        parser=_moment, metavar="TIME", help=f"Only entries that began or arrived before {_WHEN}."
    ),
]


@dataclass(frozen=True, slots=True)
class Waits:
    """How a command waits for the service.

    Attributes:
        poll_seconds: Pause between two polls.
        patience_seconds: How long a file waits until another file of its name is taken in.
    """

    poll_seconds: float = 0.1
    patience_seconds: float = 60.0


@dataclass
class Session:
    """One call of `cbp`; tests pass settings, a transport, short waits and a clock.

    Attributes:
        given: Replaces the settings of the environment.
        transport: Replaces the network.
        waits: How commands wait for the service.
    """

    given: Settings | None = None
    transport: httpx.BaseTransport | None = field(default=None, repr=False)
    waits: Waits = Waits()
    clock: Clock = MACHINE

    @cached_property
    def settings(self) -> Settings:
        """The settings, read when a command first needs them."""
        return self.given if self.given is not None else load_settings()

    def connect(self, *, answer_seconds: float = ANSWER_SECONDS) -> ServiceClient:
        """Return a client of the service that the settings name."""
        return ServiceClient(
            self.settings, self.transport, answer_seconds=answer_seconds, clock=self.clock
        )

    def client(self) -> Client:
        """Return the typed client, with which commands change something."""
        return Client.over(self.connect())


def session(context: typer.Context) -> Session:
    """Return the session of this call."""
    if not isinstance(context.obj, Session):
        context.obj = Session()
    return context.obj


def require_reason(reason: str, dry_run: bool) -> None:
    """Refuse a change without a reason."""
    if not reason and not dry_run:
        raise typer.BadParameter("is missing; say why", param_hint="--reason")


def stage_and_state(name: str) -> tuple[str, str]:
    """Return the two parts of `stage.state`; raises if a text has another form."""
    stage, _, state = name.partition(".")
    if not (stage and state):
        message = f"expected STAGE.STATE, such as count.counts; got {name!r}"
        raise typer.BadParameter(message)
    return stage, state


def fetch(context: typer.Context, as_json: bool, *path: str, **query: Any) -> Any:
    """Return what the service answers to a GET; with `--json` print it, and end the command.

    Args:
        path: Parts of the path after `/api/v1`.
        query: Parameters; those with the value `None` are left out.
    """
    with session(context).connect() as service:
        answer = service.get(*path, **query)
    if as_json:
        print_json(answer)
        raise typer.Exit
    return answer


def done(
    context: typer.Context,
    as_json: bool,
    text: str,
    act: Callable[[Client], Answer | Mapping[str, Any]],
) -> None:
    """Call the client, and print the text, or with `--json` the answer."""
    with session(context).client() as client:
        said = act(client)
    if as_json:
        print_json(said.answer if isinstance(said, Answer) else said)
    else:
        print_text(text, "green")


def complete_dataflows(context: typer.Context, incomplete: str) -> list[str]:
    """Return the dataflows whose names begin with this; none if the service answers too slowly."""
    try:
        with session(context).connect(answer_seconds=COMPLETION_SECONDS) as service:
            items = service.get("dataflows")["items"]
    except CbpError:
        return []
    return [item["name"] for item in items if item["name"].startswith(incomplete)]


DataflowName = Annotated[
    str, typer.Argument(help="Name of the dataflow.", autocompletion=complete_dataflows)
]


def moment(
    epoch: int | None, stage: str | None, at: datetime | None, *, prefix: str = ""
) -> dict[str, int | str | None]:
    """Return the query parameters of these options; `None` for options that are not given."""
    given = {"epoch": epoch, "stage": stage, "at": None if at is None else zoned(at).isoformat()}
    return {f"{prefix}{name}": value for name, value in given.items()}
