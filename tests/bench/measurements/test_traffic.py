"""Bytes written are what grew below a candidate's folder; shuffled is what stages wrote."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from py4j.protocol import Py4JJavaError

from tests.bench.measurements.traffic import FolderWatch, StageWatch


def test_new_grown_and_replaced_files_count(tmp_path: Path) -> None:
    """A new file counts whole, a grown one by its growth, a replaced one whole."""
    (tmp_path / "old").write_bytes(b"x" * 10)
    (tmp_path / "log").write_bytes(b"x" * 10)
    watch = FolderWatch(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/new").write_bytes(b"x" * 7)
    with (tmp_path / "log").open("ab") as file:
        file.write(b"x" * 5)
    (tmp_path / "made").write_bytes(b"x" * 20)
    (tmp_path / "made").rename(tmp_path / "old")
    assert watch.take() == 7 + 5 + 20
    assert watch.take() == 0


def test_increments_are_read_not_written(tmp_path: Path) -> None:
    """The input that is linked into a dataflow's folder is nobody's output."""
    watch = FolderWatch(tmp_path)
    (tmp_path / "sources/urls").mkdir(parents=True)
    (tmp_path / "sources/urls/0.parquet").write_bytes(b"x")
    assert watch.take() == 0


class Stages:
    """Spark's status store, its listener bus and its scheduler, as far as they are asked."""

    def __init__(self, retained: int) -> None:
        self._retained, self._bytes = retained, dict[int, int]()
        self._numbered = 0
        conf = SimpleNamespace(get=lambda name, default: str(retained))
        java = SimpleNamespace(sc=lambda: self)
        self.session: Any = SimpleNamespace(
            sparkContext=SimpleNamespace(_jsc=java, getConf=lambda: conf)
        )

    def ran(self, *shuffled: int, skipped: int = 0) -> None:
        """Let stages run, behind some that got a number and did not."""
        self._numbered += skipped
        for size in shuffled:
            self._bytes[self._numbered] = size
            self._numbered += 1
            if len(self._bytes) > self._retained:
                for oldest in list(self._bytes)[: max(1, self._retained // 10)]:
                    del self._bytes[oldest]

    def lastStageAttempt(self, stage: int) -> Any:
        """Return a stage, or fail as Spark does."""
        if stage not in self._bytes:
            raise Py4JJavaError("no such stage", SimpleNamespace(_target_id="o0"))
        return SimpleNamespace(shuffleWriteBytes=lambda: self._bytes[stage])

    def listenerBus(self) -> Any:
        """Return a bus that is always empty."""
        return SimpleNamespace(waitUntilEmpty=lambda: None)

    def statusStore(self) -> Any:
        """Return what knows stages."""
        return self

    def dagScheduler(self) -> Any:
        """Return what numbers stages."""
        return SimpleNamespace(nextStageId=lambda: self._numbered)


def test_each_stage_is_counted_once() -> None:
    """What ran since the last call counts, however many numbers were skipped before it."""
    stages = Stages(retained=100)
    stages.ran(1000)
    watch = StageWatch(stages.session)
    stages.ran(3, 4)
    stages.ran(5, skipped=20)
    assert watch.take() == 12
    assert watch.take() == 0


def test_forgotten_stages_make_a_figure_unknown_and_no_later_one() -> None:
    """It is never too small: Spark keeps some stages, and begins to forget before they are many."""
    for ran in range(20):
        stages = Stages(retained=10)
        watch = StageWatch(stages.session)
        stages.ran(*[1] * 15)
        watch.take()
        stages.ran(*[1] * ran)
        assert watch.take() == (ran if ran <= 9 else None)
        stages.ran(7)
        assert watch.take() == 7
