"""Finds the address and the token of the service as the commands do.

Each value comes from the environment variable `CBP_<NAME>`, else from the file that `CBP_CONFIG`
names, else from a default:

    token  CBP_TOKEN, or the file CBP_TOKEN_FILE, or `token` in CBP_ROOT (by default `cbp-data`)
    url    CBP_HOST and CBP_PORT (127.0.0.1, 8420); https if CBP_CA or CBP_TLS_CERT is set,
           and then CBP_ADVERTISE_URL if that is set

Guaranteed: it finds what `controller.settings` finds (tests/controller/client/test_address.py).
"""

from __future__ import annotations

import os
import ssl
import stat
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cbp.client.errors import TokenMissingError
from cbp.errors import DefinitionError, Mistake


def read_token_file(file: Path) -> str | None:
    """Return the token, or `None` if there is no file.

    Raises:
        DefinitionError: Rule `token_file_open` if other users may read our file,
            `token_file_invalid` if it is empty or cannot be read.
    """
    try:
        status = file.stat()
        text = file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        message = f"the token file {file} cannot be read: {error}"
        raise _wrong_token("token_file_invalid", message) from error
    # A file of another owner is a mounted secret, whose owner decides about its permissions.
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
        message = f"other users can read {file}; run: chmod 600 {file}"
        raise _wrong_token("token_file_open", message)
    if not text:
        message = (
            f"{file} is empty: remove the file and restart the service, which then creates a new "
            "token"
        )
        raise _wrong_token("token_file_invalid", message)
    return text


def file_values(name: str | None) -> dict[str, Any]:
    """Return the values of the file that `CBP_CONFIG` names, YAML or TOML; empty without a name.

    Raises:
        DefinitionError: Rule `settings_file_invalid`; names the file and what is wrong with it.
    """
    if not name:
        return {}
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        # Without the text of the line, which may hold a password.
        mark = error.problem_mark
        where = "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
        message = f"{error.problem or 'not valid YAML'}{where}"
        raise _wrong_settings(path, message) from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _wrong_settings(path, str(error)) from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise _wrong_settings(path, "expected `name: value` pairs")
    return values


def _wrong_token(rule: str, message: str) -> DefinitionError:
    return DefinitionError(Mistake(rule, "token_file", message))


def _wrong_settings(path: Path, message: str) -> DefinitionError:
    return DefinitionError(Mistake("settings_file_invalid", str(path), message))


def _port(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        message = f"the port (CBP_PORT) is {text!r}; expected a whole number, such as {PORT}"
        raise DefinitionError(Mistake("settings_invalid", "port", message)) from None


HOST = "127.0.0.1"
PORT = 8420
ROOT = Path("cbp-data")


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a service, and the bearer token for it.

    `verify` has the authorities whose certificates are accepted; `True` means the system's.
    """

    url: str
    token: str = field(repr=False)
    verify: ssl.SSLContext | bool = field(default=True, repr=False)


def find_address(url: str | None = None, token: str | None = None) -> Address:
    """Return the given address and token, or else those that the commands find.

    Raises:
        TokenMissingError: If there is no token yet.
        DefinitionError: If the settings file, the port, the token file or a certificate cannot
            be used.
    """
    file = file_values(os.environ.get("CBP_CONFIG"))

    def text(name: str, default: str = "") -> str:
        value = os.environ.get(f"CBP_{name.upper()}", file.get(name))
        return default if value is None else str(value)

    def path(name: str) -> Path | None:
        return Path(given) if (given := text(name)) else None

    ca, tls_cert = path("ca"), path("tls_cert")
    if not url:
        host, port = text("host", HOST), _port(text("port", str(PORT)))
        advertised = text("advertise_url")
        url = url_of(host, port, uses_tls=bool(ca or tls_cert), advertise_url=advertised)
    verify: ssl.SSLContext | bool = True
    if url.startswith("https://"):
        verify = trusted_authorities(ca=ca, tls_cert=tls_cert)
    token = token or text("token")
    if not token:
        root = (path("root") or ROOT).expanduser().absolute()
        token_file = (path("token_file") or root / "token").expanduser().absolute()
        token = read_token_file(token_file)
        if token is None:
            raise TokenMissingError(token_file)
    return Address(url.rstrip("/"), token, verify)


def url_of(host: str, port: int, *, uses_tls: bool, advertise_url: str) -> str:
    """Return the address at which clients on this machine reach the service.

    With TLS it is `advertise_url`, if given, since the certificate is for that name.
    """
    if uses_tls and advertise_url.startswith("https://"):
        return advertise_url
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if uses_tls else 'http'}://{shown}:{port}"


def trusted_authorities(*, ca: Path | None, tls_cert: Path | None) -> ssl.SSLContext:
    """Return the authorities: those of the system, of `ca`, and the service's own certificate.

    `tls_cert` is ignored if it is on another machine.

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
            message = f"{path} contains no PEM certificate: {error.strerror or error}"
            raise DefinitionError(Mistake("ca_invalid", "ca", message)) from error
    # The service's own certificate may be trusted by itself, no matter what signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
