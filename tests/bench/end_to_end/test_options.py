"""Options of the benchmark of the service."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.end_to_end.options import ServiceBenchOptions
from tests.bench.errors import BenchRefusedError


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("state-keys", {"state_keys": 0}),
        ("increment", {"lines": 0}),
        ("clients", {"clients": 0}),
        ("reads", {"read_seconds": -1.0}),
        ("engine", {"engine": "flink"}),
        ("form", {"form": "sql"}),
        ("backlog", {"backlog": -1}),
        ("backlog-lines", {"backlog_lines": 0}),
        ("backlog-rounds", {"backlog_rounds": 0}),
        ("files", {"files": 0, "ingest_seconds": 0, "read_seconds": 0}),
    ],
)
def test_what_cannot_be_measured_is_refused_by_its_option(
    option: str, given: dict[str, Any]
) -> None:
    """The refusal names the option, before a service is started."""
    with pytest.raises(BenchRefusedError) as caught:
        ServiceBenchOptions(**given).check()
    assert caught.value.details["option"] == option


def test_the_usual_options_can_be_measured() -> None:
    """The defaults are no mistake."""
    ServiceBenchOptions().check()
