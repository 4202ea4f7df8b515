"""The guides over REST: the same that `cbp help` prints, and their blocks."""

from __future__ import annotations

from dataclasses import asdict

import httpx
import pytest

from controller.guides import Guide, guides
from controller.guides.markdown_blocks import blocks_of
from tests.controller.api.fake_service import Service


@pytest.fixture
def client(filled: Service) -> httpx.Client:
    return filled.client()


def test_the_list_has_every_guide_in_order(client: httpx.Client) -> None:
    """With what it is about; the texts are asked for one by one."""
    page = client.get("/api/v1/guides").json()
    fields = ("name", "group", "title", "about")
    assert page["items"] == [{name: getattr(one, name) for name in fields} for one in guides()]
    assert page["cursor"] is None


@pytest.mark.parametrize("guide", guides(), ids=lambda guide: guide.name)
def test_a_guide_comes_as_markdown_and_as_blocks(client: httpx.Client, guide: Guide) -> None:
    """Both are the whole guide."""
    answer = client.get(f"/api/v1/guides/{guide.name}").json()
    assert answer["text"] == guide.text
    assert answer["blocks"] == [asdict(block) for block in blocks_of(guide.text)]


def test_an_unknown_guide_is_not_found(client: httpx.Client) -> None:
    """The message names those that there are."""
    answer = client.get("/api/v1/guides/nothing")
    assert (answer.status_code, answer.json()["error_code"]) == (404, "not_found")
    assert "roll-back" in answer.json()["message"]
