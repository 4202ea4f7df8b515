"""A Prometheus that holds two scrapes of a service, and answers expressions about them."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from controller.server.service_process import free_port
from tests.controller.world import until
from tests.machine import leave_out

__all__ = ["Prometheus", "holding"]

APART_SECONDS = 60
BY_PROMETHEUS = {"job": "cbp", "instance": "127.0.0.1:8420"}
"""Labels that a scrape gets by being scraped."""
ACCUMULATING = ("_total", "_bucket", "_count", "_sum")


class Prometheus:
    """Answers expressions as of the second scrape.

    Args:
        url: Where the server listens.
        at: When the second scrape was, in seconds since 1970.
    """

    def __init__(self, url: str, at: float) -> None:
        self._http, self._at = httpx.Client(base_url=url, trust_env=False, timeout=120), at

    def ready(self) -> bool:
        """Tell whether it answers."""
        try:
            return self._http.get("/-/ready").is_success
        except httpx.TransportError:
            return False

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression: `metric` has the labels, `value` the number."""
        parameters = {"query": expression, "time": str(self._at)}
        answer = self._http.get("/api/v1/query", params=parameters).json()
        assert answer["status"] == "success", f"{expression}: {answer}"
        return list(answer["data"]["result"])


@contextmanager
def holding(scrape: str, folder: Path) -> Iterator[Prometheus]:
    """Run a server that has nothing but this scrape, and before it one of empty counters."""
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            leave_out("promtool", f"no {program}; apt install --no-install-recommends prometheus")
    at = int(time.time()) - 600
    (folder / "scrapes").write_text(_two_scrapes(scrape, at))
    blocks = folder / "blocks"
    made = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "scrapes", str(blocks)]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    (folder / "prometheus.yaml").write_text("{}\n")
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus",
        "--config.file=prometheus.yaml",
        f"--storage.tsdb.path={blocks}",
        f"--web.listen-address={address}",
    ]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        prometheus = Prometheus(f"http://{address}", at)
        until(prometheus.ready)
        yield prometheus
    finally:
        server.kill()
        server.wait()


def _two_scrapes(scrape: str, at: int) -> str:
    """Return OpenMetrics: what accumulates begins with 0 a minute before."""
    lines = []
    for family in text_string_to_metric_families(scrape):
        for sample in family.samples:
            told = {**sample.labels, **BY_PROMETHEUS}
            labels = ",".join(f'{name}="{_quoted(text)}"' for name, text in told.items())
            before = 0.0 if sample.name.endswith(ACCUMULATING) else sample.value
            for moment, value in ((at - APART_SECONDS, before), (at, sample.value)):
                lines.append(f"{sample.name}{{{labels}}} {value!r} {moment}\n")
    return "".join(lines) + "# EOF\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
