"""Measures REST reads of many clients at a time, while files are applied."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO

from tests.bench.end_to_end.figures import Reads
from tests.bench.end_to_end.load_client import Plan
from tests.bench.end_to_end.measured_service import MeasuredService
from tests.bench.errors import BenchFailedError
from tests.bench.measurements.cpu_time import cpu_below

__all__ = ["measure_reads"]

_KEYS = 10_000
_POLL_SECONDS = 0.1
"""Seldom, since these questions are not counted among the reads."""

_MODULE = "tests.bench.end_to_end.load_client"
_COMMAND = (sys.executable, "-W", "ignore::RuntimeWarning", "-m", _MODULE)
_CONSTANT = (*_COMMAND, "constant")
_READER = "controller.server.readers.reader_process"
_LIMIT_SECONDS = 2.0
_START_SECONDS = 6.0


def measure_reads(
    service: MeasuredService,
    *,
    seconds: float,
    clients: int,
    rate: float,
    lines: int,
    step: Callable[[str], None],
) -> Reads:
    """Let clients read from a process of their own; meanwhile files are applied, one by one.

    Args:
        rate: Requests a second of all clients; 0 means as many as they can.

    Raises:
        BenchFailedError: If the clients' process fails.
    """
    step(f"{clients} clients read for {seconds:g} s")
    keys = service.urls.urls(service.urls.ids(0, _KEYS) % service.urls.state_keys)
    token = service.settings.read_token()
    assert token is not None, "the service has made its token"
    plan = Plan(
        host=service.settings.host,
        port=service.settings.port,
        token=token,
        reads=service.reads,
        keys=keys,
        clients=clients,
        seconds=seconds,
        rate=rate,
    )
    if service.settings.readers is None:  # readers start when they are needed
        with tempfile.TemporaryFile("w+", encoding="utf-8") as unread:
            _read_meanwhile(service, replace(plan, seconds=_START_SECONDS), lines, unread)
    # A file, not a pipe: nobody reads while the files are applied.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as answer:
        before = _cpu(service.process_id)
        runs, status = _read_meanwhile(service, plan, lines, answer)
        cpu = {kind: taken - before[kind] for kind, taken in _cpu(service.process_id).items()}
        if status:
            raise BenchFailedError("service", f"the readers ended with status {status}")
        answer.seek(0)
        result = json.load(answer)
    return Reads(
        clients,
        seconds,
        result["errors"],
        result["latencies"],
        runs,
        {**cpu, "clients": result["cpu_seconds"]},
        _client_limit(plan),
    )


def _cpu(service: int) -> dict[str, float]:
    """Return the seconds of the processor that a service and its readers have taken so far."""
    taken = {"service": 0.0, "readers": 0.0}
    for pid, seconds in cpu_below(service).items():
        taken["readers" if _READER in _command(pid) else "service"] += seconds
    return taken


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:  # it has ended
        return ""


def _client_limit(plan: Plan) -> float:
    """Return how many answers a second the clients read of a server that computes nothing."""
    with subprocess.Popen(_CONSTANT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None, "it is a pipe"
            port = int(server.stdout.readline())
            easy = replace(plan, host="127.0.0.1", port=port, seconds=_LIMIT_SECONDS, rate=0.0)
            document = json.dumps(asdict(easy))
            done = subprocess.run(
                _COMMAND, input=document, stdout=subprocess.PIPE, text=True, check=True
            )
        finally:
            server.kill()
    latencies = json.loads(done.stdout)["latencies"]
    return sum(map(len, latencies.values())) / _LIMIT_SECONDS


def _read_meanwhile(
    service: MeasuredService, plan: Plan, lines: int, answer: IO[str]
) -> tuple[int, int]:
    """Apply a file after the other until the readers end; return how many, and their status."""
    runs = 0
    with subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=answer, text=True) as child:
        assert child.stdin is not None, "it is a pipe"
        try:
            child.stdin.write(json.dumps(asdict(plan)))
            child.stdin.close()
            while child.poll() is None:
                service.rename_in(service.write_file(lines))
                service.wait_until_readable(_POLL_SECONDS)
                runs += 1
        except BaseException:
            child.kill()
            raise
    return runs, child.returncode
