"""Both forms of each ready stage: the same views, changes and order; and names of columns."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbp.errors import DefinitionError
from cbp.sdk.translate import Declared
from cbp.testing import Result, check_split, run_dataflow, run_epochs
from stages.translators.dimension_join import DimensionJoin
from stages.translators.latest import Latest
from tests.sampling import examples
from tests.stages.ready_stages import (
    FORMS,
    comparable,
    every_stage,
    random_days,
    stages,
)

KEYWORDS = {
    "id": "class",
    "pair": "from",
    "at": "is",
    "cents": "None",
    "part": "count",
    "since": "index",
    "rate": "lambda",
    "label": "def",
}
_SIGNS = [1, 1, 1, -1]
READS_CHANGES = {
    name: each
    for name, each in stages().items()
    if each[0] not in (Latest, DimensionJoin)  # it has a table beside the changes
}


def played(seed: int, rename: Any = str) -> Result:
    """Return what all stages give for random days."""
    days = random_days(random.Random(seed))
    increments = {
        source: [[{rename(name): row[name] for name in row} for row in day[source]] for day in days]
        for source in days[0]
    }
    return run_dataflow(every_stage(rename), increments)


def signed(dice: random.Random, spec: Any) -> dict[str, list[tuple[Any, ...]]]:
    """Return random signed records for each input; some go that never came."""
    return {name: [(*row, dice.choice(_SIGNS)) for row in rows] for name, rows in came(dice, spec)}


def history(dice: random.Random, spec: Any) -> list[dict[str, list[tuple[Any, ...]]]]:
    """Return some epochs of signed records for each input; what goes came before."""
    present: dict[str, list[tuple[Any, ...]]] = {one.name: [] for one in spec.inputs}
    epochs = []
    for _ in range(4):
        epoch: dict[str, list[tuple[Any, ...]]] = {}
        for name, rows in came(dice, spec):
            there, epoch[name] = present[name], []
            for row in rows:
                goes = bool(there) and dice.random() < 0.4
                if not goes:
                    there.append(row)
                one = there.pop(dice.randrange(len(there))) if goes else row
                epoch[name].append((*one, -1 if goes else 1))
        epochs.append(epoch)
    return epochs


def came(dice: random.Random, spec: Any) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """Yield random records for each input, without their signs."""
    (day,) = random_days(dice, days=1)
    for input_ in spec.inputs:
        names = [name for name in input_.schema.names if name != "sign"]
        rows = day["right" if input_.name == "right" else "left"]
        yield input_.name, [tuple(row[name] for name in names) for row in rows]


def epochs_of(result: Result, flow: str) -> list[list[tuple[Any, ...]]]:
    return [comparable(epoch) for epoch in result.outputs[flow]]


@pytest.mark.part(every=3)
@pytest.mark.parametrize("seed", range(3))
def test_both_forms_give_the_same_changes_in_the_same_order(seed: int) -> None:
    """At every epoch, while records come late, change, move and go; nulls, NaN and ties."""
    result = played(seed)
    for name, (groupwise, parameters) in stages().items():
        views = [view.name for view in groupwise(**parameters).spec().views]
        for view in views:
            one, other = (epochs_of(result, f"{name}{form}.{view}") for form in ("", "_arrow"))
            assert one == other, name
            assert any(one), f"{name}: nothing was compared"


@settings(max_examples=examples(15))
@given(name=st.sampled_from(sorted(READS_CHANGES)), seed=st.integers(0, 1 << 32))
def test_both_forms_take_any_signs(name: str, seed: int) -> None:
    """Copies that go before they come, and twice: the same changes and the same state."""
    groupwise, parameters = stages()[name]
    dice = random.Random(seed)
    stage = groupwise(**parameters)
    epochs = [signed(dice, stage.spec()) for _ in range(4)]
    one, other = (run_epochs(form(**parameters), epochs) for form in (groupwise, FORMS[groupwise]))
    for output in one.outputs:
        assert epochs_of(one, output) == epochs_of(other, output)
    for state in one.state:
        assert sorted(map(repr, comparable(one.state[state]))) == sorted(
            map(repr, comparable(other.state[state]))
        )


@settings(max_examples=examples(13))
@given(
    name=st.sampled_from(sorted(READS_CHANGES)), columns=st.booleans(), seed=st.integers(0, 1 << 32)
)
def test_neither_form_depends_on_the_split(name: str, columns: bool, seed: int) -> None:
    """Any split of signed records gives the views and the state of one batch."""
    groupwise, parameters = stages()[name]
    stage = (FORMS[groupwise] if columns else groupwise)(**parameters)
    dice = random.Random(seed)
    check_split(stage, history(dice, stage.spec()))


def test_columns_can_have_names_that_python_has_taken() -> None:
    """Keywords, and the names of methods of a record: the results of plain names."""
    plain, odd = played(1), played(1, lambda name: KEYWORDS.get(name, name))
    assert plain.outputs.keys() == odd.outputs.keys()
    for flow in plain.outputs:
        assert epochs_of(plain, flow) == epochs_of(odd, flow), flow


WRONG: list[tuple[str, Mapping[str, Any], str]] = [
    ("join_inner", {"how": "outer"}, "parameter_invalid"),
    ("join_inner", {"on": "nothing"}, "parameter_invalid"),
    ("join_inner", {"left_key": "nothing"}, "parameter_invalid"),
    ("join_inner", {"right_key": "nothing"}, "parameter_invalid"),
    ("join_inner", {"left": "_id INT, pair STRING", "left_key": "_id"}, "column_reserved"),
    ("bags_inner", {"left": "pair STRING, copies INT"}, "column_twice"),
    ("as_of", {"at": "nothing"}, "parameter_invalid"),
    ("as_of", {"at": "cents"}, "parameter_invalid"),
    ("as_of", {"since": "rate"}, "parameter_invalid"),
    ("as_of", {"right": "pair STRING, since TIMESTAMP, place INT"}, "column_twice"),
    ("dimension", {"how": "anti"}, "parameter_invalid"),
    ("dimension", {"on": "nothing"}, "parameter_invalid"),
    ("dimension", {"on": "label"}, "parameter_invalid"),
    ("dimension", {"key": "nothing"}, "parameter_invalid"),
    ("best", {"k": 0}, "parameter_invalid"),
    ("best", {"by": "pair"}, "parameter_invalid"),
    ("best", {"by": "nothing"}, "parameter_invalid"),
    ("best", {"key": "nothing"}, "parameter_invalid"),
    ("best", {"group": "nothing"}, "parameter_invalid"),
    ("windows", {"at": "nothing"}, "parameter_invalid"),
    ("windows", {"by": "nothing"}, "parameter_invalid"),
    ("windows", {"add": "nothing"}, "parameter_invalid"),
    ("sessions", {"at": "pair"}, "parameter_invalid"),
    ("sessions", {"by": "nothing"}, "parameter_invalid"),
    ("firsts", {"at": "id"}, "parameter_invalid"),
    ("latest", {"gone": "nothing"}, "parameter_invalid"),
]


@pytest.mark.parametrize(("name", "changed", "code"), WRONG)
def test_a_wrong_parameter_is_refused_by_both_forms(
    name: str, changed: Mapping[str, Any], code: str
) -> None:
    """A name of no column, a column of a wrong type, a kind that there is not."""
    groupwise, parameters = stages()[name]
    for form in (groupwise, FORMS[groupwise]):
        made: type[Declared] = form
        with pytest.raises(DefinitionError) as error:
            made(**{**parameters, **changed}).spec()
        assert error.value.mistake.code == code
