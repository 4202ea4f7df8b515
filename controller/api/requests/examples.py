"""Examples of requests for the OpenAPI document: one story about the dataflow `clicks`.

The dataflow of `dataflows_register` counts URLs, and reads the file of `sources_upload`. All other
examples refer to these two. A test sends the bodies in this order, and then calls every route that
reads with the examples of its parameters (tests/controller/api/test_examples.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CLICKS: dict[str, Any] = {
    "name": "clicks",
    "sources": {"urls": {"schema": "url STRING", "format": "jsonl"}},
    "stages": {
        "count": {"translator": "url_count_view", "inputs": {"urls": "urls"}, "any_order": True}
    },
}
_LINES = '{"url": "/docs"}\n{"url": "/"}\n{"url": "/docs"}\n'
_RIGHT_LINES = '{"url": "/docs"}\n{"url": "/docs"}\n{"url": "/docs"}\n'
_CORRECTION = {"corrections": [{"key": {"url": "/docs"}, "set": {"n": 4}}]}
_RUNS = {"runs": ["01970e2f6c5b7d3f8a41"]}

BODIES: Mapping[str, Any] = {
    "dataflows_validate": _CLICKS,
    "dataflows_register": _CLICKS,
    "sources_upload": _LINES,
    "sources_preview_replacement": _RIGHT_LINES,
    "sources_replace": _RIGHT_LINES,
    "quarantine_readmit": _LINES,
    "dataflows_change": {**_CLICKS, "description": "Counts how often each URL was seen."},
    "queries_query": {"sql": "SELECT url, n FROM count.counts ORDER BY n DESC LIMIT 10"},
    "corrections_preview": _CORRECTION,
    "corrections_correct": _CORRECTION,
    "verifications_start": {"seconds_max": 60},
    "rebuilds_start": _CLICKS,
    "runs_cancel_many": _RUNS,
    "runs_retry_many": _RUNS,
    "tokens_create": {"name": "shop-producer", "scope": "operator", "dataflows": ["clicks"]},
    "sessions_sign_in": {"token": "the content of the token file, or a token of yours"},
}
"""A body for each operation that has one."""

PARAMETERS: Mapping[str, str] = {
    "name": "clicks",
    "source": "urls",
    "stage": "count",
    "state": "counts",
    "flow": "count.counts",
    "index": "0",
    "example": "crawl_queue",
    "guide": "roll-back",
    "priority": "high",
    "table": "count.counts",
    "version": "1",
}
"""A value for each path parameter that is not an id; ids cannot be known in advance."""

_BODY_PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "sources_upload": {"name": "monday.jsonl"},
    "sources_preview_replacement": {"name": "monday.jsonl"},
    "sources_replace": {"name": "monday.jsonl", "reason": "the last page was wrong"},
    "sources_preview_retraction": {"name": "monday.jsonl"},
    "sources_retract": {"name": "monday.jsonl", "reason": "a test"},
    "rollbacks_replay": {"reason": "the code was fixed"},
    "corrections_correct": {"reason": "the fourth record was lost"},
    "corrections_preview": {"reason": "the fourth record was lost"},
    "quarantine_readmit": {"reason": "a number instead of a text"},
    "stages_give_back": {"reason": "null hours count as 0"},
}
"""Query parameters that an operation needs in addition to its body."""


def add_examples(document: dict[str, Any]) -> None:
    """Put the examples into an OpenAPI document."""
    operations = (one for methods in document["paths"].values() for one in methods.values())
    for operation in operations:
        name = operation.get("operationId", "")
        contents = operation.get("requestBody", {}).get("content", {})
        if name in BODIES:
            for content in contents.values():
                content["examples"] = {"clicks": {"value": BODIES[name]}}
        for parameter in operation.get("parameters", ()):
            queries = _BODY_PARAMETERS.get(name, {}) if parameter["in"] == "query" else PARAMETERS
            if parameter["name"] in queries and parameter["in"] in ("path", "query"):
                parameter["example"] = queries[parameter["name"]]
