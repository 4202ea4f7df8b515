"""The parts of guides that are made from the code that they describe: settings, options, damages.

Each part is Markdown, the same on every machine. Texts come from docstrings, so that a setting has
one description; one without a description fails the test.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import SecretStr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from cbp.model.source import options as source_options
from controller.settings import Settings
from tests.guides.damages import DAMAGES

__all__ = ["PARTS", "default_of", "describe_options", "describe_settings"]

_ROOT = "ROOT"
_CHAPTERS = {
    "root": "Folders and database",
    "host": "Address",
    "engine": "Engine and Spark",
    "parallel_runs_max": "Runs",
    "lease_seconds": "Several instances",
    "tick_seconds": "Ticks, drop folders, clean-up",
    "keep_versions_min": "How long things are kept",
    "dataflows_max": "Registration, code and stop",
    "source_locations": "Buckets",
    "token": "Tokens, requests, clients",
    "file_bytes_max": "Limits of dropped files",
    "page_size_default": "Lists and SQL queries",
    "alert_webhook_url": "Alerts, traces, lineage",
    "session_hours": "Sessions, TLS, audit log",
    "umask": "Process and log",
}
"""The first setting of each chapter, in the order of the model."""
_UNITS = (("seconds", "s"), ("minutes", "min"), ("hours", "h"), ("days", "d"))
_SIZES = (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10))


class _Defaults(Settings):
    """The settings without an environment and without a file."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)


def describe_settings() -> dict[str, str]:
    """Return what each setting means, by name, as the docstring of `Settings` says it."""
    _, _, attributes = inspect.cleandoc(Settings.__doc__ or "").partition("Attributes:\n")
    meanings: dict[str, str] = {}
    for entry in re.split(r"\n(?=    \S)", "\n" + attributes)[1:]:
        names, _, text = entry.strip().partition(":")
        for name in names.split(","):
            meanings[name.strip()] = " ".join(text.split())
    return meanings


def describe_options() -> dict[str, str]:
    """Return what each option of a source means, by name, as its module says it."""
    text = source_options.__doc__ or ""
    entries = re.findall(r"^    (\w+) +(\S.*(?:\n {12,}.*)*)", text, re.MULTILINE)
    return {name: " ".join(meaning.split()) for name, meaning in entries}


def default_of(name: str) -> str:
    """Return a setting's default with its unit; where it is made of `root`, with `ROOT`."""
    root = f"/{_ROOT}"
    value = getattr(_Defaults(root=Path(root)), name)
    if name == "root":
        value = Settings.model_fields["root"].default
    shown = _shown(value).replace(root, _ROOT)
    return f"`{shown}`{_unit(name, value)}" if shown else ""


def _shown(value: Any) -> str:
    if value is None or isinstance(value, SecretStr) or value in ("", (), {}):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(_shown(one) for one in value)
    if isinstance(value, float) and value == int(value):
        return str(int(value))
    return str(value)


def _unit(name: str, value: Any) -> str:
    """Return what follows a default: its unit, or its size in a larger one."""
    words = name.split("_")
    if "bytes" in words:
        sizes = (f" ({value >> shift} {unit})" for unit, shift in _SIZES if value >> shift)
        return next(sizes, " bytes")
    return next((f" {unit}" for word, unit in _UNITS if word in words), "")


def _limits(name: str) -> str:
    """Return which values are allowed: bounds, or words."""
    field = Settings.model_fields[name]
    low = high = ""
    for rule in field.metadata:
        for bound in ("ge", "gt"):
            if (value := getattr(rule, bound, None)) is not None:
                low = ("from " if bound == "ge" else "above ") + _shown(value)
        if (value := getattr(rule, "le", None)) is not None:
            high = f"to {_shown(value)}"
    words = [one for one in getattr(field.annotation, "__args__", ()) if isinstance(one, str)]
    return " ".join(filter(None, (low, high))) or " or ".join(f"`{word}`" for word in words)


def _settings() -> str:
    meanings, chapters = describe_settings(), list[list[str]]()
    for name in Settings.model_fields:
        if title := _CHAPTERS.get(name):
            head = "| variable | default | allowed | meaning |"
            chapters.append([f"## {title}\n", head, "| --- | --- | --- | --- |"])
        cells = (default_of(name), _limits(name), _cell(meanings.get(name, "")))
        chapters[-1].append(f"| `CBP_{name.upper()}` | {' | '.join(cells)} |")
    return "\n\n".join("\n".join(lines) for lines in chapters)


def _options() -> str:
    lines = ["| option | formats | meaning |", "| --- | --- | --- |"]
    for name, meaning in describe_options().items():
        formats = [one for one, options in source_options.OPTIONS.items() if name in options]
        lines.append(f"| `{name}` | {', '.join(formats)} | {_cell(meaning)} |")
    return "\n".join(lines)


def _damages() -> str:
    return "\n\n".join(
        f"## {one.what}\n\n- symptom: {one.shows}\n- loss: {one.lost}\n- repair: {one.mends}"
        for one in DAMAGES
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")


PARTS: Mapping[str, Callable[[], str]] = MappingProxyType(
    {"settings": _settings, "options": _options, "damages": _damages}
)
"""What makes each part, by the name in the guide's comments."""
