"""Keys of every type: groups, state and order are the reference's, whatever the values.

Null, empty, a megabyte, NaN, both zeros and shared hashes make the same groups everywhere. What is
written by its key shows one zero; a record in which only the sign of a zero changes is unchanged,
for the reference too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from cbp import DataflowBuilder
from cbp.engine.direct import LocalEngine
from cbp.engine.reference.engine import ReferenceEngine
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.dataflow.stage import TranslatorSpec
from tests.cbp.engine.epochs import NARROW, assert_same, repr_of
from tests.driver import Driver
from tests.forms import arrow_form
from tests.keys import COMPOSED, VALUES, Spelled, dataflow_of_keys, epochs_of_keys

KEYS = [*((kind,) for kind in VALUES), *COMPOSED]


@pytest.mark.part(every=5)
@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize("types", KEYS, ids=lambda types: "-".join(types))
def test_keys_of_every_type_make_the_references_groups(
    types: tuple[str, ...], hash_mask: int, tmp_path: Path
) -> None:
    """Null, empty, a megabyte, every script, NaN and both zeros: each is one group."""
    dataflow = dataflow_of_keys(types)
    engine = LocalEngine(cache=str(tmp_path / "cache"), hash_mask=hash_mask)
    driver = Driver(engine, dataflow, tmp_path / "t")
    epochs = [{"0": rows} for rows in epochs_of_keys(types, seed=1)]
    assert_same(dataflow, driver, epochs, ordered=hash_mask == -1, source="r")
    stage, names = dataflow.stages["s0"], [f"k{i}" for i in range(len(types))]
    for record in driver.state("s0", "seen")[:20]:
        key = {name: record[name] for name in names}
        assert repr_of(engine.records.look_up(driver.folder, stage, "seen", key)) == repr_of(
            [record]
        )


FORMS: dict[str, Callable[[TranslatorSpec], TranslatorSpec]] = {
    "groupwise": lambda spec: spec,
    "arrow": arrow_form,
}


def _in_form(dataflow: Dataflow, form: str) -> Dataflow:
    made = {
        name: replace(node, translator=FORMS[form](node.translator))
        for name, node in dataflow.stages.items()
    }
    return replace(dataflow, stages=MappingProxyType(made))


@pytest.mark.parametrize("hash_mask", [-1, NARROW], ids=["hash", "colliding"])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_by_its_key_is_spelled_in_one_way(
    form: str, hash_mask: int, tmp_path: Path
) -> None:
    """However an input mixes 0.0 and -0.0: state and outputs show the reference's zero and NaN."""
    types = ("DOUBLE", "FLOAT")
    dataflow, reference = dataflow_of_keys(types), ReferenceEngine(dataflow_of_keys(types))
    engine = LocalEngine(cache=str(tmp_path / "cache"), hash_mask=hash_mask)
    driver = Driver(engine, _in_form(dataflow, form), tmp_path / "t")
    for rows in epochs_of_keys(types, seed=2):
        for one in (driver, reference):
            one.feed("r0", rows)
            one.run_until_idle()
        mine, theirs = (sorted(repr_of(one.state("s0", "seen"))) for one in (driver, reference))
        assert mine == theirs
        assert not [text for text in mine if "-0.0" in text]
        wrote, expected = (
            [sorted(repr_of(rows)) for rows in one.outputs("s0.totals")]
            for one in (driver, reference)
        )
        assert wrote == expected


@pytest.mark.parametrize("form", FORMS)
def test_a_record_that_changes_the_sign_of_a_zero_only_is_unchanged(
    form: str, tmp_path: Path
) -> None:
    """It is stored unchanged, on every engine, at no cost: both zeros are one value."""
    builder = DataflowBuilder("spelled")
    builder.stage("s0", Spelled(), buckets=2, rows=builder.source("r0", "k DOUBLE"))
    dataflow = builder.build()
    reference = ReferenceEngine(dataflow)
    driver = Driver(
        LocalEngine(cache=str(tmp_path / "cache")), _in_form(dataflow, form), tmp_path / "t"
    )
    for epoch, zero in enumerate((-0.0, 0.0, -0.0)):
        for one in (driver, reference):
            one.feed("r0", [{"k": 1.0}, {"k": zero}])
            one.run_until_idle()
            assert sorted(repr_of(one.state("s0", "seen"))) == [
                "[('k', -0.0), ('n', 0)]",
                "[('k', 1.0), ('n', 0)]",
            ]
        assert driver.outputs("s0.were") == reference.outputs("s0.were")
        assert driver.figures[-1]["state_written"] == (0 if epoch else 2)
