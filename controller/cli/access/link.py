"""The command `cbp link`: a link that signs a browser in once."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.cli.session import AsJson, session
from controller.terminal import clock, print_json, print_text

Scope = Annotated[
    str | None,
    typer.Option(
        help="What the session may do: viewer, operator or admin; by default, and at most, what "
        "the token may.",
        show_default=False,
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
    print_text(f"signs in once as {made['scope']}, until {clock(made['expires_at'])}", "dim")
