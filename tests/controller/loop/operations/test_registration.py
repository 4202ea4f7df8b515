"""Names, folders and documents that a controller takes or refuses."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from cbp.errors import (
    AlreadyExistsError,
    DataflowInvalidError,
    TableForeignError,
)
from tests.controller.world import DIAMOND, ONE, World, only_stage


def test_a_name_is_taken_once(world: World) -> None:
    """A second registration of a name is refused and changes nothing."""
    world.controller.register(ONE)
    with pytest.raises(AlreadyExistsError):
        world.controller.register(DIAMOND | {"name": "one"})
    assert world.store.dataflow("one").document == ONE


def test_validation_changes_nothing(world: World) -> None:
    """Validate answers like register and leaves no trace."""
    assert world.controller.validate(ONE).name == "one"
    with pytest.raises(DataflowInvalidError):
        world.controller.validate({"name": "one"})
    assert world.store.dataflows() == []
    assert world.files.list_names(world.tables) == []


@pytest.mark.parametrize("what", ["file", "other dataflow"])
def test_a_folder_that_holds_something_else_is_left_alone(world: World, what: str) -> None:
    """Nothing is written into a folder that is not this dataflow's."""
    folder = Path(world.tables) / "one"
    if what == "file":
        folder.mkdir(parents=True)
        (folder / "thesis.txt").write_text("precious")
    else:
        world.controller.register(DIAMOND | {"name": "one"})
        world.controller.delete("one")
    before = sorted(path.name for path in folder.rglob("*"))
    with pytest.raises(TableForeignError):
        world.controller.register(ONE)
    assert sorted(path.name for path in folder.rglob("*")) == before
    assert world.store.dataflows() == []


def test_an_empty_folder_may_be_used(world: World) -> None:
    """A folder that an operator has made beforehand is no obstacle."""
    (Path(world.tables) / "one").mkdir(parents=True)
    assert world.controller.register(ONE).name == "one"


def test_a_document_that_json_cannot_hold_is_refused(world: World) -> None:
    """What is registered must be what the description says."""
    document = copy.deepcopy(ONE) | {"description": {1, 2}}
    with pytest.raises(DataflowInvalidError) as caught:
        world.controller.register(document)
    assert caught.value.mistakes[0].code == "document_invalid"
    assert world.store.dataflows() == []


def test_a_dataflow_whose_translator_is_gone_stops_only_itself(world: World) -> None:
    """An uninstalled package is a reason to wait, not the end of the loop."""
    world.controller.register(ONE)
    world.controller.register(DIAMOND)
    del world.translators["join"]
    world.restart()
    world.controller.recover()
    world.arrive("one", "a", ("x", 1))
    world.ticks()
    assert only_stage(world).epoch == 1
    assert "there is no translator 'join'" in world.controller.waiting("diamond")["left"]
