"""What REST and the commands say of look-ups: which table, by what, and as of which moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controller.cli.conftest import Cbp
from tests.controller.live import Live, live
from tests.controller.shop import DOCUMENT, TRANSLATORS


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Live]:
    made = live(tmp_path, translators=TRANSLATORS)
    made.world.controller.register(DOCUMENT)
    yield made
    made.world.close()


def arrive(service: Live, *arrivals: tuple[str, tuple[str, int]]) -> None:
    for source, row in arrivals:
        service.world.arrive("shop", source, row)
        service.world.clock.advance(1)
        service.world.ticks()


def rest(service: Live, *path: str) -> Any:
    with service.session.connect() as client:
        return client.get(*path)


def test_a_stage_names_its_look_ups(service: Live) -> None:
    """A look-up is shown with its table, and is no input; its changes are, where it wakes."""
    stages = {one["name"]: one for one in rest(service, "dataflows", "shop")["stages"]}
    columns = "word STRING, n BIGINT"
    told = {"name": "words", "table": "newest.newest", "by": ["word"], "key": []}
    assert stages["joined"]["lookups"] == [{**told, "columns": columns, "wakes": False}]
    assert stages["paired"]["lookups"] == [{**told, "columns": columns, "wakes": True}]
    assert stages["newest"]["lookups"] == []
    assert stages["joined"]["inputs"] == {"orders": "orders"}
    assert stages["paired"]["inputs"] == {"orders": "orders", "words_changes": "newest.newest"}


def test_a_document_is_told_with_its_look_ups(service: Live) -> None:
    """Also before it is registered."""
    with service.session.connect() as client:
        shown = client.post_json("dataflows", "validate", value={**DOCUMENT, "name": "other"})
    assert shown["lookups"]["joined"] == {"words": "newest.newest"}
    assert shown["lookups"]["newest"] == {}


def test_the_moment_of_the_last_run_is_told(service: Live, cbp: Cbp) -> None:
    """It is that of the run's record: nothing before the first run, and later that of the last."""
    assert rest(service, "dataflows", "shop", "stages", "joined")["moments"] == {}
    assert "no run yet" in cbp("stage", "shop", "joined", session=service.session).out
    arrive(service, ("orders", ("a", 1)))
    detail = rest(service, "dataflows", "shop", "stages", "joined")
    assert detail["moments"]["words"]["epoch"] == -1
    assert "before epoch 0" in cbp("stage", "shop", "joined", session=service.session).out
    arrive(service, ("words", ("a", 4)), ("words", ("b", 5)), ("orders", ("a", 2)))
    moment = rest(service, "dataflows", "shop", "stages", "joined")["moments"]["words"]
    assert moment["epoch"] == 1
    shown = cbp("stage", "shop", "joined", session=service.session).out
    assert f"epoch 1 (version {moment['version']})" in shown
    assert "newest.newest" in shown
    assert rest(service, "dataflows", "shop", "stages", "newest")["moments"] == {}


def test_the_plan_and_a_run_say_what_is_looked_up(service: Live, cbp: Cbp) -> None:
    """A look-up is no state of the stage; a run names table, epoch and version."""
    arrive(service, ("words", ("a", 4)), ("orders", ("a", 2)))
    (plan,) = (
        stage
        for unit in rest(service, "dataflows", "shop", "plan")["plan"]["units"]
        for stage in unit["stages"]
        if stage["name"] == "joined"
    )
    (lookup,) = plan["lookups"]
    assert (lookup["table"], lookup["by"], lookup["wakes"]) == ("newest.newest", ["word"], False)
    assert plan["states"] == []
    shown = cbp("explain", "shop", session=service.session).out
    assert "looks up newest.newest as words by word: read by the keys" in shown
    run = service.world.store.runs("shop", stage="joined", limit=1).items[0].id
    account = cbp("explain", "--run", run, "--json", session=service.session).json
    moment = rest(service, "dataflows", "shop", "stages", "joined")["moments"]["words"]
    named = {"stage": "joined", "lookup": "words", "table": "newest.newest"}
    assert account["lookups"] == [{**named, **moment}]
    shown = cbp("explain", "--run", run, session=service.session).out
    assert "joined.words" in shown
