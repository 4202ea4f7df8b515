"""Secrets beside the settings that hold them, so that they can be masked.

The path of a secret address is one, since messages quote paths alone. And botocore reads the
environment and a file of credentials where no setting names a key:

    AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN         the secrets themselves
    AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) a file that has them, by profile

Absent on purpose: secrets that a role of a machine gets over the network; they are never in a file.
"""

from __future__ import annotations

import configparser
from collections.abc import Iterator, Mapping
from pathlib import Path

_NAMES = ("aws_secret_access_key", "aws_session_token")
_FILE, _DEFAULT_FILE = "AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"


def address_paths(address: str) -> Iterator[str]:
    """Yield the path of an address: with and without its slash, and with its query."""
    _, separator, rest = address.partition("://")
    _, slash, path = rest.partition("/")
    if separator and slash:
        for part in (path, path.partition("?")[0]):
            yield from (f"/{part}", part)


def cloud_secrets(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets that an environment has, or the file of credentials that it names."""
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
