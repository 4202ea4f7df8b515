"""The commands `cbp tokens list`, `new`, `rotate`, `revoke` and `sessions`, and `cbp link`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controller.cli.session import AsJson, Cursor, Limit, fetch, session
from controller.terminal import Cell, clock, one_line, print_json, print_page, print_text

tokens_app = typer.Typer(
    help="Named tokens: who may use the service, and for how long.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(help="Name of the token.")]


@tokens_app.command("list")
def list_command(
    context: typer.Context, limit: Limit = 100, cursor: Cursor = None, json_: AsJson = False
) -> None:
    """List named tokens, newest first; the token file is not listed."""
    answer = fetch(context, json_, "tokens", limit=limit, cursor=cursor)
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


@tokens_app.command("new")
def new_command(
    context: typer.Context,
    name: Name,
    scope: Annotated[str, typer.Option(help="viewer, operator or admin.")] = "viewer",
    days: Annotated[int, typer.Option(min=1, max=3660, help="Days until it expires.")] = 90,
    never: Annotated[
        bool, typer.Option("--never-expires", help="Make it valid until it is revoked.")
    ] = False,
    dataflow: Annotated[
        list[str] | None,
        typer.Option(help="Limit the token to this dataflow; can be given several times."),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Create a token, and print its secret, which is shown only once."""
    expires_days = None if never else days
    with session(context).client() as client:
        made = client.make_token(name, scope, expires_days=expires_days, dataflows=dataflow or ())
    _print_new(made, as_json=json_)


@tokens_app.command("rotate")
def rotate_command(
    context: typer.Context,
    name: Name,
    overlap_hours: Annotated[
        float, typer.Option(min=0, max=168, help="Hours for which the old secret still works.")
    ] = 0.0,
    json_: AsJson = False,
) -> None:
    """Give a token a new secret and its full lifetime; sessions made from it end."""
    with session(context).client() as client:
        made = client.rotate_token(name, overlap_hours=overlap_hours)
    _print_new(made, as_json=json_)


@tokens_app.command("revoke")
def revoke_command(context: typer.Context, name: Name, json_: AsJson = False) -> None:
    """End a token, and the sessions made from it, at once."""
    with session(context).client() as client:
        answer = client.revoke_token(name)
    if json_:
        print_json(answer)
    else:
        print_text(f"{name} was revoked at {clock(answer['revoked_at'])}")


@tokens_app.command("sessions")
def sessions_command(
    context: typer.Context,
    end: Annotated[str | None, typer.Option(help="Id of a session to end at once.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    json_: AsJson = False,
) -> None:
    """List the browsers that are signed in, newest first, or end one session."""
    with session(context).client() as client:
        if end is not None:
            client.end_session(end)
            print_json({"ended": end}) if json_ else print_text(f"session {end} has ended")
            return
        answer = client.rest.get("sessions", limit=limit, cursor=cursor)
    if json_:
        print_json(answer)
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
    print_page(answer, columns, empty="no one is signed in")


def _print_new(made: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(made)
        return
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


def link_command(context: typer.Context, scope: Scope = None, json_: AsJson = False) -> None:
    """Print a link to the page that signs a browser in; it works once, for ten minutes."""
    chosen = session(context)
    with chosen.client() as client:
        made = client.make_sign_in(scope)
    link = f"{chosen.settings.url}{made['path']}"
    if json_:
        print_json({"link": link, "scope": made["scope"], "expires_at": made["expires_at"]})
        return
    print_text(link)
    until = clock(made["expires_at"])
    print_text(f"works once, until {until}, and signs in as {made['scope']}", "dim")
