"""TLS of `cbp serve`: the certificate and its key, checked before anything starts, and renewed.

A renewal replaces both files. `TlsFiles.reload` loads them for new connections; open connections
continue. Files that are invalid, or half renewed, change nothing: the old pair stays in use until
both are valid.

Guaranteed: a key that other users may read is refused, as is a pair that no client would accept
(tests/controller/server/test_tls.py).
"""

from __future__ import annotations

import os
import ssl
import stat
import threading
from pathlib import Path
from typing import NoReturn

import structlog

from cbp.errors import DefinitionError, Mistake

RELOAD_SECONDS = 10.0
"""Time between two checks whether the files were replaced."""

_EXPIRED, _NOT_YET_VALID = 10, 9
"""OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED and X509_V_ERR_CERT_NOT_YET_VALID."""

_log = structlog.get_logger(__name__)

_State = tuple[tuple[int, int, int], ...]


class TlsFiles:
    """A certificate chain, the service's own first, and its key without a password, as PEM.

    Attributes:
        context: The context of the server; each connection gets the newest certificate.
        ends: When the certificate expires, as OpenSSL writes it.

    Raises:
        DefinitionError: Rule `tls_file_invalid`, `tls_key_open`, `tls_mismatch`, `tls_expired` or
            `tls_not_yet_valid`.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key
        self._state = self._look()
        self._complaint: tuple[_State, str] | None = None
        self.context, self.ends = self._check()
        self._newest = self.context
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
        """Use the newest files for a connection; OpenSSL also calls this without a host name."""
        connection.context = self._newest

    def reload(self) -> bool:
        """Use replaced files for new connections; return whether there were any.

        An invalid pair, or a missing file, is logged once; the previous pair stays in use. The new
        one is checked again each time, since time alone can make it valid.
        """
        state: _State = ()
        try:
            state = self._look()
            if state == self._state:
                self._complaint = None
                return False
            self._newest, self.ends = self._check()
        except DefinitionError as error:
            if (state, error.message) != self._complaint:
                self._complaint = state, error.message
                _log.error("tls.not_reloaded", error=error.as_dict())
            return False
        self._state, self._complaint = state, None
        _log.info("tls.reloaded", certificate=str(self._certificate), ends=self.ends)
        return True

    def watch(self, ended: threading.Event, seconds: float = RELOAD_SECONDS) -> threading.Thread:
        """Start a thread that reloads the files until `ended` is set; return it."""

        def look() -> None:
            while not ended.wait(seconds):
                self.reload()

        thread = threading.Thread(target=look, name="tls-reload", daemon=True)
        thread.start()
        return thread

    def _look(self) -> _State:
        """Return the state of the files: a value that changes when they do."""
        state = []
        for where, path in (("tls_cert", self._certificate), ("tls_key", self._key)):
            try:
                status = path.stat()
            except OSError as error:
                reason = error.strerror or str(error)
                _refuse("tls_file_invalid", where, f"{path} cannot be read: {reason}")
            state.append((status.st_ino, status.st_mtime_ns, status.st_size))
            if where == "tls_key":
                _require_closed(path, status)
        return tuple(state)

    def _check(self) -> tuple[ssl.SSLContext, str]:
        """Refuse a pair that clients would not accept; return its context, and when it expires.

        The check is a handshake in memory, with a client that trusts just this certificate.
        """
        server = self._load()
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            client.load_verify_locations(cafile=self._certificate)
            return server, _handshake(client, server)
        except ssl.SSLCertVerificationError as error:
            rules = {_EXPIRED: "tls_expired", _NOT_YET_VALID: "tls_not_yet_valid"}
            rule = rules.get(error.verify_code, "tls_file_invalid")
            message = (
                f"clients reject the certificate {self._certificate}: {error.verify_message}; "
                "renew it"
            )
            _refuse(rule, "tls_cert", message)
        except OSError as error:  # the file may be in the middle of a renewal
            _refuse("tls_file_invalid", "tls_cert", f"{self._certificate} cannot be used: {error}")

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
        except ssl.SSLError as error:
            if "MISMATCH" in (error.reason or ""):
                message = (
                    f"{self._key} is not the private key of the certificate {self._certificate}; "
                    "set CBP_TLS_CERT and CBP_TLS_KEY to a matching pair"
                )
                _refuse("tls_mismatch", "tls_key", message)
            message = (
                f"{self._certificate} and {self._key} are not a certificate and a private key in "
                f"PEM format ({error.reason or error})"
            )
            _refuse("tls_file_invalid", "tls_cert", message)
        except (OSError, ValueError) as error:
            message = f"{self._certificate} and {self._key} cannot be used: {error}"
            _refuse("tls_file_invalid", "tls_cert", message)
        return context


def _no_password() -> NoReturn:
    """Refuse to give OpenSSL a password; without this callback it would ask on the terminal."""
    message = (
        "the key is protected by a password; store it without a password, readable only by the "
        "service"
    )
    raise ValueError(message)


def _require_closed(path: Path, status: os.stat_result) -> None:
    # A file of another owner is a mounted secret: its permissions are not ours to judge.
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
        message = f"other users can read {path}; run: chmod 600 {path}"
        _refuse("tls_key_open", "tls_key", message)


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> str:
    """Do a handshake in memory; return when the server's certificate expires."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asks = client.wrap_bio(to_client, to_server)
    answers = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (asks, answers, asks, answers):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    certificate = asks.getpeercert() or {}
    return str(certificate.get("notAfter", ""))


def _refuse(rule: str, where: str, message: str) -> NoReturn:
    raise DefinitionError(Mistake(rule, where, message))
