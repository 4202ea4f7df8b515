"""The command line as a whole: its commands, and the output of errors.

    cbp serve                           in one terminal
    cbp register clicks.yaml            in another one
    cbp drop clicks urls monday.jsonl
    cbp status

An error of the product ends a command with status 1 and one panel on stderr, or,
with `--json`, with its error document on stdout. A wrong call ends with status 2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from cbp.errors import CbpError
from controller.cli import bench, demo, serve, soak
from controller.cli.dataflows import (
    backfill,
    control,
    explain,
    register,
    rollback,
    runs,
    status,
    verify,
)
from controller.cli.maintenance import damage_help, doctor, gc, recover, release, repair, scrub
from controller.cli.records import drop, edit, flows, snapshot, sources, state
from controller.cli.session import Session
from controller.terminal import print_error

__all__ = ["app", "main"]

app = typer.Typer(
    name="cbp",
    help="Continuous bulk processing: derived tables, kept up to date while data keeps arriving.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_COMMANDS: dict[str, Callable[..., Any]] = {
    "serve": serve.serve_command,
    "demo": demo.demo_command,
    "bench": bench.bench_command,
    "bench-tables": bench.bench_tables_command,
    "doctor": doctor.doctor_command,
    "register": register.register_command,
    "validate": register.validate_command,
    "drop": drop.drop_command,
    "status": status.status_command,
    "waiting": status.waiting_command,
    "runs": runs.runs_command,
    "cancel": runs.cancel_command,
    "increments": flows.increments_command,
    "claims": sources.claims_command,
    "sources": sources.sources_command,
    "records": flows.records_command,
    "state": state.state_command,
    "snapshot": snapshot.snapshot_command,
    "explain": explain.explain_command,
    "verify": verify.verify_command,
    "pause": control.pause_command,
    "resume": control.resume_command,
    "retry": control.retry_command,
    "close": control.close_command,
    "delete": control.delete_command,
    "recover": recover.recover_command,
    "release": release.release_command,
    "repair": repair.repair_command,
    "scrub": scrub.scrub_command,
    "help": damage_help.help_command,
    "rollback": rollback.rollback_command,
    "gc": gc.gc_command,
    "soak": soak.soak_command,
    "edit": edit.edit_command,
    "backfill": backfill.backfill_command,
}

for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)


def main(arguments: Sequence[str] | None = None, *, session: Session | None = None) -> None:
    """Run one command, and end the process with its status.

    Args:
        arguments: Replace those of the process.
        session: Replaces the settings of the environment, and the network.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(given, obj=session or Session(), prog_name="cbp")
    except CbpError as error:
        print_error(error, as_json="--json" in given)
        sys.exit(1)
