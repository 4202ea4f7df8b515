"""Every command prints an answer that has something in it, as the API's document promises it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import httpx
import pytest

from controller.cli.session import Session, Waits
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp
from tests.controller.cli.schema_examples import EXAMPLES
from tests.controller.cli.test_twins import OPERATIONS, TWINS, _matches

READS = sorted(
    operation
    for operation in TWINS
    if OPERATIONS[operation][0] == "GET"
    and operation in EXAMPLES
    and TWINS[operation].split()[0] not in ("support-bundle", "scrub", "top")
    and "--wait" not in TWINS[operation]
)
"""What is read and printed once; commands that act print a sentence."""


class Filled(httpx.BaseTransport):
    """Answers every request as the API's document promises, and has two pages."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().partition("?")[0]
        for operation, (method, template) in OPERATIONS.items():
            if method == request.method and _matches(template, path) and operation in EXAMPLES:
                last = {"cursor": None} if "cursor" in request.url.params else {}
                return httpx.Response(200, json=EXAMPLES[operation] | last)
        return httpx.Response(404, json={})


@pytest.mark.parametrize("operation", READS)
def test_a_filled_answer_is_printed(
    operation: str, cbp: Cbp, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command ends with a traceback because a list has a row."""
    monkeypatch.chdir(tmp_path)
    waits = Waits(poll_seconds=0, patience_seconds=0)
    outcome = cbp(
        *shlex.split(TWINS[operation]), session=Session(service.settings, Filled(), waits)
    )
    assert outcome.status in (0, 1), outcome.err
    assert outcome.out.strip() or outcome.err.strip(), json.dumps(EXAMPLES[operation])
