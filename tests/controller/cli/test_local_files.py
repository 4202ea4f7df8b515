"""Files of this machine that a command cannot read or write, and calls that no calendar holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cbp.client.errors import ServiceUnreachableError
from cbp.client.rest import RestClient
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp


def test_a_fetch_that_breaks_off_leaves_no_file(
    cbp: Cbp, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a refused file would be taken for the whole one."""

    @contextmanager
    def broken(_client: RestClient, *_path: str) -> Iterator[Iterator[bytes]]:
        def parts() -> Iterator[bytes]:
            yield b"half"
            raise ServiceUnreachableError(service.settings.url, "it stopped")

        yield parts()

    monkeypatch.setattr(RestClient, "stream_bytes", broken)
    to = tmp_path / "original"
    assert cbp("quarantine", "fetch", "clicks", "urls", "c3", "--to", to).status == 1
    assert not to.exists()


def test_an_error_of_the_file_system_names_its_file(cbp: Cbp) -> None:
    """The operating system refuses this name: one coded error, no traceback."""
    name = "long" * 100
    outcome = cbp("dev", name, "--json")
    assert (outcome.status, outcome.json["error_code"]) == (1, "operating_failure")
    assert outcome.json["details"]["path"] == name


def test_an_age_before_all_calendars_is_a_wrong_call(cbp: Cbp) -> None:
    """A million days are more than dates have."""
    outcome = cbp("runs", "--since", "999999d")
    assert (outcome.status, "999999d" in outcome.err) == (2, True)
