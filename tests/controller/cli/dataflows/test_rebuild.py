"""`cbp rebuild`: which rebuild its options are about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp


@pytest.mark.parametrize("under_way", [False, True])
def test_a_failed_rebuild_can_be_cancelled(cbp: Cbp, service: Service, under_way: bool) -> None:
    """If it is the newest one; that ends its alert. One under way comes first."""
    service.fill()
    jobs = service.controller.rebuild_jobs
    failed = replace(jobs.show("clicks", "n7"), status="failed")
    jobs.under_way, jobs.ended = under_way, [failed]
    outcome = cbp("rebuild", "clicks", "--cancel", "--json")
    assert outcome.status == 0, outcome.err
    assert (outcome.json["id"], outcome.json["status"]) == (
        "n0" if under_way else "n7",
        "cancelled",
    )
    jobs.under_way, jobs.ended = False, [replace(failed, status="swapped"), failed]
    assert cbp("rebuild", "clicks", "--cancel").status == 1
