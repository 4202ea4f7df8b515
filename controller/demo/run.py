"""Runs the demo step by step; each step prints what it did and adds it to the result.

    corpus -> service -> register -> increments -> queue, sites, runs
           -> ten more documents: only the groups they touch -> checks -> end

Guaranteed: the service is stopped whatever happens, unless the demo ended and `keep` was requested
(tests/controller/demo/test_run.py).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from cbp.errors.counts import format_count
from cbp.model.dataflow.dataflow import Dataflow
from controller.client.service_client import ServiceClient
from controller.demo import crawl_queue
from controller.demo.corpus.collect import collect
from controller.demo.corpus.pages import Page, split, write_pages
from controller.demo.crawl_queue import links_per_site, top_of_queue
from controller.demo.errors import CheckFailedError
from controller.demo.farewell import say_farewell
from controller.demo.options import DemoOptions
from controller.demo.report import Report, console_of
from controller.demo.results import checks
from controller.demo.results.tables import TableRef, tables_of
from controller.demo.results.touched_groups import judge
from controller.demo.service.watch import Applied, DataflowWatch, Progress
from controller.demo.workspace import interruptible, new_folder, removed_at_end
from controller.server.service_process import ServiceProcess, choose_port, settings_of
from controller.terminal import bytes_text, print_json

__all__ = ["run_demo"]

TOP = 10
SITES_SHOWN = 3
ENGINES = {"spark": "Spark, local[*]", "local": "no Spark"}

Parts = Sequence[Sequence[Page]]
Tables = Mapping[str, TableRef]


def run_demo(options: DemoOptions, *, console: Console | None = None) -> None:
    """Run the demo from start to end.

    Raises:
        CheckFailedError: A result is wrong; the differences were printed.
        OperatingError: The service did not start, stopped, or makes no progress.
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
        if demo.failed:
            raise CheckFailedError(demo.failed)


class _Demo:
    """One call; the methods are the steps, in order."""

    def __init__(self, options: DemoOptions, report: Report, folder: Path) -> None:
        self._options, self._report, self._folder = options, report, folder
        self._started, self._ready_seconds = time.monotonic(), 0.0
        self.result: dict[str, Any] = {}
        self.failed: list[str] = []

    def run(self) -> None:
        """Do all steps."""
        options = self._options
        settings = settings_of(self._folder, port=choose_port(options.port), engine=options.engine)
        document = crawl_queue.document()
        flow = crawl_queue.compiled(document, settings)
        self._report.line("The crawl queue over the Python modules installed here", "bold")
        log = self._folder / "service.log"
        with self._service(ServiceProcess(settings, log=log, outlives=options.keep)) as service:
            parts = self._corpus(service)
            self._wait(service)
            with ServiceClient(settings) as client:
                watch = DataflowWatch(client, settings, document, alive=service.check_alive)
                tables = self._register(watch, flow)
                self._increments(watch, parts)
                self._queue(tables)
                self._runs(watch, flow)
                self._last(watch, flow, tables, parts)
            self._checks(flow, tables, parts)
            self._end(service, tables)

    @contextmanager
    def _service(self, service: ServiceProcess) -> Iterator[ServiceProcess]:
        stays = False
        try:
            yield service
            stays = self._options.keep
        finally:
            if not stays:
                service.stop()

    def _corpus(self, service: ServiceProcess) -> Parts:
        """Read the modules while the service starts, and split them into increments."""
        corpus = collect(
            self._report.bar,
            limit=self._options.limit,
            with_stdlib=self._options.stdlib,
            alive=lambda: self._look_at(service),
        )
        unread = f"; {corpus.unreadable} could not be read" if corpus.unreadable else ""
        self._report.fact(
            "pages",
            f"{len(corpus.pages):,} modules of {corpus.sites} packages with "
            f"{corpus.links:,} imports as links{unread}",
        )
        self.result["corpus"] = {
            "pages": len(corpus.pages),
            "sites": corpus.sites,
            "links": corpus.links,
            "unreadable": corpus.unreadable,
        }
        return split(corpus.pages, self._options.increments)

    def _wait(self, service: ServiceProcess) -> None:
        url, engine = service.settings.url, self._options.engine
        with self._report.waiting(f"the service starts at {url}"):
            service.wait_until_ready()
        self._look_at(service)
        seconds = self._ready_seconds
        shown = f"{url} is ready after {seconds:.1f} s ({ENGINES[engine]}, SQLite)"
        self._report.fact("service", shown)
        self.result["service"] = {"url": url, "engine": engine, "ready_seconds": seconds}

    def _look_at(self, service: ServiceProcess) -> None:
        """Check that the service is alive, and note when it first answers."""
        service.check_alive()
        if not self._ready_seconds and service.is_ready():
            self._ready_seconds = time.monotonic() - self._started

    def _register(self, watch: DataflowWatch, flow: Dataflow) -> Tables:
        folder, units = watch.register()
        self._report.fact("dataflow", f"{watch.name}: {' > '.join(units)}")
        self.result["tables"] = folder
        return {table.label: table for table in tables_of(flow, folder)}

    def _increments(self, watch: DataflowWatch, parts: Parts) -> None:
        self._report.title(
            f"{format_count(len(parts) - 1, 'increment')}, dropped one after the other"
        )
        self.result["increments"] = []
        for number, part in enumerate(parts[:-1]):
            applied = self._drop(watch, parts, number)
            self._report.line(
                f"  {number + 1}  {len(part):>6,} pages   applied {applied.seconds:5.2f} s after "
                f"arrival   {_sites(part)}"
            )
            self.result["increments"].append({"pages": len(part), "seconds": applied.seconds})

    def _drop(self, watch: DataflowWatch, parts: Parts, number: int) -> Applied:
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

    def _queue(self, tables: Tables) -> None:
        best, length = top_of_queue(tables, TOP)
        self._report.title(f"What to crawl next: the best {len(best)} of {length:,} in the queue")
        self._report.table(
            ("", "module", "score", "in-links"),
            [(n, e.url, e.score, e.in_links) for n, e in enumerate(best, start=1)],
        )
        sites = links_per_site(tables, TOP)
        self._report.title("In-links per site")
        self._report.table(
            ("site", "in-links", "crawled", "not crawled"),
            [(s.site, s.in_links, s.crawled, s.waiting) for s in sites],
        )
        self.result["queue"] = {"entries": length, "top": [asdict(entry) for entry in best]}
        self.result["sites"] = [asdict(site) for site in sites]

    def _runs(self, watch: DataflowWatch, flow: Dataflow) -> None:
        # In a record-wise stage every record is a group: there is nothing to show.
        grouped = {n for n, node in flow.stages.items() if not node.translator.record_wise}
        self._report.title("Runs")
        self._report.table(
            ("epoch", "stage", "records in", "groups", "state records", "seconds", "written"),
            [
                (
                    run.epoch,
                    stage,
                    run.count_of(stage, "records_in"),
                    run.count_of(stage, "groups") if stage in grouped else None,
                    run.count_of(stage, "state_written") if stage in grouped else None,
                    # If stages run together, the first one shows the figures of all.
                    run.seconds if stage == run.stage else None,
                    bytes_text(run.count("bytes_written")) if stage == run.stage else None,
                )
                for run in watch.runs()
                for stage in run.stages
            ],
        )

    def _last(self, watch: DataflowWatch, flow: Dataflow, tables: Tables, parts: Parts) -> None:
        """Drop the last documents, and compare what they touched with what they had to touch."""
        pages, before = parts[-1], [page for part in parts[:-1] for page in part]
        self._report.title(f"{len(pages)} more pages touch only the groups that they must")
        applied = self._drop(watch, parts, len(parts) - 1)
        judged = judge(flow, tables, runs=applied.runs, pages=pages, before=before)
        self._report.table(
            (
                "stage",
                "groups called",
                "expected",
                "groups held",
                "state records",
                "expected",
                "seconds",
            ),
            [tuple(asdict(one).values()) for one in judged],
        )
        for one in judged:
            claim = f"{one.stage} touched exactly what the {len(pages)} pages name"
            self._judged(claim, one.ok)
        self._report.line(f"  applied {applied.seconds:.2f} s after arrival", "dim")
        self.result["last"] = {
            "seconds": applied.seconds,
            "stages": [asdict(one) for one in judged],
        }
        self.result["runs"] = [
            {"stages": r.stages, "epoch": r.epoch, "seconds": r.seconds, "figures": dict(r.figures)}
            for r in watch.runs()
        ]

    def _checks(self, flow: Dataflow, tables: Tables, parts: Parts) -> None:
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
        self.result["checks"] = []
        for step in steps:
            with self._report.waiting("computing it again, without the service"):
                check = step()
            self._report.check(check)
            self._note(check.claim, check.ok)
            self.result["checks"].append(
                {"claim": check.claim, "records": check.records, "ok": check.ok}
            )

    def _end(self, service: ServiceProcess, tables: Tables) -> None:
        seconds = time.monotonic() - self._started
        self.result |= {"seconds": seconds, "failed": self.failed}
        say_farewell(
            self._report,
            self._options,
            service,
            folder=self._folder,
            tables=list(tables.values()),
            seconds=seconds,
        )

    def _judged(self, claim: str, ok: bool) -> None:
        self._report.judged(claim, ok)
        self._note(claim, ok)

    def _note(self, claim: str, ok: bool) -> None:
        if not ok:
            self.failed.append(claim)


def _sites(part: Sequence[Page]) -> str:
    """Name the largest sites of an increment, and how many more there are."""
    sizes = Counter(page.site for page in part)
    names = sorted(sizes, key=lambda site: (-sizes[site], site))
    more = len(names) - SITES_SHOWN
    return ", ".join(names[:SITES_SHOWN]) + (f" and {more} more" if more > 0 else "")
