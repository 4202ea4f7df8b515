"""Lists in a terminal of 80 columns, with names and messages of a usual length."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.cli.main import app
from tests.controller.api.fake_service import Service
from tests.controller.cli.conftest import Cbp

LISTS: dict[str, list[str]] = {
    "alerts": [],
    "audit": [],
    "claims": ["clicks"],
    "disk": ["clicks"],
    "events": [],
    "examples": [],
    "increments": ["clicks"],
    "intentions": ["clicks"],
    "quarantine": ["list", "clicks", "urls"],
    "records": ["clicks", "count.totals"],
    "recoveries": [],
    "rejects": ["clicks", "urls"],
    "set-aside": ["clicks", "count"],
    "rebuild": ["clicks", "--list"],
    "rollback": ["clicks", "--moments"],
    "runs": [],
    "series": ["clicks", "count.totals"],
    "settings": [],
    "sinks": ["list", "clicks"],
    "sources": ["clicks"],
    "stage": ["clicks", "count"],
    "state": ["clicks", "count.counts"],
    "status": ["clicks"],
    "tokens": ["list"],
    "top": [],
    "translators": [],
    "versions": ["clicks"],
    "waiting": ["clicks"],
}
NO_LISTS = {
    "backfill", "cancel", "close", "delete", "demo", "dev",
    "differences", "doctor", "drain", "drop", "edit", "explain", "gc", "give-back", "help",
    "history",
    "increment", "infer", "link", "logs", "new", "pause", "priority", "register", "release",
    "recover", "sbom", "sql",
    "repair", "replace", "replay", "resume", "retract", "retry",
    "scrub", "serve", "stack", "support-bundle", "validate", "verify",
}  # fmt: skip
"""Commands that act, or print one thing, prose or a report of their own."""

ELSEWHERE = {"last", "snapshot", "verifications"}
"""Lists that the service of these tests has none of."""

WHOLE_MAX = 29
"""Longer words may be broken."""


@pytest.fixture(autouse=True)
def _long_names(service: Service) -> None:
    service.fill()
    store = service.store
    store.run_records = [
        replace(run, id=f"0193c0ffee{number:010x}") for number, run in enumerate(store.run_records)
    ]
    store.claim_records = [
        replace(claim, path=f"2026/11/{'part-of-a-long-name-' * 4}{claim.path}", sha256="a" * 64)
        for claim in store.claim_records
    ]
    service.controller.reading.flow = [
        {"url": "https://example.org/" + "a/b/" * 30, "count_of_visits": 10**12, "n": n}
        for n in range(3)
    ]


def test_every_command_is_a_list_or_is_none() -> None:
    """A further command has to be placed here."""
    groups = {group.name for group in app.registered_groups}
    commands = {command.name for command in app.registered_commands} | groups
    assert commands == LISTS.keys() | NO_LISTS | ELSEWHERE


@pytest.mark.parametrize("command", LISTS)
def test_a_list_fits_80_columns(cbp: Cbp, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is folded by the terminal, and no name, id, time or figure is broken to fit."""
    arguments = [command, *LISTS[command]]
    monkeypatch.setenv("COLUMNS", "400")
    wide = cbp(*arguments)
    monkeypatch.setenv("COLUMNS", "80")
    narrow = cbp(*arguments)
    status = 4 if command == "status" else 0  # a file is in quarantine
    assert (wide.status, narrow.status) == (status, status), narrow.err
    whole = set(wide.out.split())
    long_words = [word for word in whole if len(word) > WHOLE_MAX]
    for line in narrow.out.splitlines():
        if line.startswith(("columns left out: ", "cbp top, ")):  # the latter has the time
            continue
        if "  " in line.strip():
            assert len(line) <= 80
        for word in line.split():
            assert word in whole or any(word in one for one in long_words), (word, line)
    assert wide.out.strip()
