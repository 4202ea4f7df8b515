"""Reads the two files that commands and the service share: the settings' file, and the token's.

Guaranteed: no error quotes a file's text, which may hold secrets.
Absent on purpose: which files these are; see `address`, and `controller.settings`.
"""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import yaml

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
    # A file of another owner is a mounted secret: its permissions are not ours to judge.
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
        message = f"other users can read {file}; run: chmod 600 {file}"
        raise _wrong_token("token_file_open", message)
    if not text:
        message = (
            f"{file} is empty; remove the file, and the service creates a new token at its next "
            "start"
        )
        raise _wrong_token("token_file_invalid", message)
    return text


def file_values(name: str | None) -> dict[str, Any]:
    """Return the values of the file that `CBP_CONFIG` names, YAML or TOML; empty without a name.

    Raises:
        DefinitionError: Rule `settings_file_invalid`, naming the file and what is wrong with it.
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
        message = f"{error.problem or 'is not YAML'}{where}"
        raise _wrong_settings(path, message) from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _wrong_settings(path, str(error)) from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        message = "expected `name: value` pairs"
        raise _wrong_settings(path, message)
    return values


def _wrong_token(rule: str, message: str) -> DefinitionError:
    return DefinitionError(Mistake(rule, "token_file", message))


def _wrong_settings(path: Path, message: str) -> DefinitionError:
    return DefinitionError(Mistake("settings_file_invalid", str(path), message))
