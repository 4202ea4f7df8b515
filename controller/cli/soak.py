"""The command `cbp soak`: does thousands of small runs, and checks whether anything grows."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import structlog
import typer

from controller.cli.errors import SoakGrewError
from controller.terminal import print_table, print_text

__all__ = ["soak_command"]

Runs = Annotated[int, typer.Option(min=40, help="Small runs, one after the other.")]
Root = Annotated[Path | None, typer.Option(help="Make a folder in this one, and let it stay.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the samples here.")]
GrowthMax = Annotated[
    float,
    typer.Option(
        min=1.0,
        help="Fail when memory, open files or seconds per run grow more than this.",
    ),
]
DiskMax = Annotated[
    float,
    typer.Option(
        "--disk-per-run-max",
        min=0,
        help="Fail when 10,000 runs or more leave more bytes than this on disk, each.",
    ),
]
Picture = Annotated[Path | None, typer.Option(help="Draw the figures here (PNG, SVG, PDF).")]


def soak_command(
    runs: Runs = 10_000,
    root: Root = None,
    seed: int = 0,
    json_: JsonFile = None,
    picture: Picture = None,
    growth_max: GrowthMax = 1.2,
    disk_per_run_max: DiskMax = 2000,
) -> None:
    """Run many small increments through a whole service; fail if anything grows with them.

    The workload: files of 20 records with one of 500 URLs each, one a run, dropped by upload; a
    dataflow of one stage that counts them, with 2 buckets, state and an output table. The whole
    way of a file, in this process: claim, increment, run, record, publication, commit and
    house-keeping, on the engine without Spark, on SQLite, without a network, with the shortest
    retention, of the output too. Compared are the last tenth of the runs and the tenth in the
    middle. Status 1 when memory, open files or seconds per run grew, or when runs left more on disk
    than some hundred bytes for each accepted file, which stay for good, or any files.
    """
    # Imported here: `cbp --help` does not wait for the benchmark to load.
    from controller import bench

    if picture is not None:
        bench.require_matplotlib()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    folder = Path(tempfile.mkdtemp(prefix="cbp-soak-", dir=root))
    try:
        with typer.progressbar(length=runs, label="runs") as bar:
            found = bench.service_soak(folder, runs, seed=seed, on_run=lambda _: bar.update(1))
    finally:
        if root is None:
            shutil.rmtree(folder, ignore_errors=True)
    if json_ is not None:
        json_.write_text(json.dumps(found.to_json(), indent=1))
    if picture is not None:
        bench.draw_service_soak(found, picture)
    middle, last = found.samples[len(found.samples) // 2], found.samples[-1]
    rows = [
        (words, getattr(middle, name), getattr(last, name), f"x {found.growth[name]:.2f}")
        for name, words in bench.FIGURES.items()
    ]
    print_table(("figure", f"after {middle.runs}", f"after {last.runs}", "growth"), rows, empty="")
    print_text("growth: median of the last tenth of the runs over that of the tenth in the middle")
    print_text(
        f"disk: {found.disk_bytes_per_run:.0f} bytes and {found.disk_files_per_run:.2f} files "
        "more per run, between these"
    )
    grown = bench.grown(found, growth_max) | bench.left_behind(found, disk_per_run_max)
    if grown:
        raise SoakGrewError(found.runs, grown, growth_max, disk_per_run_max)
