"""A service that was started with an author's file: the file reaches its workers, and changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp.client.errors import ServiceProblemError
from cbp.errors import CbpError
from cbp.model.author.source_modules import load_sources
from controller.client.service_client import ServiceClient
from tests.authored import write
from tests.controller.served import served
from tests.controller.world import until

COUNT = """
from cbp import Input, State, Translate
from authored_text import cleaned


class AuthoredCount(Translate):
    urls = Input("url STRING", route_by="url")
    counts = State("url STRING, n BIGINT, text STRING")

    def translate(self, key, group, out):
        n = sum(1 for _ in group.urls) + sum(row.n for row in group.counts)
        out.counts(url=key.url, n=n, text=cleaned(key.url))
"""
TEXT = "def cleaned(text):\n    return text.upper()\n"
STAGE = {"translator": "AuthoredCount", "inputs": {"urls": "urls"}, "buckets": 2}
DOCUMENT = {
    "name": "authored",
    "sources": {"urls": {"schema": "url STRING", "format": "jsonl"}},
    "stages": {"count": STAGE},
}


SENT: dict[str, Any] = {
    "content": json.dumps(DOCUMENT).encode(),
    "content_type": "application/json",
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that no worker has on its path."""
    author = tmp_path / "author"
    write(author, {"authored_count.py": COUNT, "authored_text.py": TEXT})
    yield author
    load_sources(str(author), lambda _: None, [])


def drop(client: ServiceClient, name: str, *urls: str) -> None:
    """Upload a file of these URLs."""
    client.post(
        "dataflows",
        "authored",
        "sources",
        "urls",
        "files",
        query={"name": name},
        content="".join(json.dumps({"url": url}) + "\n" for url in urls).encode(),
        content_type="application/octet-stream",
    )


def counted(client: ServiceClient) -> dict[str, Any]:
    """Return what the table of counts has."""
    rows = client.get("dataflows", "authored", "state", "count", "counts", "records")["items"]
    return {row["url"]: (row["n"], row["text"]) for row in rows}


def test_a_file_is_run_changed_and_registered_again_without_a_restart(
    folder: Path, tmp_path: Path
) -> None:
    """In worker processes. Until it is registered, the old code goes on, and `code` says so."""
    with (
        served(tmp_path, worker_processes=True, translators=(folder / "authored_count.py",)) as one,
        ServiceClient(one[0]) as client,
    ):
        client.post("dataflows", **SENT)
        drop(client, "1.jsonl", "a", "b", "a")
        until(lambda: counted(client) == {"a": (2, "A"), "b": (1, "B")})
        write(folder, {"authored_text.py": TEXT.replace("upper()", "title() + '!'")})
        drop(client, "2.jsonl", "b")
        until(lambda: counted(client) == {"a": (2, "A"), "b": (2, "B")})
        code = client.get("dataflows", "authored", "stages", "count")["code"]
        assert code["newer_files"] == [str(folder / "authored_text.py")]
        with pytest.raises(ServiceProblemError) as refused:
            client.put("dataflows", "authored", **SENT)
        assert "authored_text.cleaned" in refused.value.message
        # The new code is loaded by now, and what is registered runs on with its own.
        (stage,) = client.get("dataflows", "authored")["stages"]
        assert stage["newer_files"] == [str(folder / "authored_text.py")]
        drop(client, "3.jsonl", "c")
        until(lambda: counted(client).get("c") == (1, "C"))
        client.put("dataflows", "authored", query={"rebuild": ["count"]}, **SENT)
        until(lambda: counted(client) == {"a": (2, "A!"), "b": (2, "B!"), "c": (1, "C!")})
        write(folder, {"authored_count.py": "class\n"})
        with pytest.raises(CbpError, match=r"authored_count\.py"):
            client.put("dataflows", "authored", **SENT)
        drop(client, "4.jsonl", "c")
        until(lambda: counted(client)["c"] == (2, "C!"))


@pytest.mark.soak
def test_a_failed_run_says_that_the_file_is_newer(folder: Path, tmp_path: Path) -> None:
    """A retry runs the loaded code again, which its author has mended on disk."""
    mended = folder / "authored_text.py"
    write(folder, {mended.name: "def cleaned(text):\n    return text / 2\n"})
    settings = {"failures_max": 1, "translators": (folder / "authored_count.py",)}
    with (
        served(tmp_path, worker_processes=True, **settings) as one,
        ServiceClient(one[0]) as client,
    ):

        def stage() -> dict[str, Any]:
            (stage,) = client.get("dataflows", "authored")["stages"]
            return dict(stage)

        client.post("dataflows", **SENT)
        drop(client, "1.jsonl", "a")
        until(lambda: stage()["failures"] == 1)
        assert "register the document again" not in stage()["waiting"]
        write(folder, {mended.name: TEXT})
        assert stage()["newer_files"] == [str(mended)]
        client.post("dataflows", "authored", "stages", "count", "retry")
        until(lambda: "register the document again" in stage()["waiting"])
        assert stage()["waiting"].count(str(mended)) == 2, "where it failed, and what is newer"
        client.put("dataflows", "authored", query={"keep": ["count"]}, **SENT)
        client.post("dataflows", "authored", "stages", "count", "retry")
        until(lambda: counted(client) == {"a": (1, "A")})
        assert stage()["newer_files"] == []
