"""How soon files are applied that come one by one, faster than one at a time is applied.

    python -m tests.bench.trickling_files --rate 10 --seconds 20
    python -m tests.bench.trickling_files --rate 50 --lines 100 --engine spark

A service in a process of its own, with default settings, counts URLs of small files that are
renamed into its drop folder at a steady rate. A file's delay is from its rename until a look-up
over REST shows that it is counted. What was measured is printed as JSON: delays in seconds, the
increments and runs that it took, and the processor's seconds of the service for each file.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.clean_up import CleanUp
from tests.bench.end_to_end.measured_service import NAME, MeasuredService, measured_service
from tests.bench.end_to_end.options import ServiceBenchOptions
from tests.bench.errors import BenchFailedError
from tests.bench.measurements.session_memory import session_cpu_seconds

_POLL_SECONDS = 0.02
_PATIENCE_SECONDS = 300.0


def measure(service: MeasuredService, *, rate: float, seconds: float, lines: int) -> dict[str, Any]:
    """Let files come, and return figures once all are counted.

    Raises:
        BenchFailedError: If the service falls behind by minutes.
    """
    service.rename_in(service.write_file(lines))
    service.wait_until_readable()  # its processes are started
    files = [service.write_file(lines) for _ in range(round(rate * seconds))]
    before, cpu = service.counted(), session_cpu_seconds(service.process_id)
    renamed, delays = list[float](), list[float]()
    begun = time.monotonic()
    while len(delays) < len(files):
        while len(renamed) < len(files) and time.monotonic() >= begun + len(renamed) / rate:
            service.rename_in(files[len(renamed)])
            renamed.append(time.monotonic())
        counted, now = service.counted() - before, time.monotonic()
        delays += [now - at for at in renamed[len(delays) : counted]]
        if now > begun + seconds + _PATIENCE_SECONDS:
            why = f"{len(delays)} of {len(files)} files were counted"
            raise BenchFailedError("trickling_files", why)
        time.sleep(_POLL_SECONDS)
    cpu = session_cpu_seconds(service.process_id) - cpu
    delays.sort()
    increments = service.client.get("dataflows", NAME, "increments", limit=1)["items"][0]
    (run,) = service.client.get("runs", dataflow=NAME, limit=1)["items"]
    return {
        "files": len(files),
        "rate": rate,
        "increments": increments["index"],
        "runs": run["epoch"],
        "delay_median": round(delays[len(delays) // 2], 3),
        "delay_p99": round(delays[int(len(delays) * 0.99)], 3),
        "delay_max": round(delays[-1], 3),
        "cpu_seconds_a_file": round(cpu / len(files), 4),
    }


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=10.0, help="files a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--lines", type=int, default=10, help="of each file")
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    parser.add_argument("--state-keys", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="where to work; removed afterwards")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="cbp-trickling-", dir=given.folder))
    options = ServiceBenchOptions(state_keys=given.state_keys, engine=given.engine)
    with (
        CleanUp(folder) as behind,
        measured_service(options, folder, behind.add_session) as service,
    ):
        figures = measure(service, rate=given.rate, seconds=given.seconds, lines=given.lines)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
