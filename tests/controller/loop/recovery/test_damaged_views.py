"""A view with a damaged data file is mended as `cbp help damage` says: by a back-fill."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.controller.damaging import flip, remove
from tests.controller.served import served
from tests.controller.small_app import TOKEN
from tests.controller.world import until

DOCUMENT: dict[str, Any] = {
    "name": "viewed",
    "sources": {"urls": {"schema": "url STRING", "format": "jsonl"}},
    "stages": {"count": {"translator": "url_count_view", "inputs": {"urls": "urls"}, "buckets": 2}},
}
LINES = b'{"url": "/"}\n{"url": "/docs"}\n{"url": "/"}\n'


@pytest.mark.part(every=2)
@pytest.mark.parametrize("damage", [flip, remove])
def test_a_back_fill_mends_a_view(damage: Callable[[Path], None], tmp_path: Path) -> None:
    """Readers of changes miss what the damaged file held; the table is right again."""
    with served(tmp_path) as (settings, _, _):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = f"{settings.url}/api/v1/dataflows"
        with httpx.Client(headers=headers, timeout=60, trust_env=False) as client:

            def counts() -> dict[str, int]:
                answer = client.get(f"{url}/viewed/state/count/counts/records")
                return {one["url"]: one["n"] for one in answer.json().get("items", ())}

            client.post(url, json=DOCUMENT).raise_for_status()
            upload = f"{url}/viewed/sources/urls/files"
            client.post(upload, params={"name": "a.jsonl"}, content=LINES).raise_for_status()
            until(lambda: counts() == {"/": 2, "/docs": 1})
            folder = Path(settings.tables) / "viewed" / "state" / "count.counts" / "_runs"
            for path in folder.glob("*/*.parquet"):
                damage(path)
            answer = client.put(f"{url}/viewed", json=DOCUMENT, params={"rebuild": "count"})
            assert answer.is_success, answer.text
            until(lambda: counts() == {"/": 2, "/docs": 1})
