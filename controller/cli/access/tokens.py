"""The commands `cbp tokens list`, `new`, `rotate`, `revoke` and `sessions`, and `cbp link`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controller.cli.options import Paging
from controller.cli.session import Session
from controller.terminal import Cell, clock, one_line, print_page, print_text

Name = Annotated[str, typer.Argument(help="Name of the token.")]


def list_command(session: Session, paging: Paging = Paging(limit=100)) -> None:
    """List named tokens, newest first; the token file is not listed."""
    answer = session.fetch("tokens", **paging)
    columns: dict[str, Cell] = {
        "token": "name",
        "scope": "scope",
        "state": "state",
        "dataflows": (lambda names: ", ".join(names or ("all",)), "dataflows"),
        "begins": "prefix",
        "expires": (lambda at: clock(at) if at else "never", "expires_at"),
        "last used": (clock, "last_used_at"),
        "made by": "created_by",
    }
    print_page(answer, columns, empty="no named tokens; make one with: cbp tokens new NAME")


def new_command(
    session: Session,
    name: Name,
    scope: Annotated[str, typer.Option(help="Scope: viewer, operator or admin.")] = "viewer",
    days: Annotated[int, typer.Option(min=1, max=3660, help="Days until it expires.")] = 90,
    never: Annotated[
        bool, typer.Option("--never-expires", help="Make it valid until it is revoked.")
    ] = False,
    dataflow: Annotated[
        list[str] | None,
        typer.Option(help="Limit the token to this dataflow; can be given several times."),
    ] = None,
) -> None:
    """Create a token, and print its secret, which is shown only once."""
    expires = None if never else days
    made = session.client.make_token(name, scope, expires_days=expires, dataflows=dataflow or ())
    _print_new(session, made)


def rotate_command(
    session: Session,
    name: Name,
    overlap_hours: Annotated[
        float, typer.Option(min=0, max=168, help="Hours for which the old secret still works.")
    ] = 0.0,
) -> None:
    """Give a token a new secret and its full lifetime; sessions made from it end."""
    _print_new(session, session.client.rotate_token(name, overlap_hours=overlap_hours))


def revoke_command(session: Session, name: Name) -> None:
    """End a token, and the sessions made from it, at once."""
    answer = session.client.revoke_token(name)
    session.report(answer, f"{name} was revoked at {clock(answer['revoked_at'])}", "")


def sessions_command(
    session: Session,
    end: Annotated[str | None, typer.Option(help="Id of a session to end at once.")] = None,
    paging: Paging = Paging(limit=100),
) -> None:
    """List the browsers that are signed in, newest first, or end one session."""
    if end is not None:
        session.client.end_session(end)
        session.report({"ended": end}, f"session {end} has ended", "")
        return
    columns: dict[str, Cell] = {
        "session": "id",
        "token": "actor",
        "scope": "scope",
        "last seen": (clock, "last_seen_at"),
        "ends": (clock, "expires_at"),
        "address": "address",
        "browser": (lambda agent: one_line(agent)[:40], "agent"),
    }
    print_page(session.fetch("sessions", **paging), columns, empty="no one is signed in")


def _print_new(session: Session, made: dict[str, Any]) -> None:
    session.exit_if_json(made)
    token = made["token"]
    end = clock(token["expires_at"]) if token["expires_at"] else "it is revoked"
    print_text(made["secret"])
    print_text(
        f"{token['name']}: {token['scope']} until {end}; the secret is shown only now, so store it",
        "dim",
    )


Scope = Annotated[
    str | None,
    typer.Option(
        help="Scope of the session: viewer, operator or admin. The default, which is also the "
        "maximum, is the scope of the token."
    ),
]


def link_command(session: Session, scope: Scope = None) -> None:
    """Print a link to the page that signs a browser in; it works once, for ten minutes."""
    made = session.client.make_sign_in(scope)
    link = f"{session.settings.url}{made['path']}"
    session.exit_if_json({"link": link, "scope": made["scope"], "expires_at": made["expires_at"]})
    print_text(link)
    until = clock(made["expires_at"])
    print_text(f"works once, until {until}, and signs in as {made['scope']}", "dim")
