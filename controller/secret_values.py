"""Secrets of the service: checks of addresses, the token file, and secrets that logs must mask.

The path of a secret address is masked too, since messages can quote a path alone. If no setting
names a key, botocore finds one in the environment or in a file of credentials:

    AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN         the secrets themselves
    AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) a file that has them, by profile

Absent on purpose: secrets that a machine's role gets over the network; they are never in a file.
"""

from __future__ import annotations

import configparser
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

TOKEN_BYTES = 32

_NAMES = ("aws_secret_access_key", "aws_session_token")
_FILE, _DEFAULT_FILE = "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"


def address_paths(address: str) -> Iterator[str]:
    """Yield the path of an address with and without its leading slash, and its query."""
    _, separator, rest = address.partition("://")
    _, slash, path = rest.partition("/")
    if separator and slash:
        for part in (path, path.partition("?")[0]):
            yield from (f"/{part}", part)


def cloud_secrets(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets in an environment, and in the file of credentials that it names."""
    for name in _NAMES:
        if secret := environment.get(name.upper()):
            yield secret
    profiles = configparser.ConfigParser(interpolation=None)
    try:
        path = Path(environment.get(_FILE) or _DEFAULT_FILE).expanduser()
        profiles.read_string(path.read_text(encoding="utf-8"))
    except (OSError, RuntimeError, ValueError, configparser.Error):
        return  # there is none, or none that botocore could read
    for profile in profiles.values():
        yield from (profile[name] for name in _NAMES if profile.get(name))


def require_address(value: SecretStr | None, schemes: tuple[str, ...]) -> SecretStr | None:
    """Return an address with one of these schemes, such as `https`, or `None`.

    The `ValueError` for any other text does not quote it.
    """
    if value is None:
        return None
    try:
        parts = urlsplit(value.get_secret_value())
        valid = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        begins = " or ".join(f"{one}://" for one in schemes)
        message = f"is not a valid address; expected one that begins with {begins}"
        raise ValueError(message)
    return value


def create_token_file(path: Path) -> None:
    """Write a new token that only its owner can read, unless the file exists already.

    If two processes do so at the same time, one of the two tokens wins.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
