"""The HTTP client of the commands: the public one, at the address that the settings name."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx

from cbp.client.address import Address, trusted_authorities
from cbp.client.errors import TokenMissingError
from cbp.client.rest import ANSWER_SECONDS, RestClient
from cbp.clock import MACHINE, Clock
from cbp.errors import OperatingError
from controller.settings import Settings


class FileUnreadableError(OperatingError, code="file_unreadable", retryable=False):
    """A file that a command names cannot be read."""

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(f"{path} cannot be read: {why}", path=str(path), cause=why)


class FileWaitsError(OperatingError, code="file_waits", retryable=True):
    """A file of the same name with other content waits in the drop folder."""

    def __init__(self, path: Path) -> None:
        message = (
            f"{path} already exists with other content. Start the service, which takes in the "
            "existing file, or drop this one under another name"
        )
        super().__init__(message, path=str(path))


class ServiceClient(RestClient):
    """Calls the REST interface; retries nothing, since a user can run the command again."""

    def __init__(
        self,
        settings: Settings,
        transport: httpx.BaseTransport | None = None,
        *,
        answer_seconds: float = ANSWER_SECONDS,
        clock: Clock = MACHINE,
    ) -> None:
        token = settings.read_token()
        if token is None:
            raise TokenMissingError(settings.token_file)
        address = Address(settings.url, token, authorities_of(settings))
        super().__init__(address, transport, answer_seconds=answer_seconds, clock=clock)


def authorities_of(settings: Settings) -> ssl.SSLContext | bool:
    """Return the authorities whose certificates are accepted; `True` without TLS."""
    if not settings.uses_tls:
        return True
    return trusted_authorities(ca=settings.ca, tls_cert=settings.tls_cert)
