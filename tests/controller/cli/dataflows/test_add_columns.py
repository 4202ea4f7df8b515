"""`cbp quarantine add-columns`: what refused files suggest is declared, once that is confirmed."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest

from controller.cli.dataflows import add_columns
from controller.cli.dataflows.add_columns import proposed_columns
from controller.store.base import ClaimRecord
from tests.controller.api.clicks import NOON
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp

ADD = ("quarantine", "add-columns", "clicks", "urls")


def refused(number: int, *columns: str) -> ClaimRecord:
    reason = {"code": "column_unknown", "message": "new", "new_columns": list(columns)}
    name = f"{number}.jsonl"
    claim = ClaimRecord(f"c{number}", "clicks", "urls", number, name, 9, "quarantined", NOON)
    return replace(claim, reason=reason)


@pytest.fixture
def files(service: Service) -> list[ClaimRecord]:
    service.fill()
    service.store.claim_records = [
        refused(6, "device STRING"),
        refused(5, "devcie STRING"),
        refused(4, "device STRING", "at DOUBLE"),
    ]
    return service.store.claim_records


def test_columns_come_in_the_order_of_the_files() -> None:
    """With the type that all files agree on; a column on whose type they do not is disputed."""
    reasons = [{"new_columns": ["b INT", "a STRING"]}, {}, {"new_columns": ["a DOUBLE", "c INT"]}]
    assert proposed_columns(reasons) == ({"b": "b INT", "c": "c INT"}, {"a": ["STRING", "DOUBLE"]})


@pytest.fixture(autouse=True)
def admitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Take down which files are admitted, in order; the guide on formats admits real ones."""
    ids = list[str]()
    monkeypatch.setattr(
        add_columns,
        "readmit_many",
        lambda session, dataflow, take, claims, applied: ids.extend(claims),
    )
    return ids


@pytest.mark.usefixtures("files")
def test_nothing_changes_before_it_is_confirmed(
    cbp: Cbp, service: Service, admitted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run, and a question that is answered by no, only ask the service for the plan."""
    assert cbp(*ADD, "--dry-run").status == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert cbp(*ADD).status == 0
    assert admitted == []
    dry = [one[-1] for one in service.controller.asked if one[0] == "change"]
    assert dry == [True, True]
    shown = cbp(*ADD, "--dry-run").out
    assert "+ device STRING" in shown
    assert "+ at DOUBLE" in shown


@pytest.mark.usefixtures("files")
def test_chosen_columns_admit_the_files_that_need_no_other(
    cbp: Cbp, service: Service, admitted: list[str]
) -> None:
    """A misspelt column stays out, and so does its file; the oldest file comes first."""
    outcome = cbp(*ADD, "--only", "device", "--only", "at", "--yes")
    assert outcome.status == 0, outcome.err
    assert [one[-2:] for one in service.controller.asked if one[0] == "change"] == [
        (1, True),
        (1, False),
    ]
    assert "devcie" not in outcome.out
    assert admitted == ["c4", "c6"]


def test_files_that_disagree_are_left_to_the_author(
    cbp: Cbp, service: Service, files: list[ClaimRecord]
) -> None:
    """Both types are named; nothing is asked of the service."""
    files.append(refused(3, "device BIGINT"))
    outcome = cbp(*ADD, "--yes")
    assert outcome.status == 1
    assert "device: files suggest different types (BIGINT and STRING)" in outcome.err
    assert service.controller.asked == []


@pytest.mark.usefixtures("files")
def test_without_such_a_file_there_is_nothing_to_add(cbp: Cbp) -> None:
    """It ends with 1, as a script wants to know."""
    outcome = cbp(*ADD, "--only", "color", "--yes")
    assert (outcome.status, outcome.out) == (1, "")
    assert "no file of urls was refused" in outcome.err
