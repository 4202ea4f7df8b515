"""Several controllers on one PostgreSQL, each behind a wire of its own, with Spark or without."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.conformance.postgres import PostgresMissingError, PostgresServer
from tests.machine import needs, needs_postgres_driver
from tests.system.processes import Instance, SparkCluster, until
from tests.system.wire import Wire
from tests.system.workload import Workload

__all__ = ["TAKE_OVER_SECONDS_MAX", "Deployment"]

TAKE_OVER_SECONDS_MAX = 10.0


class Deployment:
    """Instances on one database: two and a cluster, or three without Spark.

    Args:
        root: Folder of all of them.
        stack: Ends them.
        spark: Whether their engine is Spark, on a standalone cluster.
        settings: More settings of every instance.

    Attributes:
        wires: By name of instance, its connection to the database.
        take_overs: Seconds from each leader's death or stop until another one led.
        first_records: The same until a record of a run stood under another one's epoch.
    """

    def __init__(self, root: Path, stack: ExitStack, *, spark: bool, **settings: Any) -> None:
        needs_postgres_driver()
        with needs("postgres", PostgresMissingError):
            self.postgres = PostgresServer(durable=True)
        stack.callback(self.postgres.close)
        self.postgres.start()
        self.cluster = SparkCluster(root, cores=2) if spark else None
        common: dict[str, Any] = {
            "spark_driver_memory": "512m",
            "engine": "local",
            "drain_seconds": 10,
            **settings,
        }
        if self.cluster is not None:
            stack.callback(self.cluster.close)
            common["engine"], common["spark_master"] = "spark", self.cluster.url
            common["environment"] = self.cluster.environment
            common["spark_conf"] = {"spark.cores.max": "1", "spark.executor.memory": "512m"}
        self.wires: dict[str, Wire] = {}
        self.instances: list[Instance] = []
        for name in ("a", "b") if spark else ("a", "b", "c"):
            wire = self.wires[name] = Wire(self.postgres.socket)
            stack.callback(wire.close)
            url = f"postgresql://cbp@127.0.0.1:{wire.port}/postgres"
            instance = Instance(root, name, database_url=url, **common)
            self.instances.append(instance)
            stack.callback(instance.kill)
        self.take_overs: list[float] = []
        self.first_records: list[float] = []

    def start(self) -> None:
        """Start all and wait for them."""
        for instance in self.instances:
            instance.start()
        for instance in self.instances:
            instance.wait()

    def leader(self) -> Instance:
        """Return the instance that leads, once there is one."""
        actual: list[Instance] = []

        def leads() -> bool:
            actual[:] = [one for one in self.instances if one.answers() == "leads"]
            return bool(actual)

        until(leads, "nobody leads")
        return actual[0]

    def others(self, instance: Instance) -> list[Instance]:
        """Return all but one."""
        return [one for one in self.instances if one is not instance]

    def take_over(self, gone: Instance, work: Workload) -> None:
        """Read from all others at once, and note how long one of them takes to lead and to run.

        Drops a file, so that there is something to run.
        """
        started, others = time.monotonic(), self.others(gone)
        for one in others:
            work.read(one.settings)
        work.drop()
        epochs: list[int] = []

        def leads() -> bool:
            epochs[:] = [epoch for one in others if (epoch := one.leads())]
            return bool(epochs)

        until(leads, "no take-over")
        self.take_overs.append(time.monotonic() - started)
        until(lambda: work.newest_leader() >= min(epochs), "the new leader records nothing")
        self.first_records.append(time.monotonic() - started)

    def told(self) -> str:
        """Return the take-overs in words."""
        leads = [round(seconds, 1) for seconds in self.take_overs]
        records = [round(seconds, 1) for seconds in self.first_records]
        return f"seconds until another one led: {leads}, and had recorded a run: {records}"

    def in_time(self, *, few: bool = True) -> bool:
        """Tell whether each leader was replaced in time, and its successor's first record came so.

        A machine that is busy with other things makes processes late, not the lease: a record
        has as much more time as there is more to do than there are cores.

        Args:
            few: Each; else half of them, as of many some meet a busy minute.
        """
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        return all(
            sorted(seconds)[-1 if few else len(seconds) // 2] < limit
            for seconds, limit in (
                (self.take_overs, TAKE_OVER_SECONDS_MAX),
                (self.first_records, TAKE_OVER_SECONDS_MAX * busy),
            )
        )

    def shift_lease(self, milliseconds: int) -> None:
        """Let the lease end so much later, as when the database's clock is set back."""
        import psycopg

        with psycopg.connect(self.postgres.url.format("postgres")) as connection:
            connection.execute("UPDATE leases SET expires_ms = expires_ms + %s", [milliseconds])
