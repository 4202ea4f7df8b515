"""`cbp backfill`: a change to the same document that makes state again."""

from __future__ import annotations

import pytest

from cbp.model.version.version_change import Choice
from tests.controller.api.fakes import Service
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
