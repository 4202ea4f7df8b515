"""Whose certificates a client of the service accepts."""

from __future__ import annotations

import ssl
from pathlib import Path

from cbp.errors import DefinitionError, Mistake

__all__ = ["trusted_authorities"]


def trusted_authorities(*, ca: Path | None, tls_cert: Path | None) -> ssl.SSLContext:
    """Return the authorities: those of the system, of `ca`, and the service's own certificate.

    Args:
        ca: PEM file of further authorities.
        tls_cert: The service's own certificate; ignored if it is on another machine.

    Raises:
        DefinitionError: Rule `ca_invalid` if a file has no certificate.
    """
    context = ssl.create_default_context()
    for path in (ca, tls_cert):
        if path is None or (path == tls_cert and not path.exists()):
            continue
        try:
            context.load_verify_locations(cafile=path)
        except (OSError, ssl.SSLError) as error:
            message = f"{path} has no certificates as PEM: {error.strerror or error}"
            raise DefinitionError(Mistake("ca_invalid", "ca", message)) from error
    # The service's own certificate may be trusted by itself, no matter what signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
