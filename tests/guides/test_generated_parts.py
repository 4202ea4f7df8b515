"""The parts of guides that the code makes say all of it (tests/test_documents.py: as it is now)."""

from __future__ import annotations

import pytest

from cbp.model.source.options import OPTIONS
from controller.guides import find_guide
from controller.settings import Settings
from tests.guides.generated_parts import default_of, describe_options, describe_settings


def test_every_setting_is_described() -> None:
    """None is missing, none is described that is gone, and each has its line in the guide."""
    assert set(describe_settings()) == set(Settings.model_fields)
    text = find_guide("settings").text
    for name, meaning in describe_settings().items():
        (line,) = (one for one in text.splitlines() if one.startswith(f"| `CBP_{name.upper()}` |"))
        assert meaning.split("`")[0] in line
        assert default_of(name) in line


def test_every_option_of_a_source_is_described_with_its_formats() -> None:
    """The guide has each option's line, with the formats that take it, and every format."""
    assert set(describe_options()) == {name for names in OPTIONS.values() for name in names}
    text = find_guide("source-formats").text
    for name in describe_options():
        (line,) = (one for one in text.splitlines() if one.startswith(f"| `{name}` |"))
        formats = {one for one, names in OPTIONS.items() if name in names}
        assert set(line.split("|")[2].replace(" ", "").split(",")) == formats
    for format_ in OPTIONS:
        assert f"`{format_}`" in text


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("port", "`8420`"),
        ("lease_seconds", "`5` s"),
        ("keep_log_bytes", "`1073741824` (1 GiB)"),
        ("tables", "`ROOT/tables`"),
        ("root", "`cbp-data`"),
        ("worker_processes", "`true`"),
        ("retry_delays_seconds", "`1,5` s"),
        ("token", ""),
    ],
)
def test_a_default_is_shown_as_it_would_be_set(
    name: str, default: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its unit, and without what the environment says here."""
    monkeypatch.setenv(f"CBP_{name.upper()}", "7")
    assert default_of(name) == default
