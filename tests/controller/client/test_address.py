"""The public client finds the service as the commands do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cbp.client.address import find_address
from cbp.client.errors import TokenMissingError
from cbp.errors import DefinitionError
from controller.settings import load_settings

FILES = {
    "plain": {"CBP_ROOT": "data"},
    "token": {"CBP_TOKEN": "given", "CBP_PORT": "8555"},
    "token file": {"CBP_TOKEN_FILE": "other", "CBP_HOST": "::1"},
    "settings file": {"CBP_CONFIG": "cbp.yaml"},
    "environment before file": {"CBP_CONFIG": "cbp.yaml", "CBP_ROOT": "data", "CBP_PORT": "8557"},
    "behind a proxy": {"CBP_ROOT": "data", "CBP_ADVERTISE_URL": "https://cbp.example"},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [one for one in os.environ if one.startswith("CBP_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    for place in ("cbp-data", "data", "elsewhere"):
        (tmp_path / place).mkdir()
        token = tmp_path / place / "token"
        token.touch(0o600)
        token.write_text(f"of-{place}\n")
    (tmp_path / "other").touch(0o600)
    (tmp_path / "other").write_text("of-other")
    (tmp_path / "cbp.yaml").write_text("root: elsewhere\nport: 8556\nhost: localhost\n")
    return tmp_path


@pytest.mark.parametrize("case", FILES)
def test_address_and_token_are_those_of_the_settings(
    case: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Environment before file before default, for each value on its own."""
    for name, value in FILES[case].items():
        monkeypatch.setenv(name, value)
    settings, found = load_settings(), find_address()
    assert (found.url, found.token) == (settings.url, settings.read_token())
    assert found.verify is True
    assert found.token not in repr(found)


def test_what_is_given_comes_first(folder: Path) -> None:
    """An address in the call replaces that of the environment; so does a token."""
    assert find_address("http://there:1/").url == "http://there:1"
    assert find_address("http://there:1").token == "of-cbp-data"
    assert find_address(token="mine").token == "mine"


def test_a_port_that_is_no_number_is_a_coded_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with the commands; the message names the setting and its value."""
    monkeypatch.setenv("CBP_PORT", "84a0")
    with pytest.raises(DefinitionError, match=r"the port .* is '84a0'"):
        find_address()


def test_a_missing_token_or_one_that_others_may_read_is_told(folder: Path) -> None:
    """The path says where it should be."""
    token = folder / "cbp-data" / "token"
    token.chmod(0o644)
    with pytest.raises(DefinitionError, match="chmod 600"):
        find_address()
    token.unlink()
    with pytest.raises(TokenMissingError, match="cbp-data/token"):
        find_address()
