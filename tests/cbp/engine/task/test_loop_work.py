"""Loops within a run: the reference's results, at the cost of one epoch, ended by a count."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp import Translate
from cbp.engine.direct import LocalEngine
from cbp.engine.storage.engine_limits import DEFAULT_LIMITS
from cbp.errors import AuthorCodeError
from cbp.testing import check_split
from tests.cbp.engine.epochs import NARROW, assert_same, order_free
from tests.cbp.engine.small_limits import small_limits
from tests.driver import Driver
from tests.loops import (
    Components,
    ComponentsByEpochs,
    Fails,
    Ripples,
    Tides,
    Waves,
    least_labels,
    loop_of,
)
from tests.sampling import examples

_node = st.integers(0, 24)
_links = st.lists(st.fixed_dictionaries({"src": _node, "dst": _node}), max_size=12)
_orders = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "c"]),
        "to": st.sampled_from(["a", "b", "c"]),
        "verb": st.sampled_from(["put", "take", "far", "echo", "forget", "drop", "zero"]),
        "n": st.integers(0, 6),
    }
)

NUMBERS = [0.0, -0.0, 1.0, -1.0, float("nan"), None]
CASES: dict[str, tuple[type, str, str, st.SearchStrategy[Any]]] = {
    "components": (Components, "links", "src BIGINT, dst BIGINT", _links),
    "ripples": (
        Ripples,
        "orders",
        "k STRING, to STRING, verb STRING, n INT",
        st.lists(_orders, max_size=8),
    ),
    "tides": (
        Tides,
        "items",
        "x DOUBLE, n INT",
        st.lists(
            st.fixed_dictionaries({"x": st.sampled_from(NUMBERS), "n": st.integers(0, 8)}),
            max_size=6,
        ),
    ),
    "waves": (Waves, "edges", "src BIGINT, dst BIGINT", _links),
}


def components(folder: Path, translator: Translate | None = None) -> Driver:
    dataflow = loop_of(translator or Components(), links="src BIGINT, dst BIGINT")
    return Driver(LocalEngine(cache=str(folder / "cache")), dataflow, folder / "t")


@pytest.mark.part(every=2)
@pytest.mark.parametrize(
    ("case", "hash_mask"),
    [*((case, -1) for case in CASES), ("ripples", NARROW), ("tides", NARROW)],
    ids=[*CASES, "ripples-colliding", "tides-colliding"],
)
@settings(max_examples=examples(3), deadline=None)
@given(data=st.data())
def test_every_epoch_equals_the_reference(case: str, hash_mask: int, data: st.DataObject) -> None:
    """States, changes of views, other outputs, messages that are left: all are the reference's.

    Also when keys share a hash, windows are tiny, and supersteps are over before the messages are.
    """
    translator, name, schema, epoch = CASES[case]
    epochs = data.draw(st.lists(epoch, min_size=1, max_size=4))
    limits = small_limits() if data.draw(st.booleans()) else DEFAULT_LIMITS
    dataflow = loop_of(translator(), **{name: schema})
    with tempfile.TemporaryDirectory() as folder:
        engine = LocalEngine(cache=f"{folder}/cache", hash_mask=hash_mask, limits=limits)
        driver = Driver(engine, dataflow, Path(folder) / "t")
        assert_same(dataflow, driver, [{name: rows} for rows in epochs], ordered=hash_mask == -1)


@settings(max_examples=examples(3), deadline=None)
@given(epochs=st.lists(_links, min_size=1, max_size=4))
def test_a_loop_ends_where_the_chain_of_epochs_ends(epochs: list[list[dict[str, int]]]) -> None:
    """Labels and neighbours are those of a superstep an epoch, and the labels those of a forest."""
    states = []
    for translator in (Components(), ComponentsByEpochs()):
        with tempfile.TemporaryDirectory() as folder:
            driver = components(Path(folder), translator)
            for links in epochs:
                driver.feed("s_links", links)
                driver.run_until_idle()
            states.append({s: order_free(driver.state("stage", s)) for s in ("near", "labels")})
            runs = len(driver.figures)
            if isinstance(translator, ComponentsByEpochs):
                continue
            assert runs == len(epochs), "one epoch for each increment"
            records = driver.state("stage", "labels")
            every = [(link["src"], link["dst"]) for links in epochs for link in links]
            assert {one["src"]: one["label"] for one in records} == least_labels(every)
    assert states[0] == states[1]


def test_a_loop_writes_what_one_epoch_would(tmp_path: Path) -> None:
    """Files, changed records and messages do not grow with the supersteps that led there."""
    driver = components(tmp_path)
    driver.feed("s_links", [{"src": node, "dst": node + 1} for node in range(40)])
    driver.run_until_idle()
    driver.feed("s_links", [{"src": 40, "dst": -1}])
    driver.run_until_idle()
    figures = driver.figures[-1]
    assert figures["supersteps"] > 40
    assert figures["state_written"] == 41 + 1 + 2, "new labels, one of -1; two neighbours"
    assert figures["state_removed"] == 41
    files = [
        path for path in Path(driver.folder).rglob("*.parquet") if "000000000001-" in path.name
    ]
    assert len(files) <= 2 * 8 + 1, "a file for each bucket and state, and one of changes"
    assert not driver.increments["stage.news"][-1].records


def test_a_failed_loop_leaves_nothing(tmp_path: Path) -> None:
    """An author's error in a late superstep names the line; the increment is read again."""
    driver = Driver(
        LocalEngine(cache=str(tmp_path / "cache")),
        loop_of(Fails(), items="k BIGINT, n BIGINT"),
        tmp_path / "t",
    )
    driver.feed("s_items", [{"k": 0, "n": 9}])
    for _ in range(2):
        with pytest.raises(AuthorCodeError) as caught:
            driver.run_until_idle()
        assert caught.value.code == "author_code_failed"
        assert "(7,)" in caught.value.message
    assert driver.state("stage", "calls") == []


def test_the_test_kit_runs_loops() -> None:
    """Any split of the links gives the labels of one batch."""
    links = [{"src": node % 7, "dst": node} for node in range(20)]
    result = check_split(Components, [{"links": links[at : at + 6]} for at in range(0, 20, 6)])
    labels = {row.src: row.label for row in result.view("labels")}
    assert labels == least_labels((link["src"], link["dst"]) for link in links)
