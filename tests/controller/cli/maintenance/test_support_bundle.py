"""Support bundles: complete, without secrets and records, and possible when nothing works."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from cbp import Input, Output, Translate
from cbp.client.errors import ServiceUnreachableError
from controller.app import Service
from controller.app.asgi import api_of
from controller.cli.session import Session
from controller.settings import Settings, load_settings
from tests.controller.api.app_transport import AppTransport
from tests.controller.api.clicks import registry
from tests.controller.cli.conftest import Cbp

SECRET = "canary-4711"
RECORD = "value-of-a-record"
DOCUMENT = {
    "name": "urls",
    "description": f"reads s3a://user:{SECRET}@bucket/x",
    "sources": {"visits": {"schema": "url STRING", "format": "jsonl"}},
    "stages": {"count": {"translator": "url_count", "inputs": {"urls": "visits"}, "buckets": 2}},
}


class Fails(Translate):
    """Names its record in its error."""

    urls = Input("url STRING", route_by="url")
    seen = Output("url STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        raise ValueError(key.url)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(
        root=tmp_path / "root",
        engine="local",
        reader_processes=False,
        worker_processes=False,
        settle_seconds=0,
        failures_max=1,
        token=SecretStr(f"token-{SECRET}"),
        alert_webhook_url=SecretStr(f"http://127.0.0.1:9/{SECRET}"),
        smtp_url=SecretStr(f"smtp://user:{SECRET}@localhost"),
        spark_conf={"spark.hadoop.fs.s3a.secret.key": SECRET},
    )


@pytest.fixture
def service(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr("controller.app.construction.Registry", lambda *_, **__: registry(Fails))
    made = Service(settings)
    made.leadership.begin()
    made.controller.lead(made.leadership.epoch)
    made.controller.register(DOCUMENT)
    incoming = settings.drop_root / "urls/visits/incoming"
    # A message that is masked is not the same in the places that repeat it.
    (incoming / "good.jsonl").write_text(json.dumps({"url": f"{RECORD} of {SECRET}"}) + "\n")
    (incoming / "bad.jsonl").write_text(f'{{"url": ["{RECORD}"]}}\n')
    for _ in range(2):
        made.scan()
    made.controller.tick()
    made.parts.in_flight.wait(timeout=60)
    yield made
    made.stop()


def bundle_of(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as bundle:
        return {name: bundle.read(name).decode() for name in bundle.namelist()}


def test_a_bundle_says_how_the_service_is_and_has_no_secret_and_no_record(
    cbp: Cbp, service: Service, tmp_path: Path
):
    """Secrets in settings, documents and errors are masked; messages of author's code are out."""
    session = Session(service.settings, AppTransport(api_of(service)))
    path = tmp_path / "b.zip"
    outcome = cbp("support-bundle", path, "--json", session=session)
    assert outcome.status == 0, outcome.out
    assert outcome.json["errors"] == {}
    files = bundle_of(path)
    text = "\n".join(files.values())
    assert SECRET not in text
    assert RECORD not in text
    failed = json.loads(files["service/failed.json"])["items"]
    assert [run["error"]["error_code"] for run in failed] == ["author_code_failed"]
    (claim,) = [
        claim
        for claim in json.loads(files["service/dataflows/urls/claims.json"])["items"]
        if claim["status"] == "quarantined"
    ]
    assert claim["reason"]["code"]
    assert json.loads(files["versions.json"])["packages"]["cbp"]
    assert json.loads(files["settings.json"])["engine"] == "local"
    assert "cbp_dataflows 1" in files["service/metrics.txt"]
    assert json.loads(files["errors.json"]) == {}


def test_messages_of_authors_are_included_on_request_and_secrets_never(
    cbp: Cbp, service: Service, tmp_path: Path
):
    """The same error, now with its record."""
    session = Session(service.settings, AppTransport(api_of(service)))
    path = tmp_path / "b.zip"
    assert cbp("support-bundle", path, "--with-messages", session=session).status == 0
    files = bundle_of(path)
    assert RECORD in files["service/failed.json"]
    assert not any(SECRET in content for content in files.values())


def test_a_service_that_does_not_answer_leaves_only_its_part_out(
    cbp: Cbp, settings: Settings, tmp_path: Path
):
    """What this machine knows is there, and errors.json says what is not and why."""
    path = tmp_path / "b.zip"
    outcome = cbp("support-bundle", path, "--json", session=Session(settings))
    assert outcome.status == 0, outcome.out
    files = bundle_of(path)
    assert {"README.txt", "versions.json", "settings.json", "doctor.json"} <= files.keys()
    assert "service/health.json" in json.loads(files["errors.json"])


class _BreaksOff(Session):
    """Its second page of a list cannot be read."""

    def pages(self, *path: str, **query: Any) -> Iterator[dict[str, Any]]:
        yield {"items": [{"name": "urls"}], "cursor": "1"}
        raise ServiceUnreachableError("http://127.0.0.1:9", "it stopped")


def test_dataflows_that_could_not_be_listed_are_not_asked_for_one_by_one(
    cbp: Cbp, settings: Settings, tmp_path: Path
):
    """Each request to a service that stopped may wait for minutes."""
    path = tmp_path / "b.zip"
    assert cbp("support-bundle", path, session=_BreaksOff(settings)).status == 0
    missing = json.loads(bundle_of(path)["errors.json"])
    assert "service/dataflows.json" in missing
    assert not [name for name in missing if name.startswith("service/dataflows/")]


def test_a_file_that_is_there_is_not_replaced(cbp: Cbp, settings: Settings, tmp_path: Path):
    """It may be another bundle, or something else."""
    path = tmp_path / "b.zip"
    path.write_text("mine")
    outcome = cbp("support-bundle", path, session=Session(settings))
    assert outcome.status != 0
    assert path.read_text() == "mine"
