"""Messages that lie by the bucket of their receiver: read where they lie, in the same order.

Messages with one key are shuffled by nobody and read by one task, once: also beside what is
shuffled, beside messages to all, and written for other buckets or another `route_by`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cbp import DataflowBuilder, Input, Loopback, Translate, by
from cbp.engine.direct import DirectEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.engine.run.executor import LocalExecutor
from cbp.engine.shuffle import message_index as receivers
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.errors import AuthorCodeError, IncrementDamagedError
from cbp.model.flow.increment import Increment
from tests import message_flows
from tests.cbp.engine.epochs import assert_same, order_free
from tests.cbp.engine.letters import fed, letters, many, small_limits
from tests.driver import Driver
from tests.sampling import examples

_key = st.one_of(st.integers(0, 40), st.none())
_ITEM = st.fixed_dictionaries({"k": _key, "to": st.lists(_key, max_size=9), "n": st.integers(0, 2)})
_NOTE = st.fixed_dictionaries({"to": _key, "n": st.integers(0, 2)})
_EPOCH = st.fixed_dictionaries(
    {"items": st.lists(_ITEM, max_size=12), "notes": st.lists(_NOTE, max_size=5)}
)


class FourSlots(LocalExecutor):
    """Four tasks at a time."""

    slots = 4


def engine_of(folder: Path, limits: EngineLimits) -> DirectEngine:
    """Return an engine with four tasks and no Spark."""
    return DirectEngine(FourSlots(), cache=str(folder / "cache"), limits=limits)


def total(driver: Driver, *names: str) -> int:
    """Return the sum of some figures over all runs."""
    return sum(int(run.get(name, 0)) for run in driver.figures for name in names)


def written(driver: Driver, *names: str) -> int:
    """Return the messages of some loopbacks, over all epochs."""
    return sum(len(rows) for name in names for rows in driver.outputs(f"stage.{name}"))


@pytest.mark.part(every=2, first=1)
@pytest.mark.parametrize("rows_min", [1, 6])
@settings(
    max_examples=examples(6),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(epochs=st.lists(_EPOCH, min_size=1, max_size=3))
def test_every_epoch_equals_the_reference(rows_min: int, epochs: list[dict[str, Any]]) -> None:
    """Groups get their messages in the reference's order; each is read by one task, once.

    So it is where some files have a bucket and others the order of emission, and beside messages
    to all. Every file divided by bucket is read in place.
    """
    limits = small_limits(rows_min)
    dataflow = letters()
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(engine_of(Path(folder), limits), dataflow, Path(folder) / "t")
        assert_same(dataflow, driver, epochs)
        laid = sum(
            file.records
            for name in ("mail", "post")
            for increment in driver.increments.get(f"stage.{name}", [])
            for file in increment.files
            if file.buckets
        )
        assert total(driver, "messages_local", "messages_remote") == laid
        if rows_min == 1:
            assert laid == written(driver, "mail", "post")


def test_local_are_the_messages_to_buckets_of_the_task_that_writes(tmp_path: Path) -> None:
    """Who writes to itself writes locally, whatever the number of tasks; the bytes agree."""
    limits = small_limits()

    class Selves(message_flows.Chatter):
        def translate(self, key: Any, group: Any, out: Any) -> None:
            for item in group.items:
                for n in range(item.n):
                    out.mail(key.k, str(n))
            out.seen(key.k, [letter.text for letter in group.mail])

    for translator, local in ((Selves(), True), (message_flows.Chatter(), False)):
        driver = Driver(engine_of(tmp_path, limits), letters(translator), tmp_path / f"t{local}")
        fed(driver, [{"k": k, "n": 8} for k in range(50)])
        assert driver.figures[0]["tasks"] == driver.figures[1]["tasks"] == 4
        mine, others = (driver.figures[1][f"messages_{way}"] for way in ("local", "remote"))
        assert mine + others == 400
        assert (others == 0) == local
        bytes_ = [driver.figures[1][f"bytes_messages_{way}"] for way in ("local", "remote")]
        assert bytes_[0] > 40 * mine
        assert (bytes_[1] > 40 * others) == (others > 0)


@pytest.mark.parametrize("after", [4, 16], ids=["fewer", "more"])
def test_other_buckets_than_written_for_go_the_way_of_any_input(
    after: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages that wait while buckets change come once, in order; later ones are read in place.

    No job is done twice for it: the files say for how many buckets they lie.
    """
    limits = small_limits()
    driver = Driver(engine_of(tmp_path, limits), letters(message_flows.Chatter()), tmp_path / "t")
    reference = ReferenceEngine(letters(message_flows.Chatter()))
    rows = [{"k": k, "n": 10} for k in range(20)]
    driver.feed("s_items", rows)
    assert driver.run("stage")
    driver.dataflow = letters(message_flows.Chatter(), buckets=after)
    driver.run_until_idle()
    assert total(driver, "messages_local", "messages_remote") == 0
    fed(driver, rows)
    assert total(driver, "messages_local", "messages_remote") == 200
    fed(reference, rows)
    fed(reference, rows)
    assert driver.outputs("stage.seen") == reference.outputs("stage.seen")
    assert not caplog.records


def test_messages_of_an_earlier_route_by_are_routed_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Code that was upgraded while messages wait gets each of them once, by its own keys."""
    limits = small_limits()
    shift = {"by": 0}

    class Moved(message_flows.Chatter):
        mail = Loopback(
            "dst BIGINT, text STRING", route_by=by(lambda m: m.dst + shift["by"], "BIGINT")
        )

    driver = Driver(engine_of(tmp_path, limits), letters(Moved()), tmp_path / "t")
    driver.feed("s_items", [{"k": k, "n": 10} for k in range(20)])
    assert driver.run("stage")
    shift["by"] = 100
    driver.run_until_idle()
    actual = {row["k"]: sorted(row["mail"]) for row in driver.outputs("stage.seen")[1]}
    assert actual == {100 + to: sorted(f"{k}/{to}" for k in range(20)) for to in range(10)}
    assert "another route_by" in caplog.text
    assert total(driver, "messages_local", "messages_remote") == 0


def test_a_route_by_that_fails_is_told_by_the_reader(tmp_path: Path) -> None:
    """A message without a key is written as it is; the epoch that reads it names the function."""
    limits = small_limits()

    class Broken(message_flows.Chatter):
        mail = Loopback("dst BIGINT, text STRING", route_by=by(lambda m: 1 // m.dst, "BIGINT"))

    driver = Driver(engine_of(tmp_path, limits), letters(Broken()), tmp_path / "t")
    driver.feed("s_items", [{"k": k, "n": 10} for k in range(20)])
    assert driver.run("stage")
    assert all(not file.buckets for file in driver.increments["stage.mail"][0].files)
    with pytest.raises(AuthorCodeError, match=r"mail\.route_by"):
        driver.run("stage")


def test_blocks_of_one_file_come_one_after_the_other(tmp_path: Path) -> None:
    """A group's messages lie in many blocks of a file, as a task emits them; their order stays."""
    limits = small_limits()
    driver, reference = (
        Driver(engine_of(tmp_path, limits), letters(), tmp_path / "t"),
        ReferenceEngine(letters()),
    )
    for each in (driver, reference):
        fed(each, many())
    for name in ("mail", "post"):
        for file in driver.increments[f"stage.{name}"][0].files:
            with pq.ParquetFile(Path(driver.folder) / file.path) as opened:
                laid = receivers.MessageIndex.of(opened)
            assert laid is not None
            assert len(laid.blocks) > 1
    assert total(driver, "messages_local", "messages_remote") == written(driver, "mail", "post")
    assert driver.outputs("stage.seen") == reference.outputs("stage.seen")


class Listener(Translate):
    """Reads the messages of another stage, in the order of their flow."""

    heard = Input("text STRING, dst BIGINT, n INT", route_by="n")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Only listen."""


def test_messages_that_others_read_lie_as_they_were_emitted(tmp_path: Path) -> None:
    """Another reader may rest on the order of the whole flow, so it stays."""
    limits = small_limits()
    flow = DataflowBuilder("overheard")
    items = flow.source("s_items", "k BIGINT, to ARRAY<BIGINT>, n INT")
    notes = flow.source("s_notes", "to BIGINT, n INT")
    stage = flow.stage("stage", message_flows.Letters(), items=items, notes=notes)
    flow.stage("listener", Listener(), heard=stage.mail)
    dataflow = flow.build()
    assert dataflow.own_messages() == {"stage.post", "stage.cries"}
    driver, reference = (
        Driver(engine_of(tmp_path, limits), dataflow, tmp_path / "t"),
        ReferenceEngine(dataflow),
    )
    for each in (driver, reference):
        fed(each, many())
    assert driver.outputs("stage.mail") == reference.outputs("stage.mail")
    assert any(file.buckets for file in driver.increments["stage.post"][0].files)


def test_a_file_of_messages_that_is_cut_or_gone_is_named(tmp_path: Path) -> None:
    """Nothing is skipped: the run fails, and names the file."""
    limits = small_limits()
    for what in ("cut", "gone"):
        driver = Driver(engine_of(tmp_path, limits), letters(), tmp_path / what)
        driver.feed("s_items", many())
        assert driver.run("stage")
        file = driver.increments["stage.mail"][0].files[-1]
        path = Path(driver.folder) / file.path
        if what == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(IncrementDamagedError) as damaged:
            driver.run("stage")
        assert str(damaged.value.details["path"]).endswith(path.name)


def test_an_attempt_that_is_repeated_reads_the_same(tmp_path: Path) -> None:
    """A run that dies behind its job is run again on the same messages, with the same result."""
    limits = small_limits()
    dies = {"at": ""}

    def faults(point: str) -> None:
        if point == dies["at"]:
            dies["at"] = ""
            raise OSError(point)

    cache = str(tmp_path / "c")
    engine = DirectEngine(FourSlots(), cache=cache, faults=faults, limits=limits)
    driver, reference = Driver(engine, letters(), tmp_path / "t"), ReferenceEngine(letters())
    driver.feed("s_items", many())
    assert driver.run("stage")
    dies["at"] = "job.after"
    with pytest.raises(OSError, match=r"job\.after"):
        driver.run("stage")
    driver.run_until_idle()
    fed(reference, many())
    assert driver.outputs("stage.seen") == reference.outputs("stage.seen")
    assert order_free(driver.state("stage", "kept")) == order_free(reference.state("stage", "kept"))


def test_an_increment_of_an_earlier_release_has_no_buckets() -> None:
    """What was recorded before is read as before; what is recorded now comes back the same."""
    old = {"flow": "a.b", "index": 1, "framing_key": 1, "files": [["x", 3, 9], ["y", 3, 9, 1, 2]]}
    assert [file.buckets for file in Increment.from_json(old).files] == [0, 0]
    assert Increment.from_json(old).to_json() == old
    new = {**old, "files": [["x", 3, 9, 0, 3, 8]]}
    (file,) = Increment.from_json(new).files
    assert file.buckets == 8
    assert file.whole
    assert Increment.from_json(new).to_json() == new
    assert file.slice(0, 2).buckets == 0
