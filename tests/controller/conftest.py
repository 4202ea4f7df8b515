"""Logs of the service under test go nowhere: a test asserts on what happened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from tests.conformance.conftest import new_postgres_database

__all__ = ["new_postgres_database"]


def _drop(logger: Any, method: str, event: Any) -> Any:
    raise structlog.DropEvent


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    structlog.configure(processors=[_drop])
    yield
    structlog.reset_defaults()
