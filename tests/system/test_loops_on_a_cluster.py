"""A loop in two tasks on a cluster: its driver is killed, it is cancelled, its service is stopped.

A service, a master and two workers with a slot each, all real processes, so a loop in two tasks
needs both executors. One of its tasks stops in the middle, for good, at a place that a record
names, so no time decides where; the other one waits for it in the exchange. By `-m soak`: each test
starts six JVMs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cbp.engine.storage.table_names import state_table, superstep_folder
from controller.client.service_client import ServiceClient
from controller.demo.run import by_polars
from tests.authored import install, write
from tests.system.processes import REPOSITORY, Instance, SparkCluster, until

pytestmark = [
    pytest.mark.system,
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.timeout(900),
]

STEPS, MANY = 30, 20_001
"""Supersteps of the loop; records that are worth a second task."""

ROUNDS = '''
import os
import signal
from pathlib import Path

from cbp import Input, Loopback, Translate, View


class Rounds(Translate):
    """Hand a number on until it is 0; at 10, if there is a file of the name, do what it says.

    That is to kill the process group whose number is in it, if there is one, and then to wait for
    ever. Each process that hands a number on leaves its own number beside the file.
    """

    items = Input("k BIGINT, n BIGINT, file STRING", route_by="k")
    on = Loopback("k BIGINT, n BIGINT, file STRING", route_by="k", supersteps=100)
    calls = View("k BIGINT, calls BIGINT", key="k")

    def translate(self, key, group, out):
        for record in (*group.items, *group.on):
            if record.file:
                Path(f"{record.file}.{os.getpid()}").touch()
            if record.n == 10 and os.path.exists(record.file):
                victim = Path(record.file).read_text()
                os.unlink(record.file)
                if victim:
                    os.killpg(int(victim), signal.SIGKILL)
                while True:
                    signal.pause()
            if record.n:
                out.on(k=key.k + 1, n=record.n - 1, file=record.file)
        out.calls(k=key.k, calls=1 + sum(row.calls for row in group.calls))
'''


class Loop:
    """The service, its cluster, and the loop.

    Args:
        folder: Of all of them.
    """

    def __init__(self, folder: Path) -> None:
        author = folder / "author"
        write(author, {"rounds_flows/__init__.py": "", "rounds_flows/rounds.py": ROUNDS})
        install(author, "rounds_flows", {"rounds": "rounds_flows.rounds:Rounds"})
        path = os.pathsep.join([str(REPOSITORY), str(author)])
        self._folder, self._files = folder, 0
        self.cluster = SparkCluster(folder, cores=1, hosts=("127.0.0.1", "127.0.0.2"))
        self.service = Instance(
            folder,
            "one",
            engine="spark",
            spark_master=self.cluster.url,
            spark_driver_memory="512m",
            spark_conf={"spark.executor.memory": "512m", "spark.executorEnv.PYTHONPATH": path},
            drain_seconds=5,
            environment={
                **self.cluster.environment,
                "PYTHONPATH": path,
                "CBP_LOOP_TASKS_MAX": "2",
                "CBP_SUPERSTEP_LOG_SECONDS": "0",
            },
            allowed_packages=("rounds_flows",),
        )

    def begin(self) -> None:
        """Start the service, and register the loop."""
        self.start()
        stage = {"translator": "rounds", "inputs": {"items": "items"}, "buckets": 2}
        document = {
            "name": "rounds",
            "sources": {"items": {"schema": "k BIGINT, n BIGINT, file STRING"}},
            "stages": {"rounds": stage},
        }
        with ServiceClient(self.service.settings) as client:
            content = json.dumps(document).encode()
            client.post("dataflows", content=content, content_type="application/json")

    def start(self) -> None:
        """Start the service, and wait until it is ready."""
        self.service.start()
        self.service.wait()

    def drop(self, victim: str = "") -> Path:
        """Let a loop begin that stops in the middle; return the file by which it does.

        Args:
            victim: The process group that it kills there.
        """
        file = self._folder / f"order-{self._files}"
        file.write_text(victim, encoding="utf-8")
        rows = [{"k": k, "n": STEPS if k == 0 else 0, "file": ""} for k in range(MANY)]
        rows[0]["file"] = str(file)
        incoming = self.service.settings.drop_root / "rounds" / "items" / "incoming"
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (incoming / f"{self._files}.jsonl").write_text(text, encoding="utf-8")
        self._files += 1
        return file

    def get(self, *path: str) -> Any:
        """Return what the service answers."""
        with ServiceClient(self.service.settings) as client:
            return client.get(*path)

    def post(self, *path: str) -> None:
        """Ask the service for something."""
        with ServiceClient(self.service.settings) as client:
            client.post(*path)

    def newest_run(self) -> Mapping[str, Any]:
        """Return the run that began last."""
        with ServiceClient(self.service.settings) as client:
            runs = client.get_pairs("runs", query=[("dataflow", "rounds")])["items"]
        return dict(runs[0])

    def stopped_in_the_middle(self, file: Path) -> set[int]:
        """Wait until a task has stopped in the middle; return the processes of both tasks."""
        until(lambda: not file.exists(), "the loop did not come to its middle")
        return {int(path.suffix[1:]) for path in file.parent.glob(f"{file.name}.*")}

    def check(self, epochs: int) -> Mapping[str, float]:
        """Wait for the last of some epochs; return the figures of its run.

        Each group was called once an epoch, and once more where a number was handed to it. No
        snapshot of a loop is left.
        """
        until(
            lambda: self.get("dataflows", "rounds")["stages"][0]["epoch"] == epochs,
            "the loop did not end",
        )
        expected = [(k, epochs * (1 + (0 < k <= STEPS))) for k in range(MANY)]
        tables = Path(self.service.settings.tables) / "rounds"
        calls = str(tables / state_table("rounds", "calls"))
        until(
            lambda: sorted(by_polars(calls, ["k", "calls"]).rows()) == expected,
            "groups were not called as often as they should be",
        )
        logs = f"{superstep_folder('rounds')}/**/*.log"
        until(lambda: not [*tables.glob(logs)], "snapshots are left")
        return dict(self.newest_run()["figures"])


def gone(processes: Iterable[int]) -> bool:
    """Return whether none of these processes lives; so none holds a port or a file."""
    return not any(Path(f"/proc/{pid}").exists() for pid in processes)


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    """Give a service with the loop on a cluster; all is killed at the end."""
    one = Loop(tmp_path)
    try:
        one.begin()
        yield one
    finally:
        one.service.kill()
        one.cluster.close()


def test_a_driver_that_is_killed_is_followed_by_one_that_goes_on(loop: Loop) -> None:
    """The next one takes up the loop from the log of its supersteps, in two tasks; it is exact.

    The tasks of the killed one, which wait for each other, end: no process of it is left.
    """
    service = loop.service
    until(lambda: len(loop.cluster.executors()) == 2, "the cluster has not two executors")
    executors = loop.cluster.executors()
    processes = loop.stopped_in_the_middle(loop.drop(victim=str(service.pid)))
    assert len(processes) == 2, "a task in each executor"
    until(lambda: not service.answers_at_all(), "the loop did not kill its service")
    service.kill()
    until(lambda: gone({*processes, *executors}), "a task waits for a driver that is gone")
    loop.start()
    figures = loop.check(1)
    assert figures["tasks"] == 2
    assert STEPS - 11 <= figures["supersteps_before"] <= STEPS - 10, figures
    assert figures["supersteps"] == STEPS + 1
    assert service.stop() == 0
    until(lambda: not loop.cluster.executors(), "an executor outlives its application")
    assert not loop.cluster.python_workers()


def test_a_loop_that_is_cancelled_or_stopped_frees_its_slots(loop: Loop) -> None:
    """While its tasks wait for each other: by an operator, and by a service that is stopped.

    Both tasks end, and a later run has two tasks again. A pause lets a loop turn.
    """
    processes = loop.stopped_in_the_middle(loop.drop())
    loop.post("dataflows", "rounds", "pause")
    run = loop.newest_run()
    assert run["status"] == "INTENDED", run
    loop.post("runs", run["id"], "cancel")
    until(lambda: loop.newest_run()["status"] == "FAILED", "the run was not cancelled")
    assert loop.newest_run()["error"]["error_code"] == "run_cancelled"
    until(lambda: gone(processes), "a task waits in the exchange of a cancelled loop")
    assert len(loop.cluster.executors()) == 2, "only workers ended"
    loop.post("dataflows", "rounds", "resume")
    loop.post("dataflows", "rounds", "stages", "rounds", "retry")
    figures = loop.check(1)
    assert (figures["tasks"], figures["supersteps"]) == (2, STEPS + 1)
    processes = loop.stopped_in_the_middle(loop.drop())
    executors = loop.cluster.executors()
    assert loop.service.stop() == 0
    until(lambda: gone({*processes, *executors}), "a task of a stopped service is left")
    loop.start()
    figures = loop.check(2)
    assert (figures["tasks"], figures["supersteps"]) == (2, STEPS + 1)
