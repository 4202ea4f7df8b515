"""`cbp gc`, and the routes below it: what goes, and why the rest stays."""

from __future__ import annotations

import pytest

from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp


@pytest.fixture(autouse=True)
def _filled(service: Service) -> None:
    service.fill()


def test_a_dry_run_tells_and_removes_nothing(cbp: Cbp, service: Service) -> None:
    """Places with files, bytes and reasons, of what goes and of what stays."""
    outcome = cbp("gc", "--dry-run")
    assert outcome.status == 0, outcome.err
    for words in (
        "would be removed",
        "kept",
        "in the newest version of the table",
        "waits in a queue",
        "outputs/count.totals",
        "run of its stage",
    ):
        assert words in outcome.out
    for words in ("last compactions", "8 to 1", "900 B", "800 B"):
        assert words in outcome.out
    (one,) = cbp("gc", "--dry-run", "--json").json["items"][0]["compactions"]
    assert (one["table"], one["at"]) == ("state/count.counts", "2023-11-14T22:13:20Z")
    assert service.controller.housekeeping.collected == 0
    assert service.drop_folder.cleaned == [False, False]


def test_it_collects_one_dataflow(cbp: Cbp, service: Service) -> None:
    """Tables and inputs, and the files that were taken in."""
    (answer,) = cbp("gc", "clicks", "--json").json["items"]
    assert answer["collected"]
    assert service.controller.housekeeping.collected == 1
    assert service.drop_folder.cleaned == [True]
    gone = {item["place"]: item["files"] for item in answer["items"] if item["goes"]}
    assert (answer["last"]["by"], answer["last"]["bytes"]) == ("request", 100)
    assert gone == {"state/count.counts": 1, "finished/urls": 1}
    assert cbp("gc", "nobody", "--json").json["error_code"] == "not_found"
