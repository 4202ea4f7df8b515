"""`cbp runs`, `cbp cancel`, `cbp retry`, `cbp stack`: filters, the timeline, many in one call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cbp.engine.interface.runs import ProcessStack, StackCall
from cbp.errors import RunStackUnseenError
from controller.store.base import RunRecord
from tests.controller.api.clicks import NOON
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp
from tests.controller.live import Live, live
from tests.controller.world import ONE


@pytest.fixture
def service(tmp_path: Path) -> Service:
    made = Service(tmp_path / "root")
    made.fill()
    return made


def ids(cbp: Cbp, *options: str) -> list[str]:
    outcome = cbp("runs", *options, "--json")
    assert outcome.status == 0, outcome.err
    return [run["id"] for run in outcome.json["items"]]


def test_runs_are_filtered_as_rest_does(cbp: Cbp, service: Service) -> None:
    """Failed only, by epoch, by error, and by time or age; what is no time is refused."""
    assert ids(cbp, "--failed") == ["r2"]
    assert ids(cbp, "--epoch", "0") == ["r1"]
    assert ids(cbp, "--error-code", "author_code_failed") == ["r2"]
    assert ids(cbp, "--error-code", "disk_full") == []
    assert ids(cbp, "--since", "2026-11-01") == ["r3", "r2", "r1"]
    assert ids(cbp, "--until", "2026-11-01T14:00:00+02:00") == []
    service.store.run_records = [
        replace(run, started_at=NOON - timedelta(days=4000 * (run.id == "r1")))
        for run in service.store.run_records
    ]
    assert "r1" not in ids(cbp, "--since", "3000d")
    assert cbp("runs", "--since", "yesterday").status == 2


def test_the_runs_of_a_dataflow_are_listed_by_its_name(cbp: Cbp, service: Service) -> None:
    """In the place of a run's id; a name that is neither is reported as a dataflow."""
    assert ids(cbp, "clicks", "--failed") == ["r2"]
    assert cbp("runs", "r1", "--json").json["id"] == "r1"
    outcome = cbp("runs", "nobody", "--json")
    assert (outcome.status, outcome.json["details"]["name"]) == (1, "nobody")


def test_many_runs_are_cancelled_and_each_is_reported(cbp: Cbp, service: Service) -> None:
    """Status 1 when one was refused; the others were asked to stop all the same."""
    outcome = cbp("cancel", "r3", "r1")
    assert outcome.status == 1
    assert "asked to stop" in outcome.out
    assert service.controller.asked == [("cancel", "r3")]
    asked, refused = cbp("cancel", "r3", "r1", "--json").json["items"]
    assert (asked["error"], refused["error"]["error_code"]) == (None, "run_ended")
    assert cbp("cancel", "r3", "--json").json["id"] == "r3"


def test_failed_runs_are_tried_again(cbp: Cbp, service: Service) -> None:
    """By their ids; a call that names both a stage and runs, or neither, is wrong."""
    (stage,) = service.store.stage_records
    service.store.stage_records = [replace(stage, epoch=1)]
    outcome = cbp("retry", "--run", "r2", "--run", "r1", "--json")
    assert outcome.status == 1
    assert [item["status"] for item in outcome.json["items"]] == [202, 409]
    assert cbp("retry", "--run", "r2").status == 0
    assert service.controller.asked == [("retry", "clicks", "count")] * 2
    for wrong in (["clicks", "count", "--run", "r2"], ["clicks"], []):
        assert cbp("retry", *wrong).status == 2


def test_the_stack_of_a_run_begins_with_the_authors_code(cbp: Cbp, service: Service) -> None:
    """By the run, or all runs of the dataflow that are under way; what else can be is said."""
    engine, author = StackCall("/srv/engine.py", 7, "run"), StackCall("/srv/count.py", 12, "read")
    below = StackCall("/usr/lib/re.py", 3, "match")
    service.controller.now_in = [
        ProcessStack(41, (engine, author, below)),
        ProcessStack(42, ()),
        ProcessStack(43, (engine,)),
    ]
    for named in ("r3", "clicks"):
        outcome = cbp("stack", named)
        assert outcome.status == 0, outcome.err
        lines = outcome.out.splitlines()
        assert "run r3: since" in lines[0]
        assert lines[1:4] == [
            "  process 41:", "    /srv/count.py:12 in read", "    /usr/lib/re.py:3 in match",
        ]  # fmt: skip
        assert "did not answer in time: it is starting or stopped" in lines[5]
        assert ("own code" in lines[7], lines[8]) == (True, "    /srv/engine.py:7 in run")
    (item,) = cbp("stack", "clicks", "--json").json["items"]
    assert [one["pid"] for one in item["processes"]] == [41, 42, 43]
    service.controller.now_in = []
    assert "no worker process" in cbp("stack", "r3").out
    assert "has ended (COMMITTED)" in cbp("stack", "r1").out
    assert cbp("stack", "nobody").status == 1
    service.store.run_records = [run for run in service.store.run_records if run.id != "r3"]
    assert "no run of clicks is under way" in cbp("stack", "clicks").out


def test_a_run_that_cannot_be_asked_hides_no_other(
    cbp: Cbp, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why it cannot be is said in its place; nothing can be shown if that is so of all."""
    under_way = next(run for run in service.store.run_records if run.id == "r3")
    service.store.run_records.append(replace(under_way, id="r4"))
    unseen = {"r4"}

    def stacks(run: RunRecord) -> list[ProcessStack]:
        if run.id in unseen:
            raise RunStackUnseenError(run.id)
        return [ProcessStack(41, (StackCall("/srv/count.py", 12, "read"),))]

    monkeypatch.setattr(service.controller, "stacks", stacks)
    outcome = cbp("stack", "clicks")
    assert outcome.status == 0, outcome.err
    assert "    /srv/count.py:12 in read" in outcome.out.splitlines()
    assert "py-spy dump" in outcome.out
    items = {one["run"]: one for one in cbp("stack", "clicks", "--json").json["items"]}
    assert items["r4"]["error"]["error_code"] == "run_stack_unseen"
    assert items["r3"]["processes"][0]["pid"] == 41
    unseen.add("r3")
    assert cbp("stack", "clicks").status == 1
    assert cbp("stack", "r3").status == 1


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Live]:
    made = live(tmp_path / "real")
    made.world.controller.register(ONE)
    made.world.arrive("one", "a", ("x", 1))
    made.world.ticks()
    yield made
    made.world.close()


def test_the_timeline_of_a_run_is_printed(cbp: Cbp, real: Live) -> None:
    """In `cbp runs RUN` and in `cbp explain --run RUN`; its beginnings are no figures."""
    (run,) = real.world.store.runs("one").items
    for command in (["runs", run.id], ["explain", "--run", run.id]):
        outcome = cbp(*command, session=real.session)
        assert outcome.status == 0, outcome.err
        for phase in ("start", "plan", "job", "assemble", "finish"):
            assert f"\n{phase} " in outcome.out
        assert "begin_" not in outcome.out
