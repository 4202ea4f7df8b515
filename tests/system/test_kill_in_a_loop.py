"""`kill -9` of the whole service between two supersteps: the next one goes on from the log.

The worker itself kills its service, once a loop has come to a place that a record names. So no time
decides where it dies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.client.service_client import ServiceClient
from tests.authored import install, write
from tests.system.processes import REPOSITORY, Instance, until

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

STEPS = 30
ROUNDS = '''
import os
import signal
from pathlib import Path

from cbp import Input, Loopback, Translate, View


class Rounds(Translate):
    """Hand a number on until it is 0; at 10, kill the process that a file names, if it is there."""

    items = Input("k BIGINT, n BIGINT, file STRING", route_by="k")
    on = Loopback("k BIGINT, n BIGINT, file STRING", route_by="k", supersteps=100)
    calls = View("k BIGINT, calls BIGINT", key="k")

    def translate(self, key, group, out):
        for record in (*group.items, *group.on):
            file = Path(record.file)
            if record.n == 10 and file.exists():
                service = int(file.read_text())
                file.unlink()
                os.killpg(service, signal.SIGKILL)
            if record.n:
                out.on(k=key.k + 1, n=record.n - 1, file=record.file)
        out.calls(k=key.k, calls=1 + sum(row.calls for row in group.calls))


class Nested(Rounds):
    """The same, and what waits for it: each group leaves a message for itself that comes last."""

    late = Loopback("k BIGINT, n BIGINT", route_by="k", supersteps=100)
    on = Loopback(
        "k BIGINT, n BIGINT, file STRING", route_by="k", supersteps=100, inside="late"
    )

    def translate(self, key, group, out):
        if [*group.late]:
            out.calls(k=key.k, calls=100 + sum(row.calls for row in group.calls))
        else:
            super().translate(key, group, out)
            out.late(k=key.k, n=1)
'''


@pytest.fixture(
    params=["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.soak])]
)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Instance]:
    """Give a service that offers `rounds`, and logs each superstep; it is killed at the end."""
    folder = tmp_path / "author"
    write(folder, {"rounds_flows/__init__.py": "", "rounds_flows/rounds.py": ROUNDS})
    stages = {"rounds": "rounds_flows.rounds:Rounds", "nested": "rounds_flows.rounds:Nested"}
    install(folder, "rounds_flows", stages)
    instance = Instance(
        tmp_path,
        "one",
        engine=request.param,
        environment={
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(folder)]),
            "CBP_SUPERSTEP_LOG_SECONDS": "0",
        },
        allowed_packages=("rounds_flows",),
    )
    yield instance
    instance.kill()


@pytest.mark.parametrize("translator", ["rounds", "nested"])
def test_a_loop_goes_on_after_its_service_was_killed(
    translator: str, service: Instance, tmp_path: Path
) -> None:
    """Restart alone: every group was called once, and the supersteps before were not repeated.

    What waited for the inner loop is there, too, and comes when that is at rest.
    """
    nested = translator == "nested"
    service.start()
    service.wait()
    stage = {"translator": translator, "inputs": {"items": "items"}, "buckets": 2}
    document = {
        "name": "rounds",
        "sources": {"items": {"schema": "k BIGINT, n BIGINT, file STRING"}},
        "stages": {"rounds": stage},
    }
    with ServiceClient(service.settings) as client:
        content = json.dumps(document).encode()
        client.post("dataflows", content=content, content_type="application/json")
    victim = tmp_path / "victim"
    victim.write_text(str(service.pid), encoding="utf-8")
    record = {"k": 0, "n": STEPS, "file": str(victim)}
    incoming = service.settings.drop_root / "rounds" / "items" / "incoming"
    (incoming / "a.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    until(lambda: not service.answers_at_all(), "the loop did not kill its service")
    assert not victim.exists()
    service.kill()
    service.start()
    service.wait()
    with ServiceClient(service.settings) as client:
        until(
            lambda: client.get("dataflows", "rounds")["stages"][0]["epoch"] == 1,
            "the loop did not end",
        )
        figures = client.get_pairs("runs", query=[("dataflow", "rounds")])["items"][0]["figures"]
        assert figures["supersteps"] == STEPS + 1 + nested
        assert figures["supersteps_before"] == STEPS - 10
        records = client.get("dataflows", "rounds", "flows", "rounds.calls", "records")["items"]
    calls = 101 if nested else 1
    expected = [(k, calls) for k in range(STEPS + 1)]
    assert sorted((one["k"], one["calls"]) for one in records) == expected
