"""`unknown: add`: columns that files bring join the schema of their source without a question."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.errors import DataflowBusyError
from cbp.model.verification import Request
from controller.app import Service
from controller.loop.operations.added_columns import with_added_columns
from controller.settings import load_settings
from controller.store.access import AuditFilter
from tests.controller.small_app import DOCUMENT, TOKEN, count
from tests.controller.world import until

ADDING: dict[str, Any] = copy.deepcopy(DOCUMENT)
ADDING["sources"]["visits"]["options"] = {"unknown": "add"}
WIDER = "url STRING, user STRING"


def service_of(root: Path, **settings: Any) -> Service:
    return Service(
        load_settings(
            root=root,
            engine="local",
            reader_processes=False,
            worker_processes=False,
            token=TOKEN,
            settle_seconds=0,
            scan_seconds=3600,
            **settings,
        )
    )


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = service_of(tmp_path)
    service.controller.register(ADDING)
    service.lead()
    yield service
    service.stop()


def drop(service: Service, name: str, *records: Any) -> None:
    incoming = service.settings.drop_root / "urls" / "visits" / "incoming"
    lines = "".join(one if isinstance(one, str) else json.dumps(one) + "\n" for one in records)
    (incoming / name).write_text(lines)


def settle(service: Service) -> None:
    for _ in range(3):  # read, read again with the columns, and whatever waited behind
        service.scan()
        service.controller.tick()
        service.parts.in_flight.wait(timeout=120)


def outcomes(service: Service) -> dict[str, str]:
    return {one.path: one.status for one in service.store.claims("urls", limit=50).items}


def schema(service: Service) -> str:
    return str(service.store.dataflow("urls").document["sources"]["visits"]["schema"])


def reason(service: Service, name: str) -> dict[str, Any]:
    claims = service.store.claims("urls", limit=50).items
    return dict(next(one.reason or {} for one in claims if one.path == name))


def records(service: Service, index: int) -> list[dict[str, Any]]:
    return service.controller.reading.read_increment("urls", "visits", index, 0, 10)[0]


def test_a_new_column_becomes_a_version_and_nobody_is_asked(service: Service) -> None:
    """The file is taken in with it, and the audit log says which file brought it."""
    drop(service, "a.jsonl", {"url": "/"})
    settle(service)
    drop(service, "b.jsonl", {"url": "/", "user": "ann"})
    settle(service)
    assert outcomes(service) == {"a.jsonl": "accepted", "b.jsonl": "accepted"}
    assert (schema(service), service.store.dataflow("urls").version) == (WIDER, 2)
    assert count(service, "/") == 2
    assert records(service, 1) == [{"url": "/", "user": "ann"}]
    (entry,) = service.store.audit(AuditFilter(), cursor=None, limit=10).items
    assert (entry.actor, entry.action, entry.dataflow) == ("service", "columns_add", "urls")
    assert "b.jsonl has the new columns user STRING" in entry.reason
    assert entry.target["version"] == "2"


def test_the_files_behind_keep_their_order(service: Service) -> None:
    """A file with a column waits where it is, so nothing behind it goes first."""
    for number in range(4):
        drop(service, f"{number}.jsonl", {"url": f"/{number}", **({"user": "u"} if number else {})})
    settle(service)
    held = [records(service, index)[0]["url"] for index in range(4)]
    assert held == ["/0", "/1", "/2", "/3"]


def test_files_of_a_manifest_wait_together(service: Service) -> None:
    """They are one increment with the columns of all."""
    incoming = service.settings.drop_root / "urls" / "visits" / "incoming"
    texts = {"a.jsonl": '{"url": "/a"}\n', "b.jsonl": '{"url": "/b", "user": "ann"}\n'}
    for name, text in texts.items():
        (incoming / name).write_text(text)
    files = [{"name": name, "bytes": len(text)} for name, text in texts.items()]
    (incoming / "_MANIFEST.json").write_text(json.dumps({"files": files}))
    settle(service)
    assert sorted(one["url"] for one in records(service, 0)) == ["/a", "/b"]
    assert schema(service) == WIDER


def test_a_bad_file_adds_no_column(service: Service) -> None:
    """What would be refused with the column too is refused at once; a STRUCT gets no key more."""
    drop(service, "a.jsonl", {"url": "/", "user": "ann"}, "no JSON\n")
    settle(service)
    assert outcomes(service) == {"a.jsonl": "quarantined"}
    assert (schema(service), service.store.dataflow("urls").version) == ("url STRING", 1)


def test_rows_that_are_put_aside_are_not_those_with_new_columns(tmp_path: Path) -> None:
    """Where wrong records are put aside, a new column is still added for the whole file."""
    document: dict[str, Any] = copy.deepcopy(ADDING)
    document["sources"]["visits"]["on_bad_records"] = "reject_rows"
    service = service_of(tmp_path)
    service.controller.register(document)
    service.lead()
    drop(service, "a.jsonl", {"url": "/", "user": "ann"}, {"url": 7})
    settle(service)
    service.stop()
    assert outcomes(service) == {"a.jsonl": "accepted"}
    assert schema(service) == WIDER


def test_a_version_that_cannot_be_refuses_the_file_with_the_reason(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes to quarantine, and can be admitted by hand; a file without the column goes on."""
    change = service.controller.change

    def refuse(document: Any, *args: Any, **more: Any) -> Any:
        document = copy.deepcopy(dict(document))
        document["stages"]["count"]["buckets"] = 3
        return change(document, *args, **more)

    monkeypatch.setattr(service.controller, "change", refuse)
    drop(service, "a.jsonl", {"url": "/", "user": "ann"})
    drop(service, "b.jsonl", {"url": "/"})
    settle(service)
    assert outcomes(service) == {"a.jsonl": "quarantined", "b.jsonl": "accepted"}
    said = reason(service, "a.jsonl")
    assert said["code"] == "column_unknown"
    assert said["new_columns"] == ["user STRING"]
    assert "`unknown: add`, but the service could not add the columns" in said["message"]
    assert "power of two" in said["message"]


def test_a_version_that_would_change_a_stage_is_left_to_the_author(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the code on disk is another: the file waits in quarantine for a registration."""
    change = service.controller.change

    def other(document: Any, *args: Any, **more: Any) -> Any:
        document = copy.deepcopy(dict(document))
        document["stages"]["again"] = document["stages"]["count"]
        return change(document, *args, **more)

    monkeypatch.setattr(service.controller, "change", other)
    drop(service, "a.jsonl", {"url": "/", "user": "ann"})
    settle(service)
    assert "stages.again" in reason(service, "a.jsonl")["message"]
    assert service.store.dataflow("urls").version == 1


def test_a_busy_dataflow_is_tried_again(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file stays claimed, and the source says why it takes in nothing."""
    change, tries = service.controller.change, []

    def busy(document: Any, *args: Any, **more: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise DataflowBusyError("urls", "a run has not ended")
        return change(document, *args, **more)

    monkeypatch.setattr(service.controller, "change", busy)
    drop(service, "a.jsonl", {"url": "/", "user": "ann"})
    service.scan()
    assert "a run has not ended" in service.drop_folder.troubled("urls")[0]
    assert outcomes(service) == {"a.jsonl": "claimed"}
    settle(service)
    assert outcomes(service) == {"a.jsonl": "accepted"}
    assert service.drop_folder.troubled("urls") == []


def test_columns_outlive_a_restart_a_roll_back_and_a_verification(tmp_path: Path) -> None:
    """A restart reads the new version; a roll-back to before the file applies it again."""
    service = service_of(tmp_path)
    service.controller.register(ADDING)
    service.lead()
    drop(service, "a.jsonl", {"url": "/"})
    settle(service)
    drop(service, "b.jsonl", {"url": "/", "user": "ann"})
    service.scan()
    service.stop()
    service = service_of(tmp_path)
    service.lead()
    settle(service)
    assert (schema(service), count(service, "/")) == (WIDER, 2)
    drop(service, "c.jsonl", {"url": "/c", "user": None})
    settle(service)
    (newest, *_) = service.controller.amendments.moments("urls", limit=3)
    service.controller.amendments.roll_back(
        "urls", str(newest.point.number - 1), who="", why="a try"
    )
    settle(service)
    assert (schema(service), count(service, "/c")) == (WIDER, 1)
    verifications = service.controller.verifications
    begun = verifications.start("urls", Request())
    until(lambda: verifications.show(begun.id).ended)
    assert verifications.show(begun.id).status == "equal"
    service.stop()


def test_a_version_that_does_not_name_them_keeps_them() -> None:
    """A document that its author sends again is no removal; one that no longer adds is."""
    registered = copy.deepcopy(ADDING)
    registered["sources"]["visits"]["schema"] = "url STRING NOT NULL, user STRING, at TIMESTAMP"
    again = with_added_columns(registered, ADDING)
    assert again["sources"]["visits"]["schema"] == "url STRING, user STRING, at TIMESTAMP"
    own = copy.deepcopy(ADDING)
    own["sources"]["visits"]["schema"] = "url STRING, USER BIGINT"
    assert with_added_columns(registered, own)["sources"]["visits"]["schema"] == (
        "url STRING, USER BIGINT, at TIMESTAMP"
    )
    assert with_added_columns(registered, DOCUMENT) == DOCUMENT
    broken: list[Any] = [None, [], {"sources": 7}, {"sources": {"visits": 3, "other": {}}}]
    for wrong in broken:
        assert with_added_columns(registered, wrong) == wrong
    unreadable = copy.deepcopy(ADDING)
    unreadable["sources"]["visits"]["schema"] = "url NOTHING"
    assert with_added_columns(registered, unreadable) == unreadable
