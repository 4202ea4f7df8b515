"""The command `python -m tests.bench soak`: thousands of small runs; does anything grow?"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import structlog
import typer

from controller.terminal import print_table, print_text
from tests.bench.errors import SoakGrewError

__all__ = ["soak_command"]

Runs = Annotated[int, typer.Option(min=40, help="Number of small runs, one after the other.")]
Root = Annotated[
    Path | None, typer.Option(help="Create the working folder in this one, and keep it.")
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the samples to this file.")]
GrowthMax = Annotated[
    float,
    typer.Option(
        min=1.0,
        help="Fail if memory, open files or seconds per run grow by more than this factor.",
    ),
]
DiskMax = Annotated[
    float,
    typer.Option(
        "--disk-per-run-max",
        min=0,
        help="With 10,000 runs or more: fail if a run leaves more bytes than this on disk.",
    ),
]
Picture = Annotated[
    Path | None, typer.Option(help="Draw the figures into this file (PNG, SVG, PDF).")
]


def soak_command(
    runs: Runs = 10_000,
    root: Root = None,
    seed: int = 0,
    json_: JsonFile = None,
    picture: Picture = None,
    growth_max: GrowthMax = 1.2,
    disk_per_run_max: DiskMax = 2000,
) -> None:
    """Run many small increments through a whole service; fail if anything grows.

    The service runs in this process: SQLite, the engine without Spark, no network, the shortest
    retention. One stage with 2 buckets counts URLs. Each run takes one uploaded file of 20
    records, with up to 500 different URLs over all files, from its claim to housekeeping.

    The last tenth of the runs is compared with the tenth in the middle. The exit status is 1 if
    memory, open files or seconds per run grew by more than --growth-max, or if runs left files
    on disk, or more bytes than --disk-per-run-max. Some hundred bytes for each accepted file
    stay for good.
    """
    # Imported here: `cbp --help` does not wait for the benchmark to load.
    from tests import bench

    if picture is not None:
        bench.require_matplotlib()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    folder = Path(tempfile.mkdtemp(prefix="cbp-soak-", dir=root))
    try:
        with typer.progressbar(length=runs, label="runs") as bar:
            result = bench.service_soak(folder, runs, seed=seed, on_run=lambda _: bar.update(1))
    finally:
        if root is None:
            shutil.rmtree(folder, ignore_errors=True)
    if json_ is not None:
        json_.write_text(json.dumps(result.to_json(), indent=1))
    if picture is not None:
        bench.draw_service_soak(result, picture)
    middle, last = result.samples[len(result.samples) // 2], result.samples[-1]
    rows = [
        (words, getattr(middle, name), getattr(last, name), f"x {result.growth[name]:.2f}")
        for name, words in bench.FIGURES.items()
    ]
    print_table(("figure", f"after {middle.runs}", f"after {last.runs}", "growth"), rows, empty="")
    print_text("growth: median of the last tenth of the runs over that of the tenth in the middle")
    print_text(
        f"disk: {result.disk_bytes_per_run:.0f} bytes and {result.disk_files_per_run:.2f} files "
        "more per run, between these"
    )
    grown = bench.grown(result, growth_max) | bench.left_behind(result, disk_per_run_max)
    if grown:
        raise SoakGrewError(result.runs, grown, growth_max, disk_per_run_max)
