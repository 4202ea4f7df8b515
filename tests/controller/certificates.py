"""Certificates for tests, made by OpenSSL's program; self-signed, for names and addresses."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

__all__ = ["make_certificate"]


def make_certificate(
    folder: Path, name: str = "service", *, days: int = 30, since: str = "", until: str = ""
) -> tuple[Path, Path]:
    """Write `NAME.crt` and `NAME.key` for localhost and 127.0.0.1; return their paths.

    Args:
        folder: Where to.
        name: Also the certificate's subject.
        days: How long it is valid.
        since, until: Instead, as `20200101000000Z`.
    """
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    key.write_text(_key())
    key.chmod(0o600)
    request = folder / f"{name}.csr"
    settings = folder / f"{name}.cnf"
    settings.write_text(
        "[req]\ndistinguished_name=dn\nprompt=no\n[dn]\nCN=" + name + "\n"
        "[ext]\nsubjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n"
        "[ca]\ndefault_ca=own\n[own]\ndatabase=" + str(folder / "index.txt") + "\n"
        "new_certs_dir=" + str(folder) + "\nrand_serial=yes\ndefault_md=sha256\npolicy=any\n"
        "unique_subject=no\n[any]\ncommonName=supplied\n"
    )
    (folder / "index.txt").touch()
    _openssl("req", "-new", "-key", key, "-config", settings, "-out", request)
    period = ["-startdate", since, "-enddate", until] if until else ["-days", str(days)]
    _openssl(
        *("ca", "-batch", "-selfsign", "-keyfile", key, "-config", settings, "-notext"),
        *("-in", request, "-out", certificate, "-extensions", "ext", *period),
    )
    return certificate, key


@functools.cache
def _any_key(number: int) -> str:
    made = subprocess.run(
        ["openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout"],
        check=True,
        capture_output=True,
        text=True,
    )
    return f"{made.stdout}"


_made = 0


def _key() -> str:
    global _made
    _made += 1
    return _any_key(_made)


def _openssl(*arguments: object) -> None:
    command = ["openssl", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
