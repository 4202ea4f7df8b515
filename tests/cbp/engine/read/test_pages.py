"""Pages of one version of a table: whole and without doubles, whatever their size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cbp.engine.delta.actions import AddFile
from cbp.engine.delta.deletion_vectors import bitmap_of
from cbp.engine.delta.live_records import live_batches, page_of
from cbp.engine.direct import LocalEngine
from cbp.engine.interface.readers import TableVersions
from cbp.engine.storage.engine_limits import EngineLimits
from cbp.errors import VersionGoneError
from tests.cbp.engine.epochs import dataflow_of
from tests.cbp.engine.inline_vectors import inline_vector
from tests.driver import Driver

WORDS = ["a", "b", "ä", None, "", "z" * 300, "c", "d"]
Pages = list[dict[str, Any]]


def driver_of(folder: Path) -> tuple[Driver, list[dict[str | None, int]]]:
    """Run some epochs of counts; return what state held behind each."""
    driver = Driver(
        LocalEngine(cache=str(folder / "cache")), dataflow_of("url_count"), folder / "t"
    )
    chance = np.random.default_rng(5)
    counts: dict[str | None, int] = {}
    held: list[dict[str | None, int]] = []
    for _ in range(6):
        words = [WORDS[at] for at in chance.integers(0, len(WORDS), 5)]
        for word in words:
            counts[word] = counts.get(word, 0) + 1
        driver.feed("s_urls", [{"url": word} for word in words])
        driver.run_until_idle()
        held.append(dict(counts))
    return driver, held


def all_pages(read: Any, name: str, version: int, limit: int) -> Pages:
    """Read page by page; none is larger than the limit, and all but the last are full."""
    rows: Pages = []
    place: tuple[int, int] | None = (0, 0)
    full = True
    while place is not None:
        assert full, "a page before the last was not full"
        page, place = read(name, version, place, limit)
        full = len(page) == limit
        assert len(page) <= limit
        rows += page
    return rows


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_of_a_version_are_the_table_as_it_was(limit: int, tmp_path: Path) -> None:
    """A state comes without dead records, an output in its order; newest version or not."""
    driver, held = driver_of(tmp_path)
    (node,) = driver.dataflow.stages.values()
    reader: TableVersions = driver.engine.records.versions(driver.folder, node)
    told: Pages = []
    for epoch, counts in enumerate(held):
        shown = driver.engine.history.first_shown(
            driver.folder, driver.dataflow.name, node, epoch, 0
        )
        versions = {name.rpartition(".")[2]: one.version for name, one in shown.items()}
        kept = all_pages(reader.state_page, "counts", versions["counts"], limit)
        assert sorted(map(repr, kept)) == sorted(
            repr({"url": word, "n": n}) for word, n in counts.items()
        )
        flow = all_pages(reader.output_page, "totals", versions["totals"], limit)
        assert flow[: len(told)] == told
        assert {row["_epoch"] for row in flow} == set(range(epoch + 1))
        told = flow
        for word, n in counts.items():
            records = reader.look_up("counts", {"url": word}, versions["counts"])
            assert records == [{"url": word, "n": n}]


def test_a_version_that_is_not_kept_is_said_to_be_gone(tmp_path: Path) -> None:
    """One that never was, too: who asks holds a cursor."""
    driver, _ = driver_of(tmp_path)
    (node,) = driver.dataflow.stages.values()
    reader = driver.engine.records.versions(driver.folder, node)
    with pytest.raises(VersionGoneError):
        reader.state_page("counts", 10_000, (0, 0), 1)
    with pytest.raises(VersionGoneError):
        reader.output_page("totals", 10_000, (0, 0), 1)


@pytest.mark.parametrize("dead", [[], [0], [0, 1, 2], [3, 5, 6, 9], list(range(10))])
def test_dead_rows_of_a_file_are_passed_over(dead: list[int], tmp_path: Path) -> None:
    """Wherever batches begin; and pages count live records only."""
    limits = EngineLimits(read_rows=3)
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"n": range(10)}), path, row_group_size=4)
    vector = inline_vector(bitmap_of(np.array(dead))) if dead else None
    file = AddFile("f.parquet", {}, path.stat().st_size, 10, 0, deletion_vector=vector)
    live = [n for n in range(10) if n not in dead]
    batches = live_batches(str(tmp_path), file, limits=limits)
    assert [row["n"] for batch in batches for row in batch.to_pylist()] == live
    for offset in range(len(live) + 1):
        page = page_of(live_batches(str(tmp_path), file, limits=limits), offset, 2)
        assert [row["n"] for row in page] == live[offset : offset + 2]
