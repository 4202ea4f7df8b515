"""`cbp top`: what all dataflows do now, printed once, or refreshed until a key ends it."""

from __future__ import annotations

from typing import Any

import pytest

from cbp.errors import NotFoundError
from controller.cli.dataflows.top import draw, refresh
from controller.store.base import StageRecord
from tests.controller.api.clicks import NOON
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp


@pytest.fixture(autouse=True)
def _filled(service: Service) -> None:
    service.fill()


def test_without_a_terminal_it_is_printed_once(cbp: Cbp) -> None:
    """Stages with what waits, runs under way, the newest errors; nothing is asked twice."""
    outcome = cbp("top")
    assert (outcome.status, outcome.err) == (0, "")
    for words in ("clicks.count", "r3", "author_code_failed", "boom"):
        assert words in outcome.out
    assert "no dataflow yet" not in outcome.out


def test_the_answer_is_what_the_service_does(cbp: Cbp, service: Service) -> None:
    """What waits is the queues' sum; a run that ends is no longer under way."""
    answer = cbp("top", "--json").json
    (one,) = answer["dataflows"]
    (stage,) = one["stages"]
    assert (stage["queued_increments"], stage["queued_records"]) == (2, 7)
    assert [run["id"] for run in answer["running"]] == ["r3"]
    assert [(error["run"], error["error"]["message"]) for error in answer["errors"]] == [
        ("r2", "boom")
    ]
    service.store.run_records = service.store.run_records[1:]
    service.store.stage_records[:] = [StageRecord("clicks", "count", 7, NOON, failures=3)]
    answer = cbp("top", "clicks", "--json").json
    assert answer["running"] == []
    assert answer["dataflows"][0]["stages"][0]["failures"] == 3
    assert cbp("top", "nobody").status == 1


def test_it_is_refreshed_until_a_key_ends_it(cbp: Cbp) -> None:
    """One look for each tick; an error is shown and does not end it; other keys do nothing."""
    answer = cbp("top", "--json").json
    looks: list[Any] = [answer, NotFoundError(kind="dataflow", name="x"), answer, answer]
    shown: list[str] = []
    keys = iter(["", "x", "", "q"])

    def look() -> Any:
        one = looks.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    refresh(
        look,
        lambda picture: shown.append(picture.plain),
        lambda seconds: next(keys),
        every=2,
        size=lambda: (80, 24),
    )
    assert not looks
    assert ["clicks.count" in one for one in shown] == [True, False, True, True]
    assert "there is no dataflow 'x'" in shown[1]


@pytest.mark.parametrize("height", [5, 10, 60])
def test_the_picture_fits_the_terminal(cbp: Cbp, height: int) -> None:
    """In columns and lines, with how it ends in the last one."""
    answer = cbp("top", "--json").json
    answer["dataflows"] *= 30
    lines = draw(answer, 70, height).plain.splitlines()
    assert len(lines) <= height
    assert max(map(len, lines)) <= 70
    assert lines[-1] == "q quits"
