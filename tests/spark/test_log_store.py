"""Files over Delta's LogStore: one winner per name, and what is not safe is shown to be so.

No file system that Hadoop knows and that is safe between machines runs here. So the port
is raced through one JVM, by two processes that talk to it, with the store that keeps its
locks there.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from cbp.engine.delta.managed_table import open_table
from cbp.engine.storage.files import Exists, Written
from cbp.errors import FileSystemUnsafeError, NotFoundError, OperatingError
from tests.cbp.engine.delta.commits import files as live_set
from tests.cbp.engine.delta.commits import publish
from tests.cbp.engine.delta.harness import make_state
from tests.planned_faults import Crash, PlannedFaults
from tests.spark.log_store_files import LogStoreFiles

pytestmark = pytest.mark.spark

ONE_JVM = "io.delta.storage.S3SingleDriverLogStore"
LOCAL_STORE = "io.delta.storage.LocalLogStore"
RACES = 60
RACES_MAX = 1_000


@pytest.fixture
def store(spark: Any) -> LogStoreFiles:
    """Give the port on this run's JVM, with a store that is safe within it."""
    context = spark.sparkContext
    return LogStoreFiles(context._jvm, context._jsc.hadoopConfiguration(), ONE_JVM)


def _race(files: LogStoreFiles, folder: str, name: str, barrier: Barrier, races: int) -> None:
    won = []
    for race in range(races):
        barrier.wait(timeout=60)
        outcome = files.put_if_absent(f"{folder}/{race:020d}.json", name.encode() * 1000 + b"\n")
        if isinstance(outcome, Written):
            won.append(race)
    Path(folder).with_name(name).write_text("\n".join(map(str, won)))


def _race_in(folder: str, name: str, barrier: Barrier, port: int, token: str) -> None:
    """Race through another process's JVM."""
    parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
    jvm = JavaGateway(gateway_parameters=parameters).jvm
    conf = jvm.org.apache.spark.SparkContext.getOrCreate().hadoopConfiguration()
    _race(LogStoreFiles(jvm, conf, ONE_JVM), folder, name, barrier, RACES)


@pytest.mark.soak
def test_two_processes_never_both_write_an_entry(tmp_path: Path, spark: Any) -> None:
    """Two processes put one name at one moment, and exactly one gets `Written`."""
    gateway = spark.sparkContext._gateway.gateway_parameters
    context = multiprocessing.get_context("spawn")
    barrier, folder = context.Barrier(2), str(tmp_path / "log")
    arguments = (barrier, gateway.port, gateway.auth_token)
    racers = [context.Process(target=_race_in, args=(folder, name, *arguments)) for name in "ab"]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(timeout=120)
        assert racer.exitcode == 0
    won = {name: set((tmp_path / name).read_text().split()) for name in "ab"}
    assert not won["a"] & won["b"]
    assert len(won["a"] | won["b"]) == RACES
    for race in range(RACES):
        winner = "a" if str(race) in won["a"] else "b"
        assert (tmp_path / "log" / f"{race:020d}.json").read_text() == winner * 1000 + "\n"


def test_the_port_is_that_of_local_files(tmp_path: Path, store: LogStoreFiles) -> None:
    """Puts, reads, ranges, lists, replaces and removes, with the same coded errors."""
    folder = str(tmp_path / "new" / "folder")
    assert not store.list_names(folder)
    assert not store.list_files(folder)
    assert store.put_if_absent(f"{folder}/1.json", b"first\n") == Written()
    assert store.put_if_absent(f"{folder}/1.json", b"second\n") == Exists(b"first\n")
    store.write_durable(f"{folder}/hint", bytes(range(256)))
    store.write_durable(f"{folder}/hint", b"0123456789")
    assert store.read(f"{folder}/hint") == b"0123456789"
    assert store.read_range(f"{folder}/hint", 8, 10) == b"89"
    assert store.size(f"{folder}/hint") == 10
    (Path(folder) / ".left.1.tmp").write_bytes(b"")
    names = [name for name in store.list_names(folder) if not name.endswith(".crc")]
    assert names == ["1.json", "hint"]
    assert [f.temporary for f in store.list_files(folder) if f.path == ".left.1.tmp"] == [True]
    assert store.remove_temporaries(folder) >= 1
    store.remove(f"{folder}/hint")
    store.remove(f"{folder}/hint")
    assert not store.exists(f"{folder}/hint")
    with pytest.raises(NotFoundError):
        store.read(f"{folder}/hint")
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OperatingError):
        store.put_if_absent(f"{tmp_path}/file/1.json", b"x\n")
    with pytest.raises(FileSystemUnsafeError):
        store.put_if_absent(f"{folder}/2.json", b"x\n", staged=folder)


class Unanswered:
    """A LogStore whose next answer is lost: somebody's bytes may be there by then, or nobody's.

    Args:
        store: The LogStore.
        first: What is done before the failure; given what the caller asked for.
        fail: Throws in the JVM.
        again: Whether a client on the way asks once more, as those of object stores do.
    """

    def __init__(
        self,
        store: Any,
        first: Callable[..., None],
        fail: Callable[..., object],
        *,
        again: bool = False,
    ) -> None:
        self._store, self._first, self._fail, self._again = store, first, fail, again

    def write(self, path: Any, lines: Any, overwrite: bool, conf: Any) -> None:
        self._first(path, lines, overwrite, conf)
        if self._again:
            self._store.write(path, lines, overwrite, conf)
        self._fail()


@pytest.mark.part(every=2)
@pytest.mark.parametrize("kind", ["ConnectException", "NumberFormatException"])
@pytest.mark.parametrize("again", [False, True])
def test_after_an_unknown_outcome_the_entry_is_read(
    again: bool, kind: str, tmp_path: Path, store: LogStoreFiles
) -> None:
    """Ours means success, another's is `Exists`, none is a coded error; no byte is put twice.

    Where a client asked again, the answer is that the name is taken: by ours, too. PySpark makes
    exceptions of its own of some that Java throws.
    """
    jvm, real = store._jvm, store._store

    def fail() -> None:
        if kind == "ConnectException":
            jvm.java.net.Socket("127.0.0.1", 1)
        jvm.java.lang.Integer.parseInt("no number")

    def theirs(path: Any, *rest: Any) -> None:
        other = jvm.java.util.Collections.singletonList("theirs").iterator()
        real.write(path, other, False, rest[-1])

    def nothing(*unused: Any) -> None:
        pass

    store.faults = faults = PlannedFaults()
    for data in (b"ours\n", b"ours"):
        path = f"{tmp_path}/{len(data)}.json"
        store._store = Unanswered(real, real.write, fail, again=again)
        assert store.put_if_absent(path, data) == (Exists(data) if again else Written())
        assert store.read(path) == b"ours\n"
    assert ("log_entry.after" in faults.passed) is not again
    store._store = Unanswered(real, theirs, fail, again=again)
    assert store.put_if_absent(f"{tmp_path}/2.json", b"ours\n") == Exists(b"theirs\n")
    assert store.read(f"{tmp_path}/2.json") == b"theirs\n"
    store._store = Unanswered(real, nothing, fail)
    with pytest.raises(OperatingError, match=kind):
        store.put_if_absent(f"{tmp_path}/3.json", b"ours\n")
    assert not store.exists(f"{tmp_path}/3.json")


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_managed_table_lives_on_the_port(
    side: str, tmp_path: Path, spark: Any, store: LogStoreFiles
) -> None:
    """Creation, publication, crash and redo, checkpoint, clean-up, as on local files."""
    path = str(tmp_path / "t")
    make_state(path, files=store)
    store.faults = PlannedFaults(f"log_entry.{side}")
    with pytest.raises(Crash):
        publish(open_table(path, store), 1, "a")
    store.faults = PlannedFaults()
    table = open_table(path, store)
    assert publish(table, 1, "a") == 1
    assert publish(table, 2, "a", "b") == 2
    table.checkpoint()
    table.clean_before(table.snapshot.version)
    assert set(open_table(path, store).snapshot.live) == set(live_set("a", "b"))


def _race_alone(folder: str, name: str, barrier: Barrier, classpath: str) -> None:
    """Race with a JVM of one's own, as a second driver on the machine has."""
    port = launch_gateway(classpath=classpath, die_on_exit=True)
    jvm = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True)).jvm
    conf = jvm.org.apache.hadoop.conf.Configuration()
    _race(LogStoreFiles(jvm, conf, LOCAL_STORE), folder, name, barrier, RACES_MAX)


@pytest.mark.soak
def test_deltas_own_local_store_lets_two_processes_write_one_entry(
    tmp_path: Path, spark: Any
) -> None:
    """Why `file:` is refused there: both get `Written`, and one entry is lost.

    Measured: 38 of 3,000.
    """
    system = spark.sparkContext._jvm.java.lang.System
    context = multiprocessing.get_context("spawn")
    barrier, folder = context.Barrier(2), str(tmp_path / "log")
    paths = f"{system.getProperty('java.class.path')}:{_delta_jars(spark)}"
    racers = [
        context.Process(target=_race_alone, args=(folder, name, barrier, paths)) for name in "ab"
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(timeout=250)
    won = {name: set((tmp_path / name).read_text().split()) for name in "ab"}
    both = won["a"] & won["b"]
    print(f"{len(both)} of {RACES_MAX} entries were written by both")
    assert both


def _delta_jars(spark: Any) -> str:
    listed = spark.sparkContext._jsc.sc().listJars().mkString(":")
    jars = [jar for jar in spark.conf.get("spark.jars", "").split(",") if jar]
    return ":".join(jar.removeprefix("file://") for jar in jars) or str(listed)
