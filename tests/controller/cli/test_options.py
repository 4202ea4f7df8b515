"""How a command with groups of options becomes one of Typer."""

from __future__ import annotations

import inspect

import typer
from typer.testing import CliRunner

from controller.cli.options import Listing, Paging, SnapshotMoment, as_command
from controller.cli.session import Session


def _command(
    session: Session,
    name: str,
    listing: Listing = Listing(limit=50),
    moment: SnapshotMoment = SnapshotMoment(),
) -> None:
    """Print what was given."""
    session.report({"name": name, **listing, **moment}, f"{name} {listing.limit}", "")


def test_a_group_is_the_options_that_are_its_fields() -> None:
    """They stand in its place, with the defaults of its instance; `--json` is the last one."""
    made = inspect.signature(as_command(_command)).parameters
    assert list(made) == [
        "context", "name", "since", "until", "limit", "cursor", "epoch", "stage", "at", "json_",
    ]  # fmt: skip
    assert made["limit"].default == 50 != Paging().limit


def test_a_command_gets_the_groups_and_the_session() -> None:
    """With `--json` its report is the answer, and a time has the form that the API takes."""
    app = typer.Typer()
    app.command()(as_command(_command))
    session = Session()
    shown = CliRunner().invoke(app, ["a", "--limit", "3"], obj=session)
    assert (shown.output, session.as_json) == ("a 3\n", False)
    as_json = CliRunner().invoke(app, ["a", "--at", "2026-11-21", "--json"], obj=session)
    assert '"at": "2026-11-21T00:00:00+00:00"' in as_json.output
    assert ('"limit": 50' in as_json.output, session.as_json) == (True, True)
