"""A small dataflow behind the application."""

from __future__ import annotations

import json

from controller.app import Service

TOKEN = "canary-of-the-tests"


DOCUMENT = {
    "name": "urls",
    "sources": {"visits": {"schema": "url STRING", "format": "jsonl"}},
    "stages": {"count": {"translator": "url_count", "inputs": {"urls": "visits"}, "buckets": 2}},
}


def drop(service: Service, *urls: str, dataflow: str = "urls", name: str = "f.jsonl") -> None:
    incoming = service.settings.drop_root / dataflow / "visits" / "incoming"
    lines = "".join(json.dumps({"url": url}) + "\n" for url in urls)
    part = incoming / f"{name}.part"
    part.write_text(lines)
    part.rename(incoming / name)  # a service that runs may claim it between its making and a write


def count(service: Service, url: str, dataflow: str = "urls") -> int:
    records = service.controller.reading.look_up(dataflow, "count", "counts", {"url": url})
    return sum(record["n"] for record in records)
