"""HTTP to other services: judged addresses, no redirects, bounded answers, no proxy.

    with outbound_client(AddressRules.of(settings.outbound_hosts)) as http:
        http.post(url, json=body)

Guaranteed: a connection is made only to an address that `AddressRules` has judged, for the name in
the URL; the certificate is checked for that name (tests/controller/outbound).
"""

from __future__ import annotations

import json
import ssl
from typing import Any

import httpx

from controller.outbound.addresses import AddressRefusedError, AddressRules, OutboundFailedError

ANSWER_BYTES_MAX = 1 << 20
SECONDS_MAX = 10.0


def outbound_client(
    rules: AddressRules, *, seconds: float = SECONDS_MAX, ca: ssl.SSLContext | None = None
) -> httpx.Client:
    """Return a client; a context manager that closes its connections.

    `seconds` is the longest time for each step: to connect, to send, to wait for bytes.
    """
    return httpx.Client(
        transport=_JudgedTransport(rules, ca or ssl.create_default_context()),
        timeout=seconds,
        follow_redirects=False,
        trust_env=False,
    )


def fetch_json(
    http: httpx.Client, url: str, *, bytes_max: int = ANSWER_BYTES_MAX
) -> dict[str, Any]:
    """Return the JSON object at a URL."""
    host = httpx.URL(url).host
    try:
        with http.stream("GET", url, headers={"Accept": "application/json"}) as answer:
            if answer.status_code != 200:
                raise OutboundFailedError(host, f"the answer has status {answer.status_code}")
            body = b""
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > bytes_max:
                    raise OutboundFailedError(host, f"the answer has more than {bytes_max} bytes")
    except httpx.HTTPError as error:  # its text can have the URL
        raise OutboundFailedError(host, f"could not be reached ({type(error).__name__})") from None
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise OutboundFailedError(host, "the answer is not a JSON object")
    return value


class _JudgedTransport(httpx.BaseTransport):
    """Connects to an address that was judged, under the name of the URL.

    The name stays in the Host header, and TLS requests and checks it. Connections are not reused:
    the pool finds one by its address, which several names can share.
    """

    def __init__(self, rules: AddressRules, context: ssl.SSLContext) -> None:
        self._rules = rules
        self._inner = httpx.HTTPTransport(
            verify=context, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request to the first address that accepts a connection."""
        url = request.url
        if url.scheme not in ("http", "https"):
            raise AddressRefusedError(url.host, f"the scheme {url.scheme!r} is not http or https")
        addresses = self._rules.addresses(url.host, url.port or _PORTS[url.scheme])
        last: httpx.TransportError | None = None
        for address in addresses:
            sent = httpx.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": url.host},
            )
            try:
                return self._inner.handle_request(sent)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                last = error
        assert last is not None, "`AddressRules.addresses` returned no address"
        raise last

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


_PORTS = {"http": 80, "https": 443}
