"""The document that `cbp register` and its like send."""

from __future__ import annotations

from typing import Any

import pytest

from controller.cli.dataflows import register


@pytest.mark.parametrize(
    ("offered", "content"),
    [
        ({"name": "clicks"}, b'{"name": "clicks"}'),
        ("name: clicks", b'"name: clicks"'),
        (None, b"null"),
    ],
)
def test_what_a_package_offers_is_sent_as_it_is(
    monkeypatch: pytest.MonkeyPatch, offered: Any, content: bytes
) -> None:
    """As JSON, even what is no document, so that the service says what is wrong with it."""
    monkeypatch.setattr(register, "_ready", lambda name: offered)
    assert register.document_of("clicks") == (content, "application/json")


def test_an_error_of_the_code_that_offers_a_document_is_no_unreadable_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The name is that of a dataflow, not of a file; so the error is the author's own."""

    def fails(name: str) -> Any:
        raise PermissionError(name)

    monkeypatch.setattr(register, "_ready", fails)
    with pytest.raises(PermissionError):
        register.document_of("clicks")
