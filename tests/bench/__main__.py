"""Measures the product beside its peers: `python -m tests.bench run url-count`, from a checkout.

Also `tables` (Markdown of what was measured) and `soak` (thousands of runs: does anything grow?).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from cbp.errors import CbpError
from controller.terminal import print_error
from tests.bench.run_command import bench_command, bench_tables_command
from tests.bench.soak_command import soak_command

program = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)
program.command("run")(bench_command)
program.command("tables")(bench_tables_command)
program.command("soak")(soak_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command, and end the process with its status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        program(given, prog_name="python -m tests.bench")
    except CbpError as error:
        print_error(error, as_json="--json" in given)
        sys.exit(1)


if __name__ == "__main__":
    # Candidates run in processes of their own, and on Spark's workers.
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    main()
