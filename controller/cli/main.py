"""The command line as a whole: its commands, and the output of errors.

    cbp serve                           in one terminal
    cbp register clicks.yaml            in another one
    cbp drop clicks urls monday.jsonl
    cbp status

An error of the product, or of a file on this machine, ends a command with status 1 and one panel
on stderr, or, with `--json`, with its error document on stdout. A wrong call ends with status 2.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cbp.errors import CbpError, OperatingError
from controller.cli import demo, dev, guides, new, serve
from controller.cli.access import audit, tokens
from controller.cli.dataflows import (
    add_columns,
    backfill,
    control,
    explain,
    library,
    logs,
    rebuild,
    register,
    rollback,
    runs,
    stage,
    status,
    top,
    verify,
)
from controller.cli.maintenance import (
    alerts,
    doctor,
    gc,
    recover,
    repair,
    sbom,
    scrub,
    settings,
    support_bundle,
)
from controller.cli.options import as_command
from controller.cli.records import (
    drop,
    edit,
    flows,
    infer,
    quarantine,
    set_aside,
    sinks,
    snapshot,
    sources,
    sql,
    state,
)
from controller.cli.session import Session
from controller.terminal import print_error, print_text

_STATUSES = """
\b
Exit status:
  0  done
  1  refused, failed, or a check failed; the error is on stderr (with --json, as JSON)
  2  a usage error
  3  serve: could not start; drop: a file repeats an earlier one; verify: not finished;
     status: not up to date yet
  4  serve: hung and ended itself; status: an operator is needed; verify: undecided
Settings are environment variables CBP_<NAME>, such as CBP_PORT; see deploy/README.md.
"""


INDENTS = 6
"""Columns without text in each line of the list of commands."""


class _ByTask(TyperGroup):
    """Lists the commands under the task that they are for."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each task, and a line for each command."""
        for task, commands in _COMMANDS.items():
            names = [*commands, *(name for name, (of, *_) in _SUBCOMMANDS.items() if of == task)]
            room = formatter.width - max(map(len, names)) - INDENTS
            rows = [
                (name, command.get_short_help_str(room))
                for name in names
                if (command := self.get_command(ctx, name)) is not None
            ]
            with formatter.section(task):
                formatter.write_dl(rows)


app = typer.Typer(
    name="cbp",
    cls=_ByTask,
    epilog=_STATUSES,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_COMMANDS: dict[str, dict[str, Callable[..., Any]]] = {
    "Learn": {"help": guides.help_command},
    "Write a dataflow": {
        "new": new.new_command,
        "dev": dev.dev_command,
        "register": register.register_command,
        "validate": register.validate_command,
        "translators": library.translators_command,
        "examples": library.examples_command,
        "versions": library.versions_command,
        "explain": explain.explain_command,
        "verify": verify.verify_command,
        "verifications": verify.verifications_command,
        "differences": verify.differences_command,
    },
    "Bring data in": {
        "drop": drop.drop_command,
        "replace": drop.replace_command,
        "retract": drop.retract_command,
        "infer": infer.infer_command,
        "sources": sources.sources_command,
        "rejects": quarantine.rejects_command,
        "claims": sources.claims_command,
        "backfill": backfill.backfill_command,
        "close": control.close_command,
    },
    "Read results": {
        "last": sql.last_command,
        "sql": sql.sql_command,
        "state": state.state_command,
        "history": state.history_command,
        "records": flows.records_command,
        "series": flows.series_command,
        "increments": flows.increments_command,
        "increment": flows.increment_command,
        "snapshot": snapshot.snapshot_command,
    },
    "Monitor": {
        "status": status.status_command,
        "top": top.top_command,
        "waiting": status.waiting_command,
        "stage": stage.stage_command,
        "runs": runs.runs_command,
        "stack": runs.stack_command,
        "logs": logs.logs_command,
        "events": logs.events_command,
        "disk": gc.disk_command,
        "alerts": alerts.alerts_command,
    },
    "Control": {
        "pause": control.pause_command,
        "drain": control.drain_command,
        "resume": control.resume_command,
        "priority": control.priority_command,
        "retry": control.retry_command,
        "cancel": runs.cancel_command,
        "rebuild": rebuild.rebuild_command,
        "rollback": rollback.rollback_command,
        "replay": rollback.replay_command,
        "edit": edit.edit_command,
        "set-aside": set_aside.set_aside_command,
        "give-back": set_aside.give_back_command,
        "delete": control.delete_command,
    },
    "Run the service": {
        "serve": serve.serve_command,
        "demo": demo.demo_command,
        "doctor": doctor.doctor_command,
        "link": tokens.link_command,
        "audit": audit.audit_command,
        "gc": gc.gc_command,
        "scrub": scrub.scrub_command,
        "sbom": sbom.sbom_command,
        "settings": settings.settings_command,
        "support-bundle": support_bundle.support_bundle_command,
    },
    "Repair": {
        "repair": repair.repair_command,
        "recover": recover.recover_command,
        "release": repair.release_command,
        "recoveries": recover.recoveries_command,
        "intentions": recover.intentions_command,
    },
}
_SUBCOMMANDS: dict[str, tuple[str, str, dict[str, Callable[..., Any]]]] = {
    "quarantine": (
        "Bring data in",
        "List, show, admit or discard refused files.",
        {
            "list": quarantine.list_command,
            "show": quarantine.show_command,
            "fetch": quarantine.fetch_command,
            "readmit": quarantine.readmit_command,
            "discard": quarantine.discard_command,
            "restore": quarantine.restore_command,
            "add-columns": add_columns.add_columns_command,
        },
    ),
    "sinks": (
        "Read results",
        "Show and control sinks, which publish results outside the service.",
        {
            "list": sinks.list_command,
            "show": sinks.show_command,
            "pause": sinks.pause_command,
            "resume": sinks.resume_command,
            "retry": sinks.retry_command,
        },
    ),
    "tokens": (
        "Run the service",
        "Named tokens: who may use the service, and for how long.",
        {
            "list": tokens.list_command,
            "new": tokens.new_command,
            "rotate": tokens.rotate_command,
            "revoke": tokens.revoke_command,
            "sessions": tokens.sessions_command,
        },
    ),
}
"""Groups of commands: the task of each, its help, and its commands."""

_EXAMPLES = {
    "help": "cbp help roll-back",
    "new": "cbp new shop && cd shop && cbp dev dataflow.yaml",
    "dev": "cbp dev clicks.yaml --translators clicks.py",
    "serve": "cbp serve --engine local --translators clicks.py --translators flows/",
    "register": "cbp register clicks.yaml --plan --rebuild count",
    "validate": "cbp validate clicks.yaml",
    "drop": "cbp drop clicks urls monday.jsonl tuesday.jsonl --wait",
    "last": "cbp last clicks count.counts url=/docs",
    "sql": 'cbp sql clicks "SELECT url, n FROM count.counts ORDER BY n DESC LIMIT 10"',
    "state": "cbp state clicks count.counts --limit 10",
    "records": "cbp records clicks count.counts",
    "status": "cbp status clicks",
    "top": "cbp top clicks --every 1",
    "runs": "cbp runs clicks --failed --since 6h",
    "stack": "cbp stack clicks",
    "logs": "cbp logs clicks",
    "rebuild": "cbp rebuild clicks clicks.yaml",
    "rollback": "cbp rollback clicks --moments",
    "replay": "cbp replay clicks urls/3 --dry-run",
    "verify": "cbp verify clicks",
    "retry": "cbp retry clicks count",
}

for _commands in _COMMANDS.values():
    for _name, _command in _commands.items():
        _example = f"Example: {_EXAMPLES[_name]}" if _name in _EXAMPLES else None
        app.command(_name, epilog=_example)(as_command(_command))
for _group, (_, _help, _commands) in _SUBCOMMANDS.items():
    _app = typer.Typer(help=_help, no_args_is_help=True)
    for _name, _command in _commands.items():
        _app.command(_name)(as_command(_command))
    app.add_typer(_app, name=_group)


def _print_version(given: bool) -> None:
    if given:
        print_text(f"cbp {importlib.metadata.version('cbp')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Continuous bulk processing: derived tables, kept up to date while data keeps arriving."""


def main(arguments: Sequence[str] | None = None, *, session: Session | None = None) -> None:
    """Run one command, and end the process with its status.

    Tests pass a session, and arguments in place of the arguments of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(given, obj=session or Session(), prog_name="cbp")
    except CbpError as error:
        failure = error
    except OSError as error:
        if error.filename is None:
            raise
        failure = OperatingError(f"{error.filename}: {error.strerror}", path=str(error.filename))
    else:
        return
    print_error(failure, as_json="--json" in given)
    sys.exit(1)
