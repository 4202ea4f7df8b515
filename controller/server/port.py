"""The port of the service: checked before anything is started."""

from __future__ import annotations

import socket

from cbp.errors import OperatingError


class PortTakenError(OperatingError):
    """Another process listens on the service's port."""

    code = "port_taken"
    retryable = False

    def __init__(self, host: str, port: int, why: str) -> None:
        super().__init__(
            f"port {port} on {host} cannot be used ({why}). Stop the program that uses it, or "
            "choose another port: cbp serve --port N, or CBP_PORT=N",
            host=host,
            port=port,
        )


def check_port(host: str, port: int) -> None:
    """Raise `PortTakenError` if the service could not listen on this host and port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # Like uvicorn: a port whose last connections are still closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            raise PortTakenError(host, port, error.strerror or str(error)) from error
