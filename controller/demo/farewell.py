"""Prints the last lines of the demo: where the tables lie, and what to try next."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from cbp.errors import CbpError
from controller.client.service_client import ServiceClient
from controller.demo.crawl_queue import NAME, QUEUE
from controller.demo.options import DemoOptions
from controller.demo.report import Report
from controller.demo.results.tables import TableRef, is_plain
from controller.server.service_process import ServiceProcess
from controller.settings import Settings

__all__ = ["say_farewell"]


def say_farewell(
    report: Report,
    options: DemoOptions,
    service: ServiceProcess,
    *,
    folder: Path,
    tables: Sequence[TableRef],
    seconds: float,
) -> None:
    """Print the total time, where the tables lie, and with `keep` how to continue."""
    report.title(f"Done in {seconds:.0f} s")
    if not options.keep and options.root is None:
        report.fact("tables", "removed with the service; --keep or --root DIR leaves them")
        return
    report.fact("tables", str(Path(tables[0].path).parents[1]))
    queue = next(table for table in tables if table.label == QUEUE)
    report.fact("read one", _reading(queue.path))
    if options.keep:
        _say_how_to_go_on(report, service, folder)


def _reading(path: str) -> str:
    """Return an expression that reads a table; delta-rs where Polars would misread the path."""
    if is_plain(path):
        return f'python -c "import polars; print(polars.read_delta({path!r}))"'
    table = f"DeltaTable({path!r})"
    return f"deltalake.QueryBuilder().register('t', {table}).execute('SELECT * FROM t')"


def _say_how_to_go_on(report: Report, service: ServiceProcess, folder: Path) -> None:
    settings = service.settings
    report.fact("service", f"{settings.url} goes on; stop it with: kill {service.pid}")
    report.fact("log", str(service.log))
    report.fact("page", _link(settings))
    report.title("Try next")
    report.line(f"  export CBP_ROOT={shlex.quote(str(folder))} CBP_PORT={settings.port}")
    for arguments in (
        f"status {NAME}",
        f"runs --dataflow {NAME}",
        f"state {NAME} count_in_links.counts site=typing",
        f"state {NAME} {QUEUE} --limit 5",
    ):
        report.line(f"  {_command()} {arguments}")
    token = shlex.quote(str(settings.token_file))
    report.line(
        f'  curl -H "Authorization: Bearer $(cat {token})" {settings.url}/api/v1/dataflows/{NAME}'
    )


def _link(settings: Settings) -> str:
    """Return a link that signs a browser in once, or how to get one."""
    try:
        with ServiceClient(settings) as client:
            made = client.post("session", "codes")
    except CbpError:  # the demo is done; its last lines do not fail
        return f"{settings.url}/ui/, {_command()} link prints a link that signs in"
    return (
        f"{settings.url}{made['path']} (signs in once, within ten minutes; then: {_command()} link)"
    )


def _command() -> str:
    """Return how to call this very `cbp` from the current folder."""
    if shutil.which("cbp") is not None:
        return "cbp"
    interpreter = sys.executable
    here = os.path.relpath(interpreter)
    shortest = here if not here.startswith("..") and os.sep in here else interpreter
    return f"{shlex.quote(shortest)} -m controller.cli"
