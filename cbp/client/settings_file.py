"""Reads the file that `CBP_CONFIG` names; never quotes its text, which may hold secrets."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import yaml

from cbp.errors import DefinitionError, Mistake


def file_values(name: str | None) -> dict[str, Any]:
    """Return the values of a YAML or TOML file; none if there is no name.

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
        raise _wrong(message, path) from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _wrong(str(error), path) from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        message = "expected `name: value` pairs"
        raise _wrong(message, path)
    return values


def _wrong(message: str, path: Path) -> DefinitionError:
    return DefinitionError(Mistake("settings_file_invalid", str(path), message))
