"""Requests over REST, by their paths; `cbp.client.client` has a method for each resource.

Guaranteed: an error of the service is raised with its own code and message; a service that does not
answer is another error. Where several instances run, a request to any of them reaches the leader.
The token leaves this process in one header only, to the service and to the leader that the service
names, and never to a proxy. A request is repeated only if a repetition changes nothing: a GET, or a
request with an idempotency key.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx

from cbp.client.address import Address
from cbp.client.errors import ServiceBusyError, ServiceUnreachableError, problem_of
from cbp.clock import MACHINE, Clock
from cbp.errors import DefinitionError, Mistake

# Copies of the API's constants: importing the API takes a second, and every command is a
# client (tests/controller/cli/test_commands.py compares them).
PREFIX = "/api/v1"
LIVE_PATH = f"{PREFIX}/health/live"
NULL_PARAMETER = "_null"
USER_HEADER = "X-CBP-User"
CURSOR_HEADER = "X-CBP-Cursor"
TRUNCATED_HEADER = "X-CBP-Truncated"

CONNECT_SECONDS = 5.0
# A look-up may start a Spark job; a deletion waits for runs to end.
ANSWER_SECONDS = 120.0
# Four times the longest silence of a stream.
STREAM_SECONDS = 60.0
_PIECE_BYTES = 1 << 20
_ADDRESS = "one such as http://127.0.0.1:8420"


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a repeatable request is sent if nothing answers or the service is busy.

    `attempts` of 1 means that nothing is repeated. Each pause is twice as long as the one before,
    or as long as the `Retry-After` of the service if that is longer, but at most
    `pause_seconds_max`. `sleep` replaces the clock in tests.
    """

    attempts: int = 1
    pause_seconds: float = 0.2
    pause_seconds_max: float = 10.0
    sleep: Callable[[float], object] = MACHINE.wait

    def pause(self, attempt: int, retry_after: float) -> None:
        """Pause after an attempt, numbered from 0."""
        self.sleep(min(max(self.pause_seconds * 2**attempt, retry_after), self.pause_seconds_max))


class FileContent:
    """A file as the body of a request, read in pieces; each attempt begins at the file's start.

    `advance` is called with the size of each piece that was sent. If the file is sent again, it is
    first called with the negative number of the bytes that were sent before.
    """

    def __init__(self, path: Path, advance: Callable[[int], object] = lambda count: None) -> None:
        self._path, self._advance, self._sent = path, advance, 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the pieces of the file; raise `OSError` if it cannot be read."""
        if self._sent:
            self._advance(-self._sent)
            self._sent = 0
        with self._path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                yield piece
                self._sent += len(piece)
                self._advance(len(piece))


_REPEATABLE = bytes | FileContent | None
"""Bodies that can be sent again; any other stream can be read only once."""


def body_of(
    content: Path | bytes, advance: Callable[[int], object] = lambda count: None
) -> FileContent | bytes:
    """Return a file or bytes as the body of a request; a file is not read into memory."""
    return FileContent(content, advance) if isinstance(content, Path) else content


class RestClient:
    """Calls the REST interface; a context manager that closes its connections.

    An answer may take `answer_seconds`. `transport` replaces the network in tests.
    """

    def __init__(
        self,
        address: Address,
        transport: httpx.BaseTransport | None = None,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        retries: Retries = Retries(),
        clock: Clock = MACHINE,
    ) -> None:
        self._url, self.clock, self._retries = address.url, clock, retries
        try:
            base_url = httpx.URL(f"{address.url}{PREFIX}")
        except httpx.InvalidURL as error:
            message = f"{address.url!r} is not an address ({error}); expected {_ADDRESS}"
            raise DefinitionError(Mistake("settings_invalid", "url", message)) from error
        self._http = httpx.Client(
            base_url=base_url,
            headers={"Authorization": f"Bearer {address.token}", USER_HEADER: _user()},
            timeout=httpx.Timeout(answer_seconds, connect=min(CONNECT_SECONDS, answer_seconds)),
            transport=transport,
            trust_env=False,
            verify=address.verify,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, *path: str, **query: Any) -> Any:
        """Send a GET, and return the answer.

        The parts of the path after `/api/v1` are quoted here; parameters with the value `None` are
        left out.
        """
        return self._send("GET", path, params=_given(query))

    def text(self, *path: str, **query: Any) -> str:
        """Send a GET whose answer is not JSON, and return it; arguments as for `get`."""
        return self._answered("GET", path, params=_given(query)).text

    def get_file(self, *path: str, query: list[tuple[str, str]]) -> tuple[str, str | None]:
        """Send a GET for a page of a list as a file; return its text and the next page's cursor."""
        response = self._answered("GET", path, params=query)
        return response.text, response.headers.get(CURSOR_HEADER)

    @contextmanager
    def stream_lines(self, *path: str, **query: Any) -> Iterator[Iterator[str]]:
        """Send a GET, and yield the lines of its answer as they arrive.

        Raises:
            ServiceUnreachableError: If nothing arrives for a minute, or the connection breaks.
            ServiceProblemError: If the service refuses.
        """
        with self._stream(path, query) as response:
            yield response.iter_lines()

    @contextmanager
    def stream_bytes(self, *path: str, **query: Any) -> Iterator[Iterator[bytes]]:
        """Send a GET, and yield its answer in parts; errors as for `stream_lines`."""
        with self._stream(path, query) as response:
            yield response.iter_bytes()

    @contextmanager
    def _stream(self, path: tuple[str, ...], query: dict[str, Any]) -> Iterator[httpx.Response]:
        url = f"{self._url}{PREFIX}/" + "/".join(quote(part, safe="") for part in path)
        patience = httpx.Timeout(STREAM_SECONDS, connect=CONNECT_SECONDS)
        with (
            _reachable(self._url),
            self._http.stream("GET", url, params=_given(query), timeout=patience) as response,
        ):
            if not response.is_success:
                response.read()
                raise problem_of(_document(response), response.status_code)
            yield response

    def get_pairs(self, *path: str, query: list[tuple[str, str]]) -> Any:
        """Send a GET with these parameters in this order, and return the answer."""
        return self._send("GET", path, params=query)

    def post(
        self,
        *path: str,
        content: bytes | Iterable[bytes] | None = None,
        content_type: str | None = None,
        query: dict[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Any:
        """Send a POST, and return the answer."""
        sent = _given({"Content-Type": content_type, "Idempotency-Key": idempotency_key})
        return self._send("POST", path, content=content, headers=sent, params=_given(query or {}))

    def post_json(self, *path: str, value: Any) -> Any:
        """Send a POST whose body is a JSON value, and return the answer."""
        body = json.dumps(value).encode()
        return self.post(*path, content=body, content_type="application/json")

    def post_for_file(self, *path: str, value: Any) -> tuple[str, bool]:
        """Send a POST whose body is a JSON value; return the file, and whether it was truncated."""
        sent = {"Content-Type": "application/json"}
        body = json.dumps(value).encode()
        response = self._answered("POST", path, content=body, headers=sent)
        return response.text, response.headers.get(TRUNCATED_HEADER) == "true"

    def put(
        self,
        *path: str,
        content: bytes | None = None,
        content_type: str | None = None,
        query: dict[str, Any] | None = None,
    ) -> Any:
        """Send a PUT, and return the answer; a list in `query` is sent item by item."""
        sent = _given({"Content-Type": content_type})
        return self._send("PUT", path, content=content, headers=sent, params=_given(query or {}))

    def delete(self, *path: str, **query: Any) -> Any:
        """Send a DELETE, and return the answer."""
        return self._send("DELETE", path, params=_given(query))

    def _send(self, method: str, path: tuple[str, ...], **more: Any) -> Any:
        response = self._answered(method, path, **more)
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError as error:
            raise problem_of(_document(response), response.status_code) from error

    def _answered(self, method: str, path: tuple[str, ...], **more: Any) -> httpx.Response:
        attempts = self._retries.attempts if _repeatable(method, more) else 1
        for attempt in range(attempts):
            retry_after = 0.0
            try:
                response = self._sent(method, path, **more)
                if response.is_success:
                    return response
                retry_after = _retry_after(response)
                raise problem_of(_document(response), response.status_code)
            except (ServiceUnreachableError, ServiceBusyError):
                if attempt + 1 == attempts:
                    raise
            self._retries.pause(attempt, retry_after)
        raise AssertionError

    def _sent(self, method: str, path: tuple[str, ...], **more: Any) -> httpx.Response:
        url = "/".join(quote(part, safe="") for part in path)
        response = self._request(method, self._url, url, **more)
        leader = _leader_of(response)
        if leader and isinstance(more.get("content"), _REPEATABLE):
            # A stream can be read only once: it is not sent again, and the error names the leader.
            response = self._request(method, leader, url, **more)
        return response

    def _request(self, method: str, service: str, url: str, **more: Any) -> httpx.Response:
        with _reachable(service):
            return self._http.request(method, f"{service}{PREFIX}/{url}", **more)


@contextmanager
def _reachable(url: str) -> Iterator[None]:
    try:
        yield
    except httpx.TimeoutException as error:
        raise ServiceUnreachableError(url, "the request timed out") from error
    except httpx.TransportError as error:
        raise ServiceUnreachableError(url, str(error) or type(error).__name__) from error


def _repeatable(method: str, sent: dict[str, Any]) -> bool:
    """Return whether a second request changes nothing more than the first."""
    is_whole = isinstance(sent.get("content"), _REPEATABLE)
    return is_whole and (method == "GET" or "Idempotency-Key" in (sent.get("headers") or {}))


def _retry_after(response: httpx.Response) -> float:
    """Return the pause in seconds that a busy service asks for; 0 if it gives none."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0


def _document(response: httpx.Response) -> dict[str, Any]:
    try:
        document = response.json()
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    # Something other than this service answers at its address.
    message = (
        f"an answer with HTTP status {response.status_code} does not come from this service, but "
        "perhaps from a proxy: check the service's address"
    )
    return {"message": message}


def _leader_of(response: httpx.Response) -> str:
    """Return the leader's address if this instance cannot serve the request, otherwise `""`."""
    if response.status_code != httpx.codes.MISDIRECTED_REQUEST:
        return ""
    details = _document(response).get("details")
    return str(details.get("leader", "")) if isinstance(details, dict) else ""


def _user() -> str:
    """Return the user's name on this machine: an unverified note for the audit log."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        name = str(os.getuid())
    said = f"{name}@{socket.gethostname()}"
    return "".join(c for c in said if c.isascii() and c.isprintable())[:100]


def _given(query: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}
