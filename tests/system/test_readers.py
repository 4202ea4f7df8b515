"""Processes that answer reads: each gives the same answer; if one dies, reads go on.

A reader is known by what it does while the service's own process is stopped: it answers.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.conftest import new_postgres_database
from tests.system.processes import TOKEN, Instance, command_of, descendants, until

__all__ = ["new_postgres_database"]

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

DOCUMENT: dict[str, Any] = {
    "name": "urls",
    "sources": {"visits": {"schema": "url STRING", "format": "jsonl"}},
    "stages": {"count": {"translator": "url_count", "inputs": {"urls": "visits"}, "buckets": 2}},
}
READER = "controller.server.readers.reader_process"
LOOK_UP = "/api/v1/dataflows/urls/state/count/counts?url=a"
READS = [
    LOOK_UP,
    "/api/v1/dataflows",
    "/api/v1/runs",
    "/api/v1/runs?dataflow=urls&limit=5",
    "/api/v1/dataflows/urls/increments",
    "/api/v1/dataflows/urls/claims",
    "/api/v1/dataflows/urls/flows/visits/records?limit=3",
    "/api/v1/dataflows/urls/flows/count.totals/records?limit=3",
    "/api/v1/dataflows/urls/state/count/counts/records?limit=3",
    "/api/v1/dataflows/urls/snapshot",
    "/api/v1/events/recent?limit=5",
    "/api/v1/dataflows/urls/state/count/counts?url=nobody",
    "/api/v1/dataflows/nothing/increments",
    "/api/v1/runs?limit=x",
    "/api/v1/dataflows/urls/state/count/counts",
]
_MOMENTS = re.compile(r'(?<="lag_seconds": )[0-9.]+|(?<="readable_until": )"[^"]+"')
BY_THE_SERVICE = {"TE": "trailers"}
"""A header with which no reader serves a request, and which changes no answer."""


class Reading:
    """A service with one reader, and a dataflow with a result.

    Attributes:
        instance: The service.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    @property
    def reader(self) -> int:
        """The process id of the reader; 0 while there is none."""
        found = [p for p in descendants(self.instance.pid) if READER in command_of(p)]
        return found[0] if found else 0

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection that has been used, so that a reader has it once one is ready."""
        at = self.instance.settings
        connection = http.client.HTTPConnection(at.host, at.port, timeout=60)
        ask(connection, "/api/v1/health/live")
        return connection

    def wait_for_reader(self, not_this: int = 0) -> None:
        """Return once a reader gets connections."""

        def answers() -> bool:
            if self.reader in (0, not_this):
                return False
            with closing(self.connect()) as connection, self.stopped(connection):
                connection.sock.settimeout(0.5)
                try:
                    return ask(connection, LOOK_UP)[0] in (200, 404)
                except TimeoutError:
                    return False

        until(answers, "no reader answers")

    @contextmanager
    def stopped(self, connection: http.client.HTTPConnection) -> Iterator[None]:
        """Let the service's own process do nothing meanwhile; its readers go on.

        Args:
            connection: Is in the hands of a reader then, if there is one: the service passes it on
                behind its answer, and could be stopped in between.
        """
        ask(connection, LOOK_UP)
        os.kill(self.instance.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.instance.pid, signal.SIGCONT)


def ask(
    connection: http.client.HTTPConnection,
    path: str,
    method: str = "GET",
    *,
    body: Any = None,
    token: str | None = TOKEN,
    **more: str,
) -> tuple[int, dict[str, str], Any]:
    """Return status, headers and content of an answer."""
    headers = {name.replace("_", "-"): value for name, value in more.items()}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    data = body if body is None or isinstance(body, bytes) else json.dumps(body)
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    connection.request(method, path, data, headers)
    answer = connection.getresponse()
    content = answer.read()
    said = {name.lower(): value for name, value in answer.getheaders()}
    return answer.status, said, json.loads(content) if content else None


def begin(root: Path, **settings: Any) -> Reading:
    """Start a service with a reader, and let it count a file."""
    instance = Instance(root, "one", engine="local", environment={"CBP_READERS": "1"}, **settings)
    instance.start()
    instance.wait()
    made = Reading(instance)
    with closing(made.connect()) as connection:
        assert ask(connection, "/api/v1/dataflows", "POST", body=DOCUMENT)[0] == 201
        upload(connection, [{"url": "a"}, {"url": "b"}, {"url": "a"}])
        until(lambda: count_of(connection) == 2, "no result")
    made.wait_for_reader()
    return made


def upload(connection: http.client.HTTPConnection, records: list[Any], name: str = "f") -> None:
    """Upload a file to the source."""
    lines = "".join(json.dumps(record) + "\n" for record in records).encode()
    path = f"/api/v1/dataflows/urls/sources/visits/files?name={name}.jsonl"
    kind = "application/octet-stream"
    status, _, answer = ask(connection, path, "POST", body=lines, Content_Type=kind)
    assert status in (200, 201, 202), answer


def count_of(connection: http.client.HTTPConnection) -> int:
    """Return how often `a` was counted."""
    status, _, answer = ask(connection, LOOK_UP)
    return int(answer["items"][0]["n"]) if status == 200 else 0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reading]:
    """Give one service for all tests, since its start takes seconds; the last one ends it."""
    made = begin(tmp_path_factory.mktemp("readers"))
    yield made
    made.instance.kill()


def test_a_read_is_answered_while_the_service_computes(service: Reading) -> None:
    """A process that does nothing at all replaces an interpreter that is busy."""
    with closing(service.connect()) as connection:
        with service.stopped(connection):
            assert count_of(connection) == 2
            assert ask(connection, "/api/v1/dataflows/urls/increments")[0] == 200
        # What only the service serves goes back to it, on the same connection, and returns.
        assert ask(connection, "/api/v1/dataflows/urls/waiting")[0] == 200
        with service.stopped(connection):
            assert count_of(connection) == 2


def test_every_answer_is_that_of_the_service(service: Reading) -> None:
    """Status, headers and content do not show which process answered, for any caller."""
    for token in (TOKEN, None, "wrong"):
        for path in READS:
            with closing(service.connect()) as connection:
                by_reader = _said(ask(connection, path, token=token))
                by_service = _said(ask(connection, path, token=token, **BY_THE_SERVICE))
                assert by_reader == by_service, path


@pytest.mark.parametrize(
    "forged", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Cookie": "a=b; c"}]
)
def test_a_forged_request_is_refused_as_by_the_service(
    service: Reading, forged: dict[str, str]
) -> None:
    """A reader lets in nobody that the service would refuse."""
    token = None if "Cookie" in forged else TOKEN
    with closing(service.connect()) as connection:
        by_reader = _said(ask(connection, LOOK_UP, token=token, **forged))
    with closing(service.connect()) as connection:
        by_service = _said(ask(connection, LOOK_UP, token=token, **forged, **BY_THE_SERVICE))
    assert by_reader[0] in (400, 401, 403)
    assert by_reader == by_service


def _said(answer: tuple[int, dict[str, str], Any]) -> Any:
    status, headers, content = answer
    seen = {name: text for name, text in headers.items() if name not in ("x-request-id", "date")}
    return status, seen, json.loads(_MOMENTS.sub("0", json.dumps(content)))


def test_a_revoked_token_is_refused_at_once(service: Reading) -> None:
    """A reader remembers callers, and forgets them before the revocation is answered."""
    with closing(service.connect()) as admin, closing(service.connect()) as user:
        for number in range(5):
            name = f"t{number}"
            wanted = {"name": name, "scope": "viewer"}
            status, _, made = ask(admin, "/api/v1/tokens", "POST", body=wanted)
            assert status == 201, made
            token = made["token"] if isinstance(made["token"], str) else made["secret"]
            with service.stopped(user):
                assert ask(user, LOOK_UP, token=token)[0] == 200
                assert ask(user, LOOK_UP, token=token)[0] == 200
            assert ask(admin, f"/api/v1/tokens/{name}", "DELETE")[0] in (200, 204)
            assert ask(user, LOOK_UP, token=token)[0] == 401


def test_who_wrote_sees_it_in_the_next_read(service: Reading) -> None:
    """The service answers the change; the read behind it, by a reader, shows it."""
    with closing(service.connect()) as connection:
        for action, desired in [("pause", "paused"), ("resume", "running")] * 5:
            assert ask(connection, f"/api/v1/dataflows/urls/{action}", "POST")[0] == 200
            (item,) = ask(connection, "/api/v1/dataflows")[2]["items"]
            assert item["desired"] == desired


def test_a_published_result_is_seen_at_once(service: Reading) -> None:
    """Who saw the result in the service's answer sees it in a reader's, for each of many files."""
    with closing(service.connect()) as connection:
        before = count_of(connection)
        for number in range(3):
            upload(connection, [{"url": "a"}] * (number + 1), name=f"more{number}")
            before += number + 1

            def shown(wanted: int = before) -> bool:
                items = ask(connection, LOOK_UP, **BY_THE_SERVICE)[2]["items"]
                return bool(items[0]["n"] == wanted)

            until(shown, "not published")
            assert count_of(connection) == before


def test_large_uploads_and_requests_in_one_packet_keep_their_order(service: Reading) -> None:
    """A connection goes to and fro with all that was read of it; nothing is lost or doubled."""
    head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
    here, there = LOOK_UP, "/api/v1/dataflows/urls/waiting"
    body = b'{"url": "z"}\n' * 40_000
    path = "/api/v1/dataflows/urls/sources/visits/files?name=large.jsonl"
    requests = [f"GET {one} HTTP/1.1\r\n{head}\r\n".encode() for one in (here, there, here, there)]
    kind = f"Content-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n"
    requests.append(f"POST {path} HTTP/1.1\r\n{head}{kind}\r\n".encode() + body)
    requests.append(f"GET {here} HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
    at = service.instance.settings
    with socket.create_connection((at.host, at.port), timeout=60) as client:
        client.sendall(b"".join(requests))
        received = b"".join(iter(lambda: client.recv(65536), b""))
    statuses = re.findall(rb"HTTP/1\.1 (\d)", received)
    assert statuses == [b"2"] * len(requests), received[-500:]
    assert received.count(b'"items"') >= 4


def test_requests_are_counted_as_one_service(service: Reading) -> None:
    """The metrics of the service have the requests of its readers, and each refusal once."""

    def counted(status: str, route: str) -> float:
        connection = service.connect()
        with closing(connection):
            connection.request(
                "GET", "/api/v1/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
            )
            text = connection.getresponse().read().decode()
        name = f'cbp_http_requests_total{{method="GET",route="{route}",status="{status}"}} '
        return next(
            (float(one[len(name) :]) for one in text.splitlines() if one.startswith(name)), 0
        )

    route, unknown = "/dataflows/{name}/snapshot", "none"
    with closing(service.connect()) as connection:
        ask(connection, "/api/v1/dataflows/nothing/snapshot")
    until(lambda: counted("404", route) == 1, "what was asked before is not counted")
    answered, refused = counted("200", route), counted("401", unknown)
    with closing(service.connect()) as connection:
        for _ in range(7):
            ask(connection, "/api/v1/dataflows/urls/snapshot")
        ask(connection, "/api/v1/dataflows/urls/snapshot", token="wrong")
    until(lambda: counted("200", route) == answered + 7, "not counted")
    assert counted("401", unknown) == refused + 1


def test_reads_go_on_when_a_reader_is_killed(service: Reading) -> None:
    """Only what the killed one held breaks; the service serves until it is replaced."""
    killed = service.reader
    os.kill(killed, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{killed}").exists(), "the service has not noticed")
    for _ in range(20):
        with closing(service.connect()) as connection:
            assert count_of(connection) > 0
    service.wait_for_reader(not_this=killed)
    assert service.reader != killed


@pytest.mark.soak
def test_a_reader_that_hangs_is_replaced(service: Reading) -> None:
    """It says nothing for some seconds, and holds connections that nobody else has."""
    hangs = service.reader
    os.kill(hangs, signal.SIGSTOP)
    until(lambda: service.reader not in (0, hangs), "it was not replaced", 60)


def test_no_reader_outlives_a_killed_service(service: Reading) -> None:
    """It would keep connections of a service that is gone, and its database open."""
    orphan = service.reader
    os.kill(service.instance.pid, signal.SIGKILL)
    until(lambda: READER not in command_of(orphan), "the reader lives on", 10)


@pytest.mark.soak
@pytest.mark.service
def test_readers_work_on_postgresql(tmp_path: Path, new_postgres_database: Any) -> None:
    """Reads, changes and revocations are the same there; a stop leaves no reader behind."""
    made = begin(tmp_path, database_url=new_postgres_database())
    try:
        test_a_read_is_answered_while_the_service_computes(made)
        test_who_wrote_sees_it_in_the_next_read(made)
        test_a_revoked_token_is_refused_at_once(made)
        reader = made.reader
        assert made.instance.stop() == 0
        assert READER not in command_of(reader)
    finally:
        made.instance.kill()
