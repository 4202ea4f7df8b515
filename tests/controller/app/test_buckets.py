"""A source whose files lie in a bucket, through the whole service, and an S3 service over HTTP."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from cbp.errors import DataflowInvalidError
from controller.app import Service
from controller.app.asgi import api_of
from controller.app.logs import configure_logging
from controller.settings import Settings, load_settings
from tests.controller.api.app_transport import AppTransport
from tests.controller.bucket_server import KEY, SECRET, BucketServer
from tests.controller.small_app import TOKEN, count, drop
from tests.controller.world import until


def document(location: str, name: str = "urls") -> dict[str, Any]:
    return {
        "name": name,
        "sources": {"visits": {"schema": "url STRING", "location": location}},
        "stages": {
            "count": {"translator": "url_count", "inputs": {"urls": "visits"}, "buckets": 2}
        },
    }


def settings_of(root: Path, server: BucketServer, **more: Any) -> Settings:
    given: dict[str, Any] = {
        "root": root,
        "engine": "local",
        "reader_processes": False,
        "worker_processes": False,
        "token": TOKEN,
        "settle_seconds": 0,
        "scan_seconds": 0.05,
        "source_locations": server.location("orders/"),
        "source_list_seconds": 1,
        "s3_endpoint": server.url,
        "s3_access_key_id": SecretStr(KEY),
        "s3_secret_access_key": SecretStr(SECRET),
        "drain_seconds": 5,
    }
    return load_settings(**given | more)


@pytest.fixture(scope="module")
def servers() -> Iterator[BucketServer]:
    with BucketServer() as made:
        yield made


@pytest.fixture
def server(servers: BucketServer) -> BucketServer:
    return servers.begin()


@pytest.fixture
def service(server: BucketServer, tmp_path: Path) -> Iterator[Service]:
    made = Service(settings_of(tmp_path, server))
    yield made
    made.stop()


@contextmanager
def client_of(service: Service) -> Iterator[httpx.Client]:
    app = api_of(service)
    app.state.parts.events.stop()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"{service.settings.url}/api/v1/"
    with httpx.Client(transport=AppTransport(app), base_url=url, headers=headers) as client:
        yield client


def line(url: str) -> bytes:
    return json.dumps({"url": url}).encode() + b"\n"


def test_objects_are_counted_while_the_service_runs(service: Service, server: BucketServer):
    """Those that are there at the registration, and those that come later; each once."""
    server.put("orders/a", line("a"))
    service.start()
    service.controller.register(document(server.location()))
    until(lambda: count(service, "a") == 1)
    server.put("orders/b", line("b"))
    until(lambda: count(service, "b") == 1)
    lists = server.lists
    until(lambda: server.lists > lists)
    assert set(server.gets.values()) == {1}
    assert count(service, "a") == 1


def test_rest_shows_what_a_location_has(service: Service, server: BucketServer):
    """And why nothing comes from it."""
    service.leadership.begin()
    service.controller.lead(service.leadership.epoch)
    service.controller.register(document(server.location()))
    server.put("orders/a", line("a"))
    server.put("orders/_SUCCESS", b"")
    service.fetch()
    service.scan()
    with client_of(service) as client:
        (source,) = client.get("dataflows/urls").json()["sources"]
        assert source["location"] == server.location()
        (folder,) = client.get("dataflows/urls/sources").json()["items"]
    assert folder["files"]["accepted"] == 1
    assert folder["bucket"]["objects"] == 2
    assert [one["name"] for one in folder["bucket"]["oldest_left_out"]] == ["_SUCCESS"]
    assert folder["trouble"] is None


def test_a_location_is_refused_at_registration_unless_the_settings_allow_it(
    tmp_path: Path, server: BucketServer
):
    """By default none is allowed; and one that is allowed no more is listed no more."""
    allowed = Service(settings_of(tmp_path, server))
    allowed.leadership.begin()
    allowed.controller.lead(allowed.leadership.epoch)
    with pytest.raises(DataflowInvalidError) as caught:
        allowed.controller.register(document(server.location("customers/")))
    assert [one.code for one in caught.value.mistakes] == ["location_refused"]
    allowed.controller.register(document(server.location()))
    allowed.stop()
    denied = Service(settings_of(tmp_path, server, source_locations=()))
    denied.leadership.begin()
    denied.controller.lead(denied.leadership.epoch)
    denied.fetch()
    assert "CBP_SOURCE_LOCATIONS" in denied.drop_folder.troubled("urls")[0]
    assert server.lists == 0
    denied.controller.register(document("", "other"))
    with pytest.raises(DataflowInvalidError):
        denied.controller.register(document(server.location(), "third"))
    denied.stop()


@pytest.mark.soak
def test_a_service_that_hangs_keeps_nothing_waiting(service: Service, server: BucketServer):
    """Neither files that are dropped for the same source, nor another source's bucket."""
    hung, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        hung.set()
        go_on.wait(60)

    server.put("orders/hung/a", line("never"))
    server.put("orders/sound/a", line("sound"))
    server.on_get("orders/hung/a", hang)
    service.start()
    service.controller.register(document(server.location("orders/hung/")))
    assert hung.wait(120)
    try:
        drop(service, "dropped")
        until(lambda: count(service, "dropped") == 1)
        service.controller.register(document(server.location("orders/sound/"), "sound"))
        until(lambda: count(service, "sound", "sound") == 1)
    finally:
        go_on.set()


def test_a_deleted_dataflow_leaves_no_index_behind(service: Service, server: BucketServer):
    """It is deleted between a claim and its note; one of its name takes in every object later."""
    service.leadership.begin()
    service.controller.lead(service.leadership.epoch)
    service.controller.register(document(server.location()))
    for name in "ab":
        server.put(f"orders/{name}", line(name))

    def is_claimed() -> bool:
        return any(c.status == "claimed" for c in service.store.open_claims("urls", "visits"))

    def delete() -> None:
        until(is_claimed)
        service.controller.delete("urls", purge=True)

    server.on_get("orders/b", delete)
    service.fetch()
    assert server.gets == {"orders/a": 1, "orders/b": 1}
    assert not Path(service.settings.tables, "urls").exists()
    service.controller.register(document(server.location()))
    service.fetch()
    service.scan()
    (folder,) = service.drop_folder.look(
        service.store.dataflow("urls"), service.controller.dataflow("urls")
    )
    assert folder["bucket"]["objects"] == 2
    assert len(service.store.increments("urls", "visits").items) == 2


def test_without_its_package_a_location_says_what_to_install(
    service: Service, server: BucketServer, monkeypatch: pytest.MonkeyPatch
):
    """The service starts without it, and everything else works."""
    monkeypatch.setitem(sys.modules, "s3fs", None)
    service.leadership.begin()
    service.controller.lead(service.leadership.epoch)
    service.controller.register(document(server.location()))
    service.fetch()
    (trouble,) = service.drop_folder.troubled("urls")
    assert "cbp[s3]" in trouble
    drop(service, "a")
    service.scan()
    assert service.store.increments("urls", "visits").items


def test_no_key_is_in_what_is_shown_stored_or_logged(
    tmp_path: Path,
    server: BucketServer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    """Whatever the S3 service answers, and at every level of the log."""
    monkeypatch.setattr(logging, "raiseExceptions", False)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    settings = settings_of(tmp_path, server, log_level="DEBUG")
    configure_logging(settings)
    service = Service(settings)
    try:
        service.leadership.begin()
        service.controller.lead(service.leadership.epoch)
        service.controller.register(document(server.location()))
        server.put("orders/a", line("a"))
        server.broken, server.said = ("403 Forbidden", "AccessDenied"), f"{KEY} {SECRET}"
        service.fetch()
        service.scan()
        with client_of(service) as client:
            paths = (
                "settings",
                "dataflows/urls",
                "dataflows/urls/sources",
                "dataflows/urls/claims",
            )
            shown = [client.get(path).text for path in paths]
    finally:
        service.stop()
        root.handlers[:], root.level = handlers, level
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    shown += capsys.readouterr()
    assert sum("bucket_denied" in one for one in shown) == 2  # the folders, and the log
    for secret in (KEY, SECRET):
        assert secret not in "".join(shown)
        assert secret.encode() not in stored
