"""Errors of requests to other services."""

from __future__ import annotations

from cbp.errors import CbpError, OperatingError


class AddressRefusedError(CbpError):
    """An address is none that this service may send requests to."""

    code = "address_refused"

    def __init__(self, host: str, why: str) -> None:
        super().__init__(
            f"requests to {host!r} are refused: {why}; use an address that every machine on the "
            "Internet can reach, or name the host in CBP_OUTBOUND_HOSTS",
            host=host,
        )


class OutboundFailedError(OperatingError):
    """Another service did not answer, or answered what cannot be used."""

    code = "outbound_failed"

    def __init__(self, host: str, why: str) -> None:
        super().__init__(f"{host}: {why}", host=host)
