"""The command `cbp bench`: every candidate on the same increments; see `controller.bench`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["bench_command"]

Workload = Annotated[
    str, typer.Argument(help="url-count, crawl-queue, clustering or pagerank.", show_default=False)
]
StateKeys = Annotated[
    list[str],
    typer.Option(
        "--state-keys",
        "--nodes",
        help="Keys in state, or nodes of the graph; several, or a list with commas. By default "
        "1,000,000; 20,000 for clustering, 100,000 for pagerank.",
        show_default=False,
    ),
]
Increment = Annotated[
    list[str],
    typer.Option(
        "--increment",
        "--changed",
        help="Records, pages, or new links of the graph; several, or with commas. By default "
        "10,000; 100 for graphs.",
        show_default=False,
    ),
]
Edges = Annotated[
    int, typer.Option(help="Of the graph before the first increment; by default by its nodes.")
]
Threshold = Annotated[
    float, typer.Option(help="pagerank: change of a rank that affects a page; the mean is 1.")
]
Against = Annotated[
    list[str],
    typer.Option(
        "--against",
        help="merge, blackbox, scan, jobs, rewrite, streaming, streaming-python (two: "
        "streaming-python-apply and streaming-python-tws), duckdb, recompute; plain (clustering), "
        "broadcast (pagerank); with commas; '' for none. "
        "Of blackbox and scan also another form than the first: blackbox/arrow. "
        "By default merge,blackbox,streaming; blackbox for crawl-queue; "
        "plain,blackbox,recompute for clustering; broadcast,blackbox,recompute for pagerank.",
        show_default=False,
    ),
]
Keys = Annotated[str, typer.Option("--keys", help="uniform, zipf, or distinct keys of the state.")]
Form = Annotated[
    list[str],
    typer.Option("--form", help="How ours is written: groupwise, arrow, sql; several too."),
]
HitRates = Annotated[
    list[str],
    typer.Option(
        "--hit-rates",
        help="Instead of --increment: shares of the keys in state, such as 0.0001,0.01,1; "
        "each record is then another key.",
    ),
]
Age = Annotated[int, typer.Option(help="Increments before any is measured; shows growth.")]
Rounds = Annotated[int, typer.Option(help="Measured runs of each candidate.")]
Warmup = Annotated[int, typer.Option(help="Runs before the measured ones.")]
Grouping = Annotated[str, typer.Option(help="inner or outer state, ours and the black box's.")]
Master = Annotated[str, typer.Option(help="Of Spark, or none: in this process.")]
Memory = Annotated[str, typer.Option("--driver-memory", help="Of Spark's process.")]
Root = Annotated[Path | None, typer.Option(help="Make a folder in this one, and let it stay.")]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        help="Write machine, versions and results here. A result has workload (behind slashes what "
        "is not the default), candidate, form, state_keys, increment_records, seconds_median, "
        "seconds_all, floor_seconds, bytes_read, bytes_shuffled and bytes_written; and as extras "
        "bytes_broadcast, epochs, state_records and state_updated. With --soak results is empty, "
        "and soak has what was found.",
    ),
]
Picture = Annotated[Path | None, typer.Option(help="Draw the results here (PNG, SVG, PDF).")]
Epochs = Annotated[int, typer.Option(help="Of a soak: that many in a row.")]
Soak = Annotated[bool, typer.Option("--soak", help="Ours alone, many epochs in a row.")]

PublishEpochs = Annotated[int, typer.Option(help="Of a soak: epochs published together.")]


def bench_command(
    workload: Workload,
    state_keys: StateKeys = [],  # noqa: B006 - Typer only reads it
    increment: Increment = [],  # noqa: B006
    edges: Edges = 0,
    threshold: Threshold = 0.01,
    against: Against = [],  # noqa: B006
    hit_rates: HitRates = [],  # noqa: B006
    age: Age = 0,
    keys: Keys = "uniform",
    form: Form = ["groupwise"],  # noqa: B006
    rounds: Rounds = 5,
    warmup: Warmup = 2,
    seed: int = 0,
    grouping: Grouping = "inner",
    master: Master = "local[2]",
    driver_memory: Memory = "4g",
    root: Root = None,
    json_: JsonFile = None,
    picture: Picture = None,
    epochs: Epochs = 1000,
    soak: Soak = False,
    publish_epochs: PublishEpochs = 1,
) -> None:
    """Measure a workload, ours beside its peers, on the same increments."""
    # By name: the benchmark rests on the command line's parts, so these must not rest on it.
    bench = importlib.import_module("controller.bench")
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
        rounds=rounds,
        warmup=warmup,
        seed=seed,
        grouping=grouping,
        master=master,
        driver_memory=driver_memory,
        root=root,
        json_file=json_,
        picture=picture,
        epochs=epochs,
        soak=soak,
        publish_epochs=publish_epochs,
    )
    bench.run_bench(options)


def _names(given: Sequence[str]) -> tuple[str, ...]:
    """Return the parts of lists with commas, each once, in order."""
    parts = (part.strip() for one in given for part in one.split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


def _rates(given: Sequence[str]) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in _names(given))
    except ValueError as exc:
        raise typer.BadParameter(str(exc), param_hint="--hit-rates") from exc


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
