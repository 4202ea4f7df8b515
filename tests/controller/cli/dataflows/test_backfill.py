"""`cbp backfill`: a change to the same document that makes state again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cbp.model.version.version_change import Choice
from tests.controller.api.clicks import DOCUMENT
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp


@pytest.fixture(autouse=True)
def _filled(service: Service) -> None:
    service.fill()


@pytest.mark.parametrize("dry_run", [True, False])
def test_it_is_a_change_of_this_very_version(cbp: Cbp, service: Service, dry_run: bool) -> None:
    """Stages are rebuilt, readers kept, at the version that was read, or only planned."""
    more = ["--dry-run"] if dry_run else []
    outcome = cbp("backfill", "clicks", "count", *more, "--json")
    assert outcome.status == 0, outcome.err
    states = {stage["name"]: stage["state"] for stage in outcome.json["stages"]}
    assert states["count"] == "rebuilt"
    assert cbp("backfill", "clicks", "count", *more).status == 0
    chosen = Choice(rebuild=frozenset({"count"}))
    assert service.controller.asked == [("change", chosen, 1, dry_run)] * 2


def test_a_stage_that_is_none_is_refused(cbp: Cbp) -> None:
    """With the reason; nothing happens."""
    outcome = cbp("backfill", "clicks", "nobody", "--json")
    refused = outcome.json.get("refused") or [outcome.json]
    assert "nobody" in str(refused)
    for more in ((), ("--json",)):
        planned = cbp("backfill", "clicks", "nobody", "--dry-run", *more)
        assert (planned.status, "nobody" in planned.out) == (1, True), planned.err
    assert cbp("backfill", "nobody", "count", "--json").json["error_code"] == "not_found"


@pytest.mark.parametrize(
    "command", [("backfill", "clicks", "count"), ("register", "clicks.json", "--rebuild", "count")]
)
def test_it_waits_until_the_rebuilt_stage_has_read_all(
    cbp: Cbp, service: Service, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """What is looked up behind it is there; a plan has nothing to wait for."""
    (tmp_path / "clicks.json").write_text(json.dumps(DOCUMENT))
    command = tuple(str(tmp_path / one) if one.endswith(".json") else one for one in command)
    left = [{"count": "may run"}, {"count": "runs"}, {}]
    service.controller.explaining.left = lambda name, waits=None: left.pop(0)  # type: ignore[method-assign]
    plan = "--plan" if command[0] == "register" else "--dry-run"
    assert cbp(*command, "--wait", plan).status == 0
    assert len(left) == 3
    outcome = cbp(*command, "--wait")
    assert (outcome.status, left) == (0, []), outcome.err
