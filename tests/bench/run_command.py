"""The commands `run` and `tables` of `python -m tests.bench`.

See `tests.bench`; the tables are written by `tests.bench.reports.markdown`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from controller.cli.options import AsJson
from controller.terminal import print_json

__all__ = ["bench_command", "bench_tables_command"]

Workload = Annotated[
    str,
    typer.Argument(
        help="url-count, crawl-queue, clustering or pagerank; service: a running service from the "
        "rename of a file to its result over REST, ingestion, and REST reads.",
        show_default=False,
    ),
]
StateKeys = Annotated[
    list[str],
    typer.Option(
        "--state-keys",
        "--nodes",
        help="Keys in state, or nodes of the graph. Repeat the option, or separate values by "
        "commas. Default: 1,000,000; clustering 20,000; pagerank 100,000; service 100,000.",
        show_default=False,
    ),
]
Increment = Annotated[
    list[str],
    typer.Option(
        "--increment",
        "--changed",
        help="Records, pages or new links of an increment. Repeat the option, or separate "
        "values by commas. Default: 10,000; graphs 100; service 1,000.",
        show_default=False,
    ),
]
Edges = Annotated[
    int,
    typer.Option(help="Edges before the first increment; 0 means 10 per node, 5 for clustering."),
]
Threshold = Annotated[
    float,
    typer.Option(help="For pagerank: smallest change of a rank that is passed on; the mean is 1."),
]
Against = Annotated[
    list[str],
    typer.Option(
        "--against",
        help="jobs, service, blackbox, scan, rewrite, recompute, polars, streaming, "
        "streaming-python (two: streaming-python-apply and streaming-python-tws), "
        "merge (merge-files, merge-vectors), duckdb (duckdb-key, duckdb-update, duckdb-parquet); "
        "plain (clustering), broadcast and paper (paper-a, paper-b; pagerank), "
        "scratch and warm (both); with commas; '' for none. "
        "To run blackbox or scan with another form, name the form: blackbox/arrow. "
        "By default jobs,streaming,duckdb,polars; blackbox for crawl-queue; "
        "plain,blackbox,scratch,warm for clustering; broadcast,paper,scratch,warm for pagerank.",
        show_default=False,
    ),
]
Keys = Annotated[
    str,
    typer.Option(
        "--keys",
        help="How keys are drawn: uniform, zipf, or distinct (from the state, none twice).",
    ),
]
Form = Annotated[
    list[str],
    typer.Option(
        "--form",
        help="Form of our translator: groupwise, arrow, sql; kept for crawl-queue, view for "
        "url-count. Repeatable.",
    ),
]
HitRates = Annotated[
    list[str],
    typer.Option(
        "--hit-rates",
        help="Instead of --increment: the share of the keys in state that an increment has, such "
        "as 0.0001,0.01,1. Each record has another key.",
    ),
]
Age = Annotated[
    int, typer.Option(help="Number of increments before the measured ones, to show growth.")
]
Error = Annotated[
    float, typer.Option(help="For pagerank: mean error at which NumPy stops. The mean rank is 1.")
]
FromEmpty = Annotated[
    bool, typer.Option("--from-empty", help="For crawl-queue: begin with an empty state.")
]
Rounds = Annotated[
    list[str],
    typer.Option(
        help="Measured runs of each candidate; give one number, or one per size. Default: 7.",
        show_default=False,
    ),
]
Isolated = Annotated[
    bool,
    typer.Option(
        "--own-processes/--one-process",
        help="Give each candidate its own process and Spark, or run all in this process.",
    ),
]
Warmup = Annotated[
    list[str],
    typer.Option(
        help="Runs before the measured ones; one number, or one per size. Default: 2; service 10.",
        show_default=False,
    ),
]
CandidateSeconds = Annotated[
    float,
    typer.Option(
        help="After this many seconds of runs of one size, a peer skips its other rounds of that "
        "size. One round is always measured. 0 means no limit."
    ),
]
Minutes = Annotated[
    float,
    typer.Option(help="Start no round after this many minutes; then compare. 0 means no limit."),
]
Grouping = Annotated[
    str, typer.Option(help="Grouping of our states and of the black box's: inner or outer.")
]
Master = Annotated[str, typer.Option(help="Spark master; `none` leaves Spark out.")]
Memory = Annotated[
    str, typer.Option("--driver-memory", help="Driver memory of each candidate's Spark.")
]
Root = Annotated[
    Path | None, typer.Option(help="Create the working folder in this one, and keep it.")
]
Prepared = Annotated[
    Path | None,
    typer.Option(
        help="Save first states in this folder, and reuse those of earlier calls. Use it with one "
        "version of the product only."
    ),
]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        help="Write machine, versions and results here. A result has workload (behind slashes what "
        "is not the default), candidate, form, state_keys, increment_records, seconds_median, "
        "seconds_all, floor_seconds, bytes_read, bytes_shuffled and bytes_written; and as extras "
        "bytes_broadcast, epochs, state_records, state_updated, cpu_seconds, cold_seconds, "
        "index_bytes, error, error_stale and cpu_seconds_all. With --soak results is empty, "
        "and soak has what was found; for service, the part service has it.",
    ),
]
Picture = Annotated[
    Path | None, typer.Option(help="Draw the results into this file (PNG, SVG, PDF).")
]
Epochs = Annotated[int, typer.Option(help="Number of consecutive epochs of a soak.")]
Soak = Annotated[bool, typer.Option("--soak", help="Run only cbp, for many consecutive epochs.")]

PublishEpochs = Annotated[
    int, typer.Option(help="Number of epochs that a soak publishes together.")
]

Files = Annotated[
    int, typer.Option(help="For service: files that are measured one after the other.", min=0)
]
Ingest = Annotated[
    float,
    typer.Option(help="For service: seconds of ingestion, in turn with Polars; 0 means none."),
]
BatchFiles = Annotated[int, typer.Option(help="For service: files of a round of ingestion.")]
BatchLines = Annotated[int, typer.Option(help="For service: lines of each of these files.")]
Reads = Annotated[
    float, typer.Option(help="For service: seconds of REST reads by all clients; 0 means none.")
]
Clients = Annotated[int, typer.Option(help="For service: connections that read at a time.")]
ReadRate = Annotated[
    float,
    typer.Option(
        help="For service: requests a second of all clients; 0 means as many as they can."
    ),
]
Backlog = Annotated[
    int,
    typer.Option(
        help="For service: files that wait at once, counted by two stages beside another source, "
        "in turn with Polars; 0 means none."
    ),
]
BacklogLines = Annotated[int, typer.Option(help="For service: lines of each of these files.")]
BacklogRounds = Annotated[int, typer.Option(help="For service: how often so many files come.")]
ServiceReaders = Annotated[
    int | None,
    typer.Option(
        "--readers",
        help="For service: processes that answer reads; by default as the service decides.",
        min=0,
        show_default=False,
    ),
]
ServiceEngine = Annotated[str, typer.Option("--engine", help="For service: spark or local.")]

Results = Annotated[
    list[Path],
    typer.Argument(
        help="Documents that --json wrote, the most important one first.",
        exists=True,
        show_default=False,
    ),
]
Into = Annotated[
    Path | None,
    typer.Option(
        help="Write the tables into this file, between its two lines `<!-- figures: ... -->`, "
        "instead of printing them.",
        exists=True,
    ),
]


def bench_command(
    workload: Workload,
    state_keys: StateKeys = [],  # noqa: B006 - Typer only reads it
    increment: Increment = [],  # noqa: B006
    edges: Edges = 0,
    threshold: Threshold = 0.01,
    error: Error = 1e-4,
    from_empty: FromEmpty = False,
    against: Against = [],  # noqa: B006
    hit_rates: HitRates = [],  # noqa: B006
    age: Age = 0,
    keys: Keys = "uniform",
    form: Form = ["groupwise"],  # noqa: B006
    rounds: Rounds = [],  # noqa: B006
    warmup: Warmup = [],  # noqa: B006
    candidate_seconds: CandidateSeconds = 120.0,
    minutes: Minutes = 0.0,
    seed: int = 0,
    grouping: Grouping = "inner",
    master: Master = "local[2]",
    driver_memory: Memory = "6g",
    isolated: Isolated = True,
    root: Root = None,
    prepared: Prepared = None,
    json_: JsonFile = None,
    picture: Picture = None,
    epochs: Epochs = 1000,
    soak: Soak = False,
    publish_epochs: PublishEpochs = 1,
    files: Files = 20,
    ingest: Ingest = 10.0,
    batch_files: BatchFiles = 20,
    batch_lines: BatchLines = 5_000,
    reads: Reads = 10.0,
    clients: Clients = 50,
    read_rate: ReadRate = 0.0,
    readers: ServiceReaders = None,
    backlog: Backlog = 0,
    backlog_lines: BacklogLines = 100,
    backlog_rounds: BacklogRounds = 1,
    engine: ServiceEngine = "spark",
) -> None:
    """Measure our engine and its peers on the same increments of a workload, or the service."""
    # Imported here: `cbp --help` does not wait for the benchmark to load.
    from tests import bench

    if workload == bench.SERVICE:
        bench.run_service_bench(
            bench.ServiceBenchOptions(
                state_keys=_one_size("--state-keys", state_keys, 100_000),
                lines=_one_size("--increment", increment, 1_000),
                files=files,
                warmup=_one_size("--warmup", warmup, 10),
                ingest_seconds=ingest,
                batch_files=batch_files,
                batch_lines=batch_lines,
                read_seconds=reads,
                clients=clients,
                read_rate=read_rate,
                readers=readers,
                backlog=backlog,
                backlog_lines=backlog_lines,
                backlog_rounds=backlog_rounds,
                form=_one_form(form),
                engine=engine,
                seed=seed,
                root=root,
                json_file=json_,
            )
        )
        return
    peers = () if soak else bench.peers_by_default(workload)
    keys_usual, records_usual = bench.sizes_by_default(workload)
    options = bench.BenchOptions(
        workload=workload,
        against=_names(against) if against else peers,
        keys="distinct" if hit_rates and keys == "uniform" else keys,
        hit_rates=_rates(hit_rates),
        age=age,
        forms=_names(form),
        state_keys=_sizes("--state-keys", state_keys) if state_keys else (keys_usual,),
        increment=_sizes("--increment", increment) if increment else (records_usual,),
        edges=edges,
        threshold=threshold,
        error=error,
        from_empty=from_empty,
        rounds=_sizes("--rounds", rounds) if rounds else (7,),
        warmup=_sizes("--warmup", warmup) if warmup else (2,),
        candidate_seconds=candidate_seconds,
        minutes=minutes,
        seed=seed,
        grouping=grouping,
        master=master,
        driver_memory=driver_memory,
        isolated=isolated,
        root=root,
        prepared=prepared,
        json_file=json_,
        picture=picture,
        epochs=epochs,
        soak=soak,
        publish_epochs=publish_epochs,
    )
    bench.run_bench(options)


def bench_tables_command(results: Results, into: Into = None, json_: AsJson = False) -> None:
    """Format the documents of `python -m tests.bench run --json` as Markdown tables."""
    from tests import bench

    tables = bench.markdown({path.stem: _document(path) for path in results})
    if json_:
        print_json({"markdown": tables})
    elif into is None:
        typer.echo(tables, nl=False)
    if into is None:
        return
    try:
        text = bench.placed(into.read_text(encoding="utf-8"), tables)
    except ValueError as exc:
        message = f"{into}: {exc}"
        raise typer.BadParameter(message, param_hint="--into") from exc
    into.write_text(text, encoding="utf-8")


def _document(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        message = f"{path}: {exc}"
        raise typer.BadParameter(message, param_hint="RESULTS") from exc
    if not (isinstance(content, dict) and isinstance(content.get("results"), list)):
        message = f"{path}: no document of python -m tests.bench"
        raise typer.BadParameter(message, param_hint="RESULTS")
    return content


def _names(given: Sequence[str]) -> tuple[str, ...]:
    """Return the parts of lists with commas, each once, in order."""
    parts = (part.strip() for one in given for part in one.split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


def _rates(given: Sequence[str]) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in _names(given))
    except ValueError as exc:
        raise typer.BadParameter(str(exc), param_hint="--hit-rates") from exc


def _one_form(given: Sequence[str]) -> str:
    forms = _names(given)
    if len(forms) != 1:
        message = f"the service is measured with one form, got {len(forms)}"
        raise typer.BadParameter(message, param_hint="--form")
    return forms[0]


def _one_size(option: str, given: Sequence[str], usual: int) -> int:
    """Return the only size that was given, or the usual one."""
    sizes = _sizes(option, given) if given else (usual,)
    if len(sizes) != 1:
        message = f"the service is measured with one size, got {len(sizes)}"
        raise typer.BadParameter(message, param_hint=option)
    return sizes[0]


def _sizes(option: str, given: Sequence[str]) -> tuple[int, ...]:
    """Return sizes; `10_000` and `1e6` are numbers too."""
    sizes = []
    for part in _names(given):
        try:
            size = int(part) if "e" not in part.lower() else round(float(part))
        except (ValueError, OverflowError) as exc:
            message = f"{part!r} is no number"
            raise typer.BadParameter(message, param_hint=option) from exc
        sizes.append(size)
    return tuple(sizes)
