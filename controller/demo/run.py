"""The demo, step by step; each step prints what it did and adds it to the result.

    corpus -> service -> register -> five increments -> queue, sites, runs
           -> ten more documents: only the groups they touch -> checks -> end

Guaranteed: whatever happens, the service is stopped, unless the demo ended and
`keep` was asked for (tests/controller/test_demo_run.py).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from cbp.model.dataflow import Dataflow
from controller.cli.client import ServiceClient
from controller.cli.output import bytes_text, print_json
from controller.demo import checks, dataflow
from controller.demo.corpus import (
    Page,
    all_names,
    find_modules,
    installed_folders,
    read_page,
    sample,
    split,
    standard_library,
    write_pages,
)
from controller.demo.errors import CheckFailedError
from controller.demo.expect import expected_touched
from controller.demo.farewell import say_farewell
from controller.demo.options import DemoOptions
from controller.demo.queue import groups_in, links_per_site, top_of_queue
from controller.demo.report import Report, console_of
from controller.demo.service import ServiceProcess, choose_port, settings_of
from controller.demo.tables import TableRef, tables_of
from controller.demo.watch import Applied, DataflowWatch, Progress
from controller.demo.workspace import interruptible, new_folder, removed_at_end

__all__ = ["run_demo"]

TOP = 10
SITES_SHOWN = 3
LOOKS_EVERY = 200
"""Modules read between two looks at whether the service still lives."""


def run_demo(options: DemoOptions, *, console: Console | None = None) -> None:
    """Run the demo from start to end.

    Raises:
        CheckFailedError: A result is not what it must be; what differs was printed.
        OperatingError: The service did not start, stopped, or does not get on.
    """
    report = Report(console or console_of(as_json=options.as_json))
    folder = new_folder(options.root)
    stays = options.keep or options.root is not None
    with interruptible(), removed_at_end(folder, stays=stays):
        demo = _Demo(options, report, folder)
        try:
            demo.run()
        except Exception:
            report.line(f"The log and the tables stay in {folder}", "red")
            raise
    if options.as_json:
        print_json(demo.result)
    if failed := demo.failed:
        raise CheckFailedError(failed)


class _Demo:
    """One call; the methods are the steps, in order."""

    def __init__(self, options: DemoOptions, report: Report, folder: Path) -> None:
        self._options, self._report, self._folder = options, report, folder
        self._started = time.monotonic()
        self.result: dict[str, Any] = {}
        self.failed: list[str] = []

    def run(self) -> None:
        """Do all steps."""
        port = choose_port(self._options.port)
        settings = settings_of(self._folder, port=port, engine=self._options.engine)
        document = dataflow.document()
        flow = dataflow.compiled(document, settings)
        self._report.line("The crawl queue over the Python modules installed here", "bold")
        with self._service(
            ServiceProcess(settings, log=self._folder / "service.log", outlives=self._options.keep)
        ) as service:
            parts = self._corpus(service)
            self._wait(service)
            with ServiceClient(settings) as client:
                watch = DataflowWatch(client, settings, document, alive=service.check_alive)
                tables = self._register(watch, flow)
                self._increments(watch, parts)
                self._results(watch, tables)
                self._last(watch, flow, tables, parts)
            self._checks(flow, tables, parts)
            self._end(service)

    @contextmanager
    def _service(self, service: ServiceProcess) -> Iterator[ServiceProcess]:
        kept = False
        try:
            yield service
            kept = self._options.keep
        finally:
            if not kept:
                service.stop()

    def _corpus(self, service: ServiceProcess) -> list[list[Page]]:
        """Read the modules while the service starts."""
        folders = installed_folders()
        modules = find_modules([*folders, standard_library()] if self._options.stdlib else folders)
        names, modules = all_names(modules), sample(modules, self._options.limit)
        pages, unread = [], 0
        gc.disable()  # syntax trees are many and have no cycles that outlive a file
        try:
            with self._report.bar("modules read", len(modules)) as advance:
                for number, module in enumerate(modules):
                    if number % LOOKS_EVERY == 0:
                        service.check_alive()
                    page = read_page(module, names)
                    if page is None:
                        unread += 1
                    else:
                        pages.append(page)
                    advance()
        finally:
            gc.enable()
        parts = split(pages, self._options.increments)
        links = sum(len(page.links) for page in pages)
        packages = len({page.site for page in pages})
        self._report.fact(
            "pages",
            f"{len(pages):,} modules of {packages} packages with {links:,} imports as links"
            + (f"; {unread} could not be read" if unread else ""),
        )
        self.result["corpus"] = {
            "pages": len(pages),
            "sites": packages,
            "links": links,
            "unreadable": unread,
        }
        return parts

    def _wait(self, service: ServiceProcess) -> None:
        with self._report.waiting(f"the service starts at {service.settings.url}"):
            service.wait_until_ready()
        seconds = time.monotonic() - self._started
        engine = {"spark": "Spark, local[*]", "local": "no Spark"}[self._options.engine]
        self._report.fact(
            "service", f"{service.settings.url} is ready after {seconds:.1f} s ({engine}, SQLite)"
        )
        self.result["service"] = {
            "url": service.settings.url,
            "engine": self._options.engine,
            "ready_seconds": seconds,
        }

    def _register(self, watch: DataflowWatch, flow: Dataflow) -> dict[str, TableRef]:
        folder = watch.register()
        self._report.fact("dataflow", f"{watch.name}: {' > '.join(watch.stages)}")
        self.result["tables"] = folder
        return {table.label: table for table in tables_of(flow, folder)}

    def _increments(self, watch: DataflowWatch, parts: Sequence[Sequence[Page]]) -> None:
        self._report.title(f"{len(parts) - 1} increments, dropped one after the other")
        shown = []
        for number, part in enumerate(parts[:-1]):
            applied = self._drop(watch, parts, number)
            sites = _sites(part)
            names = ", ".join(sites[:SITES_SHOWN])
            more = len(sites) - SITES_SHOWN
            shown.append({"pages": len(part), "sites": len(sites), "seconds": applied.seconds})
            self._report.line(
                f"  {number + 1}  {len(part):>6,} pages   applied {applied.seconds:5.2f} s after "
                f"arrival   {names}" + (f" and {more} more" if more > 0 else "")
            )
        self.result["increments"] = shown

    def _drop(self, watch: DataflowWatch, parts: Sequence[Sequence[Page]], number: int) -> Applied:
        file = self._folder / f"pages-{number + 1}.jsonl"
        write_pages(file, parts[number])
        sizes = [len(part) for part in parts]
        with self._report.stage_bars(
            pages=sum(sizes),
            pages_before=sum(sizes[:number]),
            stages=dict.fromkeys(watch.stages, number),
            increments=len(parts),
        ) as show:

            def on_progress(standing: Progress) -> None:
                show(standing, sum(sizes[: standing.accepted]))

            return watch.drop(file, on_progress)

    def _results(self, watch: DataflowWatch, tables: dict[str, TableRef]) -> None:
        best, length = top_of_queue(tables, TOP)
        self._report.title(f"What to crawl next: the best {len(best)} of {length:,} in the queue")
        self._report.table(
            ("", "module", "score", "in-links"),
            [(n, e.url, e.score, e.in_links) for n, e in enumerate(best, start=1)],
        )
        sites = links_per_site(tables, TOP)
        self._report.title("In-links per site")
        self._report.table(
            ("site", "in-links", "crawled", "in the queue"),
            [(s.site, s.in_links, s.crawled, s.waiting) for s in sites],
        )
        runs = watch.runs()
        self._report.title("Runs")
        self._report.table(
            ("epoch", "stage", "records in", "groups", "state records", "seconds", "written"),
            [
                (
                    run.epoch,
                    run.stage,
                    run.count("records_in"),
                    run.count("groups"),
                    run.count("state_written"),
                    run.seconds,
                    bytes_text(run.figures.get("bytes_written", 0)),
                )
                for run in runs
            ],
        )
        self.result["queue"] = {
            "entries": length,
            "top": [{"url": e.url, "score": e.score, "in_links": e.in_links} for e in best],
        }
        self.result["sites"] = [{"site": s.site, "in_links": s.in_links} for s in sites]

    def _last(
        self,
        watch: DataflowWatch,
        flow: Dataflow,
        tables: dict[str, TableRef],
        parts: Sequence[Sequence[Page]],
    ) -> None:
        """Drop the last documents, and compare what they touched with what they had to touch."""
        self._report.title(f"{len(parts[-1])} more documents touch only the groups they must")
        applied = self._drop(watch, parts, len(parts) - 1)
        runs = {run.stage: run for run in applied.runs}
        before = [page for part in parts[:-1] for page in part]
        rows, touched = [], []
        for expected in expected_touched(parts[-1], before):
            spec = flow.stages[expected.stage].translator
            assert spec.key is not None
            state = tables[f"{expected.stage}.{spec.states[0].name}"]
            run, held = runs[expected.stage], groups_in(state, spec.key.names)
            found = (run.count("groups"), run.count("state_written"))
            ok = found == (expected.groups, expected.state_written)
            if not ok:
                self.failed.append(f"touched groups of {expected.stage}")
            rows.append(
                (
                    expected.stage,
                    found[0],
                    expected.groups,
                    held,
                    found[1],
                    expected.state_written,
                    run.seconds,
                )
            )
            touched.append((expected.stage, ok))
        columns = (
            "stage",
            "groups called",
            "expected",
            "groups held",
            "state records",
            "expected",
            "seconds",
        )
        self._report.table(columns, rows)
        for stage, ok in touched:
            self._report.judged(f"{stage} called exactly the groups of the ten documents", ok)
        self._report.line(f"  applied {applied.seconds:.2f} s after arrival", "dim")
        self.result["last"] = {
            "seconds": applied.seconds,
            "stages": [dict(zip(columns, row, strict=False)) for row in rows],
        }
        self.result["runs"] = [
            {"stage": r.stage, "epoch": r.epoch, "seconds": r.seconds, "figures": dict(r.figures)}
            for r in watch.runs()
        ]

    def _checks(
        self, flow: Dataflow, tables: dict[str, TableRef], parts: Sequence[Sequence[Page]]
    ) -> None:
        self._report.title("Checks, record by record")
        (source,) = flow.sources
        records = [[page.record() for page in part] for part in parts]
        every = [record for part in records for record in part]
        chosen = list(tables.values())
        steps: tuple[Callable[[], checks.Check], ...] = (
            lambda: checks.against_reference(chosen, checks.reference(flow, source, records)),
            lambda: checks.from_scratch(chosen, checks.reference(flow, source, [every])),
            lambda: checks.readers_agree(chosen),
        )
        made = []
        for step in steps:
            with self._report.waiting("computing it again, without the service"):
                check = step()
            self._report.check(check)
            made.append({"claim": check.claim, "records": check.records, "ok": check.ok})
            if not check.ok:
                self.failed.append(check.claim)
        self.result["checks"] = made

    def _end(self, service: ServiceProcess) -> None:
        seconds = time.monotonic() - self._started
        self.result["seconds"] = seconds
        say_farewell(
            self._report,
            self._options,
            service,
            folder=self._folder,
            tables=self.result["tables"],
            seconds=seconds,
        )


def _sites(part: Sequence[Page]) -> list[str]:
    """Return the sites of a part, those with the most pages first."""
    sizes: dict[str, int] = {}
    for page in part:
        sizes[page.site] = sizes.get(page.site, 0) + 1
    return sorted(sizes, key=lambda site: (-sizes[site], site))
