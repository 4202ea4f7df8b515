"""Play many seeds: `python -m tests.service --seeds 50 --from 0`."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import traceback
from pathlib import Path

import structlog

from tests.service.play import play


def main() -> int:
    """Play the seeds; return 1 where one failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--engine", choices=["local", "spark"], default="local")
    given = parser.parse_args()
    sys.dont_write_bytecode = True
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    failed = []
    for seed in range(given.first, given.first + given.seeds):
        with tempfile.TemporaryDirectory() as root:
            try:
                actual = play(Path(root), seed, engine=given.engine)
            except Exception:
                traceback.print_exc()
                failed.append(seed)
            else:
                print(f"seed {seed}: version {actual.version}, {actual.counts}", flush=True)
    print(f"{given.seeds} dataflows; failed: {failed or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
