"""The command `cbp demo`: the main job on real input; see `controller.demo`."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from controller.cli.session import AsJson, session

__all__ = ["demo_command"]

Keep = Annotated[bool, typer.Option("--keep", help="Leave the service running.")]


def demo_command(context: typer.Context, keep: Keep = False, json_: AsJson = False) -> None:
    """Run the crawl queue over the installed Python packages, start to end."""
    # Imported here: it starts Spark, which no other command wants to wait for.
    demo = importlib.import_module("controller.demo")
    demo.run_demo(settings=session(context).settings, keep=keep, as_json=json_)
