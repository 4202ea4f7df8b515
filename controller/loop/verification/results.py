"""Results of verifications as JSON values, in which the store keeps them.

Guaranteed: `result_of(as_json(one)) == one` (tests/controller/loop/verification/test_results.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

import structlog

from cbp.model.verification import Differing, Request, TableVerdict, Verification

_log = structlog.get_logger(__name__)


def as_json(one: Verification) -> dict[str, Any]:
    """Return an ended verification as a JSON value."""
    began_at = None if one.began_at is None else one.began_at.isoformat()
    return {**asdict(one), "began_at": began_at}


def result_of(value: Mapping[str, Any]) -> Verification | None:
    """Build a verification from a JSON value; `None` if another release wrote other fields."""
    try:
        return _verification(value)
    except (KeyError, TypeError, ValueError) as error:
        _log.warning("verification.unreadable", error=f"{type(error).__name__}: {error}")
        return None


def _verification(value: Mapping[str, Any]) -> Verification:
    began_at = value["began_at"]
    changed: dict[str, Any] = {
        "request": Request(**value["request"]),
        "began_at": None if began_at is None else datetime.fromisoformat(began_at),
        "tables": tuple(_verdict(table) for table in value["tables"]),
    }
    return Verification(**{**value, **changed})


def _verdict(value: Mapping[str, Any]) -> TableVerdict:
    changed: dict[str, Any] = {
        "differing": tuple(_differing(one) for one in value["differing"]),
        "columns": tuple(value["columns"]),
        "key": tuple(value["key"]),
    }
    return TableVerdict(**{**value, **changed})


def _differing(value: Mapping[str, Any]) -> Differing:
    return Differing(
        key=value["key"],
        expected=tuple(value["expected"]),
        found=tuple(value["found"]),
        key_cells=tuple(value["key_cells"]),
        expected_cells=tuple(map(tuple, value["expected_cells"])),
        found_cells=tuple(map(tuple, value["found_cells"])),
    )
