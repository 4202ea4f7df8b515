"""Tables are created as durably as one after another, and with few syncs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.errors import TableForeignError
from cbp.model.dataflow.dataflow import Dataflow
from stages.translators.url_count import UrlCount

STAGES = 30


def dataflow() -> Dataflow:
    flow = DataflowBuilder("big")
    urls = flow.source("urls", "url STRING")
    for number in range(STAGES):
        flow.stage(f"s{number:02}", UrlCount(), urls=urls)
    return flow.build()


def create(root: Path) -> None:
    engine = LocalEngine(cache=str(root / "cache"))
    stages = tuple(dataflow().stages.values())
    engine.tables.create_tables(f"{root}/tables/big", "big", stages, timestamp_ms=1)


def test_each_name_is_synced_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content before its name, each name before the return; three syncs a table and a few more."""
    done: list[tuple[str, str]] = []
    sync, mkdir, link = os.fsync, os.mkdir, os.link

    def syncs(handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        begun = len(done)
        sync(handle)
        done.append((f"synced from {begun}", path))

    def makes(path: Any, *more: Any, **named: Any) -> None:
        mkdir(path, *more, **named)
        done.append(("named", str(path)))

    def links(source: Any, target: Any, **named: Any) -> None:
        content = [at for at, (what, path) in enumerate(done) if path == str(source)]
        assert content, f"{target} has a name before its content is durable"
        link(source, target, **named)
        done.append(("named", str(target)))

    monkeypatch.setattr(os, "fsync", syncs)
    monkeypatch.setattr(os, "mkdir", makes)
    monkeypatch.setattr(os, "link", links)
    create(tmp_path)
    named = [(at, path) for at, (what, path) in enumerate(done) if what == "named"]
    tables = sum(path.endswith(".json") for _, path in named)
    assert tables == 2 * STAGES
    for at, path in named:
        later = [
            int(what.rpartition(" ")[2])
            for what, synced in done[at:]
            if what != "named" and synced == os.path.dirname(path)
        ]
        assert any(begun > at for begun in later), f"{path} can be lost by a power failure"
    syncs_made = len(done) - len(named)
    assert syncs_made <= 3 * tables + 6


def test_many_tables_are_those_of_one_after_another(tmp_path: Path) -> None:
    """Again does nothing; a foreign folder among many is refused, and nothing is put into it."""
    create(tmp_path)
    tables = tmp_path / "tables" / "big"

    def content() -> dict[str, bytes]:
        return {str(one): one.read_bytes() for one in tables.rglob("*") if one.is_file()}

    first = content()
    assert len(first) == 2 * STAGES
    create(tmp_path)
    assert content() == first
    one = tmp_path / "foreign" / "tables" / "big" / "state" / "s07.counts"
    one.mkdir(parents=True)
    (one / "x.parquet").write_bytes(b"x")
    with pytest.raises(TableForeignError):
        create(tmp_path / "foreign")
    assert [path.name for path in one.iterdir()] == ["x.parquet"]
