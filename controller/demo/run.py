"""Runs the crawl queue on real input through the public client, and checks every table.

    pages -> service -> register -> drop and wait -> query -> ten pages more -> kill -9 -> checks

It uses the service as a user's program does: by `cbp.client`, and by readers of its tables. Columns
that the service keeps for itself (`_bucket`, `_hash`) are not compared.

Guaranteed: the service is stopped and the folder removed whatever happens, with three exceptions
(tests/controller/demo/test_run.py): after a failure the folder stays, since the log and the tables
show why; with `root` the folder of a successful call stays, and with `keep` the service, too. A
difference of one record is found (tests/controller/demo/test_tables.py).
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NoReturn
from urllib.parse import quote

import polars as pl
from deltalake import DeltaTable, QueryBuilder
from rich.console import Console
from rich.progress import track

from cbp.client import Client, Run
from cbp.engine.storage.table_names import flow_table, state_table
from cbp.errors import CbpError, InvariantError, NotFoundError, OperatingError
from cbp.errors.counts import format_count
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.equality import identity, view_difference
from cbp.testing import Result, run_dataflow
from controller.demo.pages import (
    Page,
    expected_touched,
    find_modules,
    installed_folders,
    read_page,
    split,
    standard_library,
)
from controller.registry import Registry
from controller.server.service_process import ServiceProcess, choose_port, settings_of
from controller.terminal import print_json, print_table, print_text

EPOCH = "_epoch"

Frame = Callable[[str, Sequence[str]], pl.DataFrame]
"""Reads columns of the table in a folder."""


def by_delta_rs(path: str, columns: Sequence[str]) -> pl.DataFrame:
    """Read a table with delta-rs, by its own SQL."""
    names = ", ".join(f'"{name}"' for name in columns)
    query = QueryBuilder().register("t", DeltaTable(path))
    return pl.DataFrame(query.execute(f"SELECT {names} FROM t").read_all())


def by_polars(path: str, columns: Sequence[str]) -> pl.DataFrame:
    """Read a table with Polars.

    Polars (tried: 2.1) finds no files below a folder whose name needs percent-encoding (a space),
    so it reads a copy of such a table.
    """
    if quote(path) == path:
        return pl.scan_delta(path).select(columns).collect()
    with tempfile.TemporaryDirectory(prefix="cbp-demo-copy-", dir="/tmp") as folder:
        copy = shutil.copytree(path, Path(folder, "table"))
        return pl.scan_delta(str(copy)).select(columns).collect()


def read_tables(flow: Dataflow, folder: str, like: Result, frame: Frame = by_delta_rs) -> Result:
    """Return the contents of the tables in a folder, in the form of a test run's result.

    `like` has at least as many epochs as the tables should have.
    """
    state: dict[str, list[tuple[Any, ...]]] = {}
    outputs: dict[str, list[list[tuple[Any, ...]]]] = {}
    for stage, node in flow.stages.items():
        for kept in node.translator.states:
            path = f"{folder}/{state_table(stage, kept.name)}"
            state[f"{stage}.{kept.name}"] = frame(path, kept.schema.names).rows()
        for output in node.translator.outputs:
            name, path = f"{stage}.{output.name}", f"{folder}/{flow_table(stage, output.name)}"
            rows = frame(path, (EPOCH, *output.schema.names)).rows()
            count = max([len(like.outputs[name]), *(row[0] + 1 for row in rows)])
            outputs[name] = [[] for _ in range(count)]
            for epoch, *values in rows:
                outputs[name][epoch].append(tuple(values))
    return replace(like, state=state, outputs=outputs)


def first_difference(expected: Result, found: Result) -> str:
    """Return the first difference, record by record and epoch by epoch; `""` if there is none.

    `Result.difference` compares less: only results that do not depend on the split of the
    input.
    """
    for name, rows in expected.state.items():
        left, right = _by_epoch([rows, found.state[name]])
        if said := view_difference(left, right):
            return f"state {name}: {said}"
    for name, epochs in expected.outputs.items():
        if said := view_difference(_by_epoch(epochs), _by_epoch(found.outputs[name])):
            return f"output {name}: {said}"
    return ""


def _by_epoch(epochs: Sequence[Sequence[Any]]) -> list[Counter[Hashable]]:
    return [Counter(map(identity, epoch)) for epoch in epochs]


def histories(flow: Dataflow) -> list[str]:
    """Return the outputs with a history, which depend on the split of the input into epochs."""
    return [
        f"{stage}.{output.name}"
        for stage, node in flow.stages.items()
        for output in node.translator.outputs
        if output.history
    ]


def records_in(result: Result) -> int:
    """Return how many records a result has, in states and outputs."""
    emitted = sum(len(epoch) for epochs in result.outputs.values() for epoch in epochs)
    return emitted + sum(map(len, result.state.values()))


NAME = "crawl_queue"
PLAIN_WIDTH = 100

_QUEUE = """
    SELECT url, score, n FROM "threshold.queue" LEFT JOIN "count_in_links.counts" USING (site, url)
    ORDER BY score DESC, url LIMIT 10
"""
# The record with a null `url` holds the total of the site.
_SITES = """
    SELECT site, max(n) FILTER (url IS NULL) AS links,
        count(*) FILTER (url IS NOT NULL AND crawled),
        count(*) FILTER (url IS NOT NULL AND NOT crawled)
    FROM "merge.known" GROUP BY site ORDER BY links DESC, site LIMIT 10
"""
_GROUPS = {
    "count_in_links": 'SELECT count(DISTINCT site) FROM "count_in_links.counts"',
    "merge": 'SELECT count(DISTINCT site) FROM "merge.known"',
    "threshold": 'SELECT count(DISTINCT url) FROM "threshold.queue"',
}
"""Maps each stage to a query that returns the number of groups in its state."""

FIGURES = ("groups", "state_written")
_GROUP_COUNTS = ("groups_called", "groups_expected", "groups_held")
TOUCHED = ("stage", *_GROUP_COUNTS, "state_written", "state_expected")


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of one call.

    Attributes:
        keep: Leave the service running, and keep its folder.
        root: Folder in which this call creates a new one that stays; `None` means a temporary one.
        limit: Maximum number of modules to read, spread evenly; `None` means all.
        stdlib: Read the standard library too, as further sites.
        port: Port of the service; if it is in use, another one.
    """

    keep: bool = False
    root: Path | None = None
    as_json: bool = False
    increments: int = 5
    engine: Literal["spark", "local"] = "spark"
    limit: int | None = None
    stdlib: bool = False
    port: int = 8420


class FolderUnusableError(OperatingError, code="demo_folder_unusable", retryable=False):
    """The demo's folder cannot be created."""

    def __init__(self, path: str, why: str) -> None:
        message = (
            f"cannot create a folder in {path}: {why}; choose another with --root, or set TMPDIR"
        )
        super().__init__(message, path=path, cause=why)


def new_folder(root: Path | None) -> Path:
    """Create a new folder for one call, in `root` or in the system's temporary folder."""
    try:
        if root is not None:
            root.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="cbp-demo-", dir=root)).resolve()
    except OSError as error:
        where = str(root or tempfile.gettempdir())
        raise FolderUnusableError(where, error.strerror or str(error)) from error


class CheckFailedError(InvariantError, code="demo_check_failed"):
    """A result differs from the expected one."""

    def __init__(self, failed: Sequence[str]) -> None:
        message = f"{format_count(len(failed), 'check')} failed: {', '.join(failed)}"
        super().__init__(message, checks=list(failed))


def run_demo(options: DemoOptions) -> None:
    """Run the demo from start to end.

    Raises `CheckFailedError` if a result is wrong; the first difference was printed.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a module's name may be in any script
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit)
    demo = _Demo(options, new_folder(options.root))
    try:
        demo.run()
    except BaseException as error:
        demo.service.stop()
        if isinstance(error, Exception):
            demo.say(f"The log and the tables are in {demo.folder}", "red")
        else:  # interrupted
            shutil.rmtree(demo.folder, ignore_errors=True)
        raise
    if not options.keep:
        demo.service.stop()
        if options.root is None:
            shutil.rmtree(demo.folder, ignore_errors=True)
    if options.as_json:
        print_json(demo.result)
    if demo.failed:
        raise CheckFailedError(demo.failed)


def document() -> dict[str, Any]:
    """Return the document to register, which an installed package offers, as JSON values."""
    for point in importlib.metadata.entry_points(group="cbp.dataflows", name=NAME):
        made: dict[str, Any] = point.load()()
        return made
    raise NotFoundError("dataflow", NAME, hint="install this checkout again: pip install -e .")


class _Demo:
    def __init__(self, options: DemoOptions, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.result: dict[str, Any] = {"checks": []}
        self.failed: list[str] = []
        self._console = Console(quiet=options.as_json, highlight=False)
        if not self._console.is_terminal:
            self._console.width = PLAIN_WIDTH
        self._began = time.monotonic()
        port = choose_port(options.port)
        self._settings = settings_of(folder, port=port, engine=options.engine)
        self.service = self._start()

    def say(self, line: str, style: str = "") -> None:
        print_text(line, style, console=self._console)

    def run(self) -> None:
        self.say("The crawl queue over the Python modules installed here", "bold")
        parts = split(self._read_pages(), self.options.increments)
        self._wait_until_ready()
        with Client(self._settings.url, token=self._settings.read_token()) as client:
            try:
                self._steps(client, parts)
            except CbpError:
                self.service.check_alive()
                raise
            self.result |= {"seconds": time.monotonic() - self._began, "failed": self.failed}
            self._say_how_to_go_on(client)

    def _start(self) -> ServiceProcess:
        log = self.folder / "service.log"
        return ServiceProcess(self._settings, log=log, outlives=self.options.keep)

    def _read_pages(self) -> list[Page]:
        folders = installed_folders() + ([standard_library()] if self.options.stdlib else [])
        modules = list(find_modules(folders).items())
        names = {*find_modules([standard_library()]), *dict(modules)}
        count = min(self.options.limit or len(modules), len(modules))
        chosen = [modules[number * len(modules) // count] for number in range(count)]
        quiet = self.options.as_json
        shown = track(chosen, "modules read", console=self._console, transient=True, disable=quiet)
        pages = [page for module in shown if (page := read_page(*module, names)) is not None]
        sites, links = len({page.site for page in pages}), sum(len(page.links) for page in pages)
        self.result["corpus"] = {"pages": len(pages), "sites": sites, "links": links}
        self.say(f"  pages     {len(pages):,} modules of {sites} packages with {links:,} imports")
        return pages

    def _wait_until_ready(self) -> None:
        url, engine = self._settings.url, self.options.engine
        with self._console.status(f"the service starts at {url}"):
            self.service.wait_until_ready()
        seconds = time.monotonic() - self._began
        self.say(f"  service   {url} is ready after {seconds:.1f} s (engine {engine}, SQLite)")
        self.result["service"] = {"url": url, "engine": engine, "ready_seconds": seconds}

    def _steps(self, client: Client, parts: Sequence[Sequence[Page]]) -> None:
        registered = client.register(document())
        self._stages = [stage.name for stage in registered.stages]
        self.say(f"  dataflow  {NAME}: {' > '.join(self._stages)}")
        count = format_count(len(parts) - 1, "increment")
        self.say(f"\n{count}, dropped one after the other", "bold")
        self.result["increments"] = []
        for number, part in enumerate(parts[:-1]):
            is_last = number == len(parts) - 2
            seconds = self._apply(client, number, part, kills=is_last)
            killed = ", though the service was killed (SIGKILL) meanwhile" if is_last else ""
            self.say(
                f"  {number + 1}  {len(part):>6,} pages   applied {seconds:5.2f} s after "
                f"arrival{killed}"
            )
            self.result["increments"].append({"pages": len(part), "seconds": seconds})
        self._show_queue(client)
        self._last(client, parts)
        self._check_tables(client, parts)

    def _apply(
        self, client: Client, number: int, part: Sequence[Page], *, kills: bool = False
    ) -> float:
        """Drop pages, and return the seconds from their arrival to the last run that they caused.

        With `kills` the service is killed in between and started again, which is all it needs.
        """
        lines = "".join(json.dumps(page.record()) + "\n" for page in part)
        with self._console.status("the pages are applied"):
            claim = client.drop(NAME, "pages", lines.encode(), file=f"pages-{number}.jsonl")
            if kills:
                self.service.kill()
                self.service = self._start()
                self.service.wait_until_ready()
            client.wait(NAME, claim)
        ends = [run.finished_at for run in self._runs(client, number) if run.finished_at]
        return (max(ends, default=claim.created_at) - claim.created_at).total_seconds()

    def _runs(self, client: Client, epoch: int | None = None) -> list[Run]:
        """Return the committed runs of an epoch, or all, in the order of the stages."""
        runs = client.runs(NAME, status="COMMITTED", epoch=epoch)
        return sorted(runs, key=lambda run: (run.epoch, self._stages.index(run.stage)))

    def _show_queue(self, client: Client) -> None:
        queue, sites = client.query(NAME, _QUEUE), client.query(NAME, _SITES)
        self.say("\nWhat to crawl next", "bold")
        self._table(("module", "score", "in-links"), queue.rows)
        self.say("\nIn-links per site", "bold")
        self._table(("site", "in-links", "crawled", "not crawled"), sites.rows)
        self.result |= {"queue": queue.rows, "sites": sites.rows}

    def _last(self, client: Client, parts: Sequence[Sequence[Page]]) -> None:
        """Drop the last pages, and compare the touched groups with the expected ones."""
        pages, before = parts[-1], [page for part in parts[:-1] for page in part]
        self.say(f"\n{len(pages)} more pages touch only the groups that they concern", "bold")
        number, expected = len(parts) - 1, expected_touched(pages, before)
        seconds = self._apply(client, number, pages)
        touched = []
        for run in self._runs(client, number):
            for stage in (name for name in run.stages if name in expected):
                prefix = f"{stage}/" if len(run.stages) > 1 else ""
                called, written = (run.figures[f"{prefix}{name}"] for name in FIGURES)
                (held,) = client.query(NAME, _GROUPS[stage]).rows[0]
                groups, records = expected[stage]
                touched.append((stage, int(called), groups, held, int(written), records))
        self._table([column.replace("_", " ") for column in TOUCHED], touched)
        self._judge("each stage with state ran once for these pages", len(touched) == len(expected))
        for stage, called, groups, _, written, records in touched:
            claim = f"{stage} touched exactly the groups that the {len(pages)} pages concern"
            self._judge(claim, (called, written) == (groups, records))
        self.say(f"  applied {seconds:.2f} s after arrival", "dim")
        stages = [dict(zip(TOUCHED, row, strict=True)) for row in touched]
        self.result["last"] = {"seconds": seconds, "stages": stages}
        self.result["runs"] = [
            {"stages": run.stages, "epoch": run.epoch, "figures": run.figures}
            for run in self._runs(client)
        ]

    def _check_tables(self, client: Client, parts: Sequence[Sequence[Page]]) -> None:
        """Compare every table with two computations in memory, and two readers with each other."""
        self.say("\nChecks, record by record", "bold")
        flow = Registry(self._settings.allowed_packages).compile(document())
        folder = str(Path(client.snapshot(NAME).tables[0].path).parents[1])
        records = [[page.record() for page in part] for part in parts]
        with self._console.status("recomputing everything in memory, without the service"):
            expected = run_dataflow(flow, {"pages": records})
            scratch = run_dataflow(flow, {"pages": [[one for part in records for one in part]]})
            found = read_tables(flow, folder, expected)
            other = read_tables(flow, folder, expected, by_polars)
        count = records_in(expected)
        for claim, difference in (
            ("every table equals the result in memory", first_difference(expected, found)),
            (
                "state and last values equal those of one run over all pages",
                scratch.difference(found, without=histories(flow)),
            ),
            ("Polars and delta-rs read the same records", first_difference(found, other)),
        ):
            ok = count > 0 and not difference
            self._judge(f"{claim} ({count:,} records)", ok)
            if difference:
                self.say(f"      {difference}", "red")
            self.result["checks"].append({"claim": claim, "records": count, "ok": ok})
        self.result["tables"] = folder

    def _judge(self, claim: str, ok: bool) -> None:
        self.say(f"  {'ok    ' if ok else 'FAILED'} {claim}", "" if ok else "bold red")
        if not ok:
            self.failed.append(claim)

    def _table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        print_table(columns, rows, empty="no rows", console=self._console)

    def _say_how_to_go_on(self, client: Client) -> None:
        """Print where the tables are, and with `keep` which commands to try next."""
        self.say(f"\nDone in {self.result['seconds']:.0f} s", "bold")
        options, settings = self.options, self._settings
        if not options.keep and options.root is None:
            self.say("  tables    were removed; --keep or --root DIR keeps them")
            return
        self.say(f"  tables    {self.result['tables']}")
        if not options.keep:
            return
        cbp = "cbp" if shutil.which("cbp") else f"{shlex.quote(sys.executable)} -m controller.cli"
        code = client.make_sign_in()["path"]
        self.say(f"  service   {settings.url} keeps running; stop it with: kill {self.service.pid}")
        self.say(f"  log       {self.service.log}")
        self.say(f"  page      {settings.url}{code} (signs in once, within ten minutes)")
        self.say("\nTry next", "bold")
        self.say(f"  export CBP_ROOT={shlex.quote(str(self.folder))} CBP_PORT={settings.port}")
        for command in ("status", "snapshot --for polars", "state count_in_links.counts site=rich"):
            name, _, rest = command.partition(" ")
            self.say(f"  {cbp} {name} {NAME} {rest}")


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    """Make SIGTERM and SIGHUP unwind like Ctrl-C, so that the service is stopped."""
    raise SystemExit(128 + number)
