"""Reads the file that holds the token of the service; refuses one that others may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

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
        raise _wrong("token_file_invalid", message) from error
    # A file of another owner is a mounted secret: its permissions are not ours to judge.
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
        message = f"other users may read {file}; run: chmod 600 {file}"
        raise _wrong("token_file_open", message)
    if not text:
        message = f"{file} is empty; remove it, and a token is made at the next start"
        raise _wrong("token_file_invalid", message)
    return text


def _wrong(rule: str, message: str) -> DefinitionError:
    return DefinitionError(Mistake(rule, "token_file", message))
