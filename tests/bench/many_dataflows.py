"""What a service costs that has many dataflows in which nothing happens, and how fast one is then.

    python -m tests.bench.many_dataflows --dataflows 10,160,1000 --engine local

Each dataflow has one source and five stages that read it. For each number of dataflows:
seconds of a registration, of the processor in an idle minute, of `cbp status` (and of the processor
in the service for it), and from a file's rename into the last dataflow's folder to its first
stage's record over REST. A line of JSON is printed for each. On a busy machine the processor's
seconds say more than the others.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cbp.client import Client
from controller.server.service_process import ServiceProcess, free_port, settings_of
from controller.settings import Settings
from tests.bench.measurements.session_memory import session_cpu_seconds

STAGES = 5


def document(number: int) -> dict[str, Any]:
    """Return stages that keep the last record of each key."""
    parameters = {"schema": "url STRING, n BIGINT", "key": "url"}
    return {
        "name": f"idle{number}",
        "sources": {"urls": {"schema": "url STRING, n BIGINT", "format": "jsonl"}},
        "stages": {
            f"s{stage}": {
                "translator": "latest",
                "parameters": parameters,
                "inputs": {"rows": "urls"},
            }
            for stage in range(STAGES)
        },
    }


def measure(folder: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Register dataflows up to each number, and measure the service with so many."""
    settle_seconds = Settings.model_fields["settle_seconds"].default
    settings = settings_of(
        folder, port=free_port(), engine=options.engine, settle_seconds=settle_seconds
    )
    process = ServiceProcess(settings, log=folder / "service.log")
    try:
        process.wait_until_ready()
        token = (folder / "token").read_text().strip()
        with Client(settings.url, token=token) as client:
            registered = 0
            for number in options.dataflows:
                yield _with(number, range(registered, number), client, process, options)
                registered = number
    finally:
        process.stop()


def _with(
    number: int, new: range, client: Client, process: ServiceProcess, options: argparse.Namespace
) -> dict[str, Any]:
    root = process.settings.root
    registrations = list[float]()
    for one in new:
        begun = time.perf_counter()
        client.register(document(one))
        registrations.append(time.perf_counter() - begun)
    time.sleep(options.rest_seconds)
    cpu, begun = session_cpu_seconds(process.pid), time.perf_counter()
    time.sleep(options.idle_seconds)
    idle = (session_cpu_seconds(process.pid) - cpu) * 60 / (time.perf_counter() - begun)
    status = [_status(process) for _ in range(options.rounds)]
    delays = [_delay(client, root, new[-1], turn, number) for turn in range(options.files)]
    return {
        "dataflows": number,
        "load": os.getloadavg()[0],
        "registration_seconds": round(statistics.median(registrations), 3),
        "idle_cpu_seconds_a_minute": round(idle, 2),
        "status_seconds": round(statistics.median(one for one, _ in status), 2),
        "status_cpu_seconds_in_service": round(statistics.median(one for _, one in status), 2),
        "readable_seconds": round(statistics.median(delays), 3),
        "readable_seconds_max": round(max(delays), 3),
    }


def _status(process: ServiceProcess) -> tuple[float, float]:
    """Return the seconds of `cbp status`, and those of the processor in the service."""
    settings = process.settings
    environment = os.environ | {"CBP_ROOT": str(settings.root), "CBP_PORT": str(settings.port)}
    cpu, begun = session_cpu_seconds(process.pid), time.perf_counter()
    command = [sys.executable, "-m", "controller.cli", "status"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.perf_counter() - begun, session_cpu_seconds(process.pid) - cpu


def _delay(client: Client, root: Path, dataflow: int, turn: int, number: int) -> float:
    """Rename a file of a thousand keys in; return the seconds until a record of it is read."""
    name = document(dataflow)["name"]
    value = number * 1000 + turn
    staged = root / "staged.jsonl"
    staged.write_text("".join(f'{{"url": "/{key}", "n": {value}}}\n' for key in range(1000)))
    begun = time.perf_counter()
    staged.rename(root / "drop" / name / "urls" / "incoming" / f"{value}.jsonl")
    while client.look_up(name, "s0.latest", url="/5") != [{"url": "/5", "n": value}]:
        time.sleep(0.01)
    return time.perf_counter() - begun


def main() -> None:
    """Read the arguments, measure, print a line for each number of dataflows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    numbers = "numbers of dataflows, rising, with commas between"
    parser.add_argument("--dataflows", default="10,160,1000", help=numbers)
    parser.add_argument("--engine", default="local", choices=("local", "spark"))
    parser.add_argument("--files", type=int, default=20, help="files to rename in")
    parser.add_argument("--rounds", type=int, default=5, help="calls of cbp status")
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    parser.add_argument("--rest-seconds", type=float, default=20.0, help="between the parts")
    options = parser.parse_args()
    options.dataflows = sorted(int(one) for one in options.dataflows.split(","))
    with tempfile.TemporaryDirectory() as folder:
        for figures in measure(Path(folder), options):
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
