"""Canaries: secrets that a service has are in none of its outputs, whatever went wrong.

Every secret setting, a named token, a link and a cookie are planted. Then author's code fails with
them in its message, as a library does that quotes the address it could not reach; files are refused
that quote them; requests carry them where they do not belong. All that comes out is searched.
"""

from __future__ import annotations

import gzip
import json
import logging
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from pydantic import SecretStr

from cbp import Input, Output, Translate
from cbp.errors.masks import keep_secret
from controller.app import Service, configure_logging
from controller.app.asgi import api_of
from controller.cli import main
from controller.cli.session import Session
from controller.settings import Settings, load_settings
from tests.controller.api.all_routes import filled_in, routes
from tests.controller.api.app_transport import AppTransport
from tests.controller.api.clicks import registry
from tests.controller.http_sink import HttpSink

SECRETS = {
    "token": "canary-token-4711",
    "hook": "canary-hook-4711",
    "mail": "canary-mail-4711",
    "lineage": "canary-lineage-4711",
    "spark": "canary-spark-4711",
    "bucket": "canary-bucket-4711",
}
DOCUMENT = {
    "name": "clicks",
    "sources": {"urls": {"schema": "url STRING", "format": "jsonl"}},
    "stages": {"count": {"translator": "url_count", "inputs": {"urls": "urls"}, "buckets": 2}},
}


class Fails(Translate):
    """Fails as code does that could not reach something: with the address, and all of it."""

    urls = Input("url STRING", route_by="url")
    seen = Output("url STRING")

    def translate(self, key: Any, group: Any, out: Any) -> None:
        logging.getLogger("author").warning("trying %s", SECRETS)
        structlog.get_logger("author").info("trying", values=SECRETS)
        message = f"cannot reach smtp://user:{SECRETS['mail']}@host with {SECRETS}"
        raise ConnectionError(message)


@pytest.fixture
def lineage() -> Iterator[HttpSink]:
    """Give a receiver of lineage, which gets its own key and nothing else."""
    sink = HttpSink()
    yield sink
    sink.close()


@pytest.fixture
def settings(tmp_path: Path, lineage: HttpSink) -> Settings:
    """Give settings with every kind of secret."""
    return load_settings(
        root=tmp_path / "root",
        engine="local",
        reader_processes=False,
        worker_processes=False,
        settle_seconds=0,
        failures_max=1,
        token=SecretStr(SECRETS["token"]),
        alert_webhook_url=SecretStr(f"{lineage.url}/{SECRETS['hook']}"),
        smtp_url=SecretStr(f"smtp://user:{SECRETS['mail']}@localhost"),
        alert_email_to=("ops@example",),
        openlineage_url=lineage.url,
        openlineage_api_key=SecretStr(SECRETS["lineage"]),
        s3_access_key_id=SecretStr("the-id-of-a-key"),
        s3_secret_access_key=SecretStr(SECRETS["bucket"]),
        spark_conf={"spark.hadoop.fs.s3a.secret.key": SECRETS["spark"]},
    )


@pytest.fixture
def service(
    settings: Settings,
    capsys: pytest.CaptureFixture[str],  # before the log is bound to what it captures
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Service]:
    """Give a service whose one stage has failed, and which has refused a file."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    configure_logging(settings)
    monkeypatch.setattr(logging, "raiseExceptions", False)  # pytest's own handlers are closed
    monkeypatch.setattr("controller.app.construction.Registry", lambda *_, **__: registry(Fails))
    made = Service(settings)
    made.leadership.begin()
    made.controller.lead(made.leadership.epoch)
    made.controller.register(DOCUMENT)
    incoming = settings.drop_root / "clicks/urls/incoming"
    (incoming / "good.jsonl").write_text('{"url": "a"}\n')
    (incoming / "bad.jsonl").write_text('{"url": 7}\n')
    for _ in range(2):
        made.scan()
    made.controller.tick()
    made.parts.in_flight.wait(timeout=60)
    yield made
    made.stop()
    keep_secret(())
    root.handlers[:], root.level = handlers, level


def _contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every file below a folder, unpacked where it is packed."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            yield str(path), gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def _found(name: str, data: bytes, secrets: Mapping[str, str]) -> list[str]:
    return [f"{secret} in {name}" for secret, value in secrets.items() if value.encode() in data]


def test_no_secret_is_in_any_output(
    service: Service, lineage: HttpSink, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Logs, REST, run logs, tables, intentions, database, bundle, lineage, metrics, commands."""
    app, planted, leaks = api_of(service), dict(SECRETS), list[str]()
    app.state.parts.events.stop()
    transport, url = AppTransport(app), service.settings.url
    session = Session(service.settings, transport)

    def note(name: str, text: str | bytes) -> None:
        leaks.extend(_found(name, text if isinstance(text, bytes) else text.encode(), planted))

    bearer = {"Authorization": f"Bearer {SECRETS['token']}"}
    with httpx.Client(transport=transport, base_url=url) as http:
        made = http.post("/api/v1/tokens", headers=bearer, json={"name": "ci", "scope": "admin"})
        planted["named"] = made.json()["secret"]
        code = http.post("/api/v1/session/codes", headers=bearer).json()["code"]
        signed = http.post("/api/v1/session", json={"code": code}, headers={"X-CBP-Request": "1"})
        planted |= {"code": code, "cookie": signed.headers["set-cookie"].split("=")[1][:43]}
        for secret in list(planted.values()):  # where none belongs
            http.get(f"/api/v1/dataflows/{secret}", headers=bearer)
            http.get("/api/v1/runs", params={"cursor": secret}, headers=bearer)
            http.get("/api/v1/runs", headers={"Authorization": f"Bearer {secret}x"})
            http.post("/api/v1/alerts/test", headers={**bearer, "X-CBP-User": secret})
        for route in routes():
            if route.method == "GET":
                answer = http.get(filled_in(route.path), headers=bearer)
                note(f"GET {route.path}", answer.content)
        (failed,) = http.get("/api/v1/runs", headers=bearer).json()["items"]
        assert failed["error"]["error_code"] == "author_code_failed"
        log = http.get(f"/api/v1/runs/{failed['id']}/log", headers=bearer)
        assert "trying" in log.text
        note("the log of a run", log.content)
    for command in (["status"], ["runs"], ["logs", "clicks"], ["audit"], ["alerts"], ["stage"]):
        with pytest.raises(SystemExit):
            main(
                [*command, "--json"] if command != ["stage"] else ["stage", "clicks", "count"],
                session=session,
            )
    bundle = tmp_path / "b.zip"
    with pytest.raises(SystemExit):
        main(["support-bundle", str(bundle), "--with-messages"], session=session)
    with zipfile.ZipFile(bundle) as packed:
        for name in packed.namelist():
            note(f"bundle {name}", packed.read(name))
    printed = capsys.readouterr()
    assert "author" in printed.err, "the log was not captured"
    note("standard output", printed.out)
    note("standard error", printed.err)
    service.stop()
    contents = dict(_contents(service.settings.root))
    assert any(name.endswith("cbp.db") for name in contents)
    assert any("tables" in name for name in contents)
    for name, data in contents.items():
        note(name, data)
    for number, body in enumerate(lineage.contents):
        note(f"lineage {number}", body)
    note("settings", json.dumps(service.settings.effective()) + repr(service.settings))
    assert sorted(set(leaks)) == [], "\n".join(sorted(set(leaks)))
