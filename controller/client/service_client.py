"""The HTTP client of the commands.

Guaranteed: an error of the service is raised with its own code and message, and a service that
does not answer is told apart from one that refuses. Where several instances run, a request to any
of them reaches the leader. The token leaves this process in one header only, to the service and to
the leader that the service names, and never to a proxy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx

from controller.client.errors import ServiceProblemError, ServiceUnreachableError, TokenMissingError
from controller.settings import Settings

__all__ = ["LIVE_PATH", "NULL_PARAMETER", "PREFIX", "ServiceClient"]

# Copies of the API's constants: importing the API takes a second, and every command is a
# client (tests/controller/cli/test_commands.py compares them).
PREFIX = "/api/v1"
LIVE_PATH = f"{PREFIX}/health/live"
NULL_PARAMETER = "_null"

CONNECT_SECONDS = 5.0
# A look-up may start a Spark job; a deletion waits for runs to end.
ANSWER_SECONDS = 120.0


class ServiceClient:
    """Calls the REST interface; a context manager that closes its connections.

    Args:
        settings: Have the address of the service, and its token.
        transport: Replaces the network in tests.
    """

    def __init__(self, settings: Settings, transport: httpx.BaseTransport | None = None) -> None:
        token = settings.read_token()
        if token is None:
            raise TokenMissingError(settings.token_file)
        self._url = settings.url
        self._http = httpx.Client(
            base_url=f"{settings.url}{PREFIX}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            transport=transport,
            trust_env=False,
        )

    def __enter__(self) -> ServiceClient:
        """Return the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, *path: str, **query: Any) -> Any:
        """Send a GET, and return the answer.

        Args:
            path: Parts of the path after `/api/v1`; quoted here.
            query: Parameters; those with the value `None` are left out.
        """
        return self._send("GET", path, params=_given(query))

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
        named = {"Content-Type": content_type, "Idempotency-Key": idempotency_key}
        sent = _given(named)
        return self._send("POST", path, content=content, headers=sent, params=_given(query or {}))

    def put(
        self, *path: str, content: bytes, content_type: str, query: dict[str, Any] | None = None
    ) -> Any:
        """Send a PUT, and return the answer; a list in `query` is sent item by item."""
        sent = {"Content-Type": content_type}
        return self._send("PUT", path, content=content, headers=sent, params=_given(query or {}))

    def delete(self, *path: str, **query: Any) -> Any:
        """Send a DELETE, and return the answer."""
        return self._send("DELETE", path, params=_given(query))

    def _send(self, method: str, path: tuple[str, ...], **more: Any) -> Any:
        url = "/".join(quote(part, safe="") for part in path)
        response = self._request(method, self._url, url, **more)
        leader = _leader_of(response)
        if leader and isinstance(more.get("content"), bytes | None):
            # A stream can be read only once: then the error names the leader's address.
            response = self._request(method, leader, url, **more)
        if response.is_success:
            return response.json() if response.content else None
        raise ServiceProblemError(_document(response), response.status_code)

    def _request(self, method: str, service: str, url: str, **more: Any) -> httpx.Response:
        with _reachable(service):
            return self._http.request(method, f"{service}{PREFIX}/{url}", **more)


@contextmanager
def _reachable(url: str) -> Iterator[None]:
    try:
        yield
    except httpx.TimeoutException as error:
        raise ServiceUnreachableError(url, "no answer in time") from error
    except httpx.TransportError as error:
        raise ServiceUnreachableError(url, str(error) or type(error).__name__) from error


def _document(response: httpx.Response) -> dict[str, Any]:
    try:
        document = response.json()
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    # Something other than this service answers at its address.
    return {"message": f"status {response.status_code} without a problem document"}


def _leader_of(response: httpx.Response) -> str:
    """Return the address of the leader if this instance cannot serve the request; else `""`."""
    if response.status_code != httpx.codes.MISDIRECTED_REQUEST:
        return ""
    return str((_document(response).get("details") or {}).get("leader", ""))


def _given(query: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}
