"""The JSON document has exactly the fields that were promised.

Extras are named.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

from tests.bench.measurements.result import Measured, Sample, document, median
from tests.bench.reports.console import growth
from tests.bench.run_command import JsonFile

FIELDS = [
    "workload",
    "candidate",
    "form",
    "state_keys",
    "increment_records",
    "seconds_median",
    "seconds_all",
    "floor_seconds",
    "bytes_read",
    "bytes_shuffled",
    "bytes_written",
]
EXTRAS = [
    "bytes_broadcast",
    "epochs",
    "state_records",
    "state_updated",
    "cpu_seconds",
    "cold_seconds",
    "index_bytes",
    "error",
    "error_stale",
    "cpu_seconds_all",
]


def measured() -> Measured:
    """Give the summary of three runs."""
    samples = [
        Sample(0.3, 10, None, 100, {}, bytes_broadcast=5, epochs=4, updated=3.0),
        Sample(0.1, 30, None, 100, {}, bytes_broadcast=7, epochs=2, updated=1.0),
        Sample(0.2, None, None, 400, {}, epochs=3, updated=2.0),
    ]
    return Measured.of(
        samples,
        workload="url-count",
        candidate="cbp",
        form="groupwise",
        state_keys=7,
        increment_records=3,
        floor_seconds=0.05,
        state_records=8,
    )


def test_the_document_has_the_promised_shape() -> None:
    """Programs that read results find the same fields, whatever was measured."""
    actual = json.loads(json.dumps(document([measured()], complete=True)))
    assert list(actual) == ["machine", "versions", "results", "complete"]
    assert list(actual["results"][0]) == FIELDS + EXTRAS
    assert {"cores", "memory_bytes", "processor"} <= actual["machine"].keys()
    assert {"python", "pyspark", "pyarrow"} <= actual["versions"].keys()


def test_extras_are_told_apart() -> None:
    """The fields that were promised are named in the help, and which others there are."""
    _, option = get_args(JsonFile)
    told = str(option.help)
    promised, extras = told.split(" as extras ")
    assert all(name in promised for name in FIELDS)
    assert all(name in extras and name not in promised for name in EXTRAS)


def test_growth_compares_equal_increments_on_the_smallest_and_largest_state() -> None:
    """Another candidate, or another size of increment, is another line."""
    one = measured()
    many = [replace(one, state_keys=keys) for keys in (7, 70, 700)]
    other = replace(one, increment_records=9)
    assert growth([*many, other, replace(one, candidate="scan")]) == [(many[0], many[2])]


def test_figures_are_medians_and_unknown_ones_are_null() -> None:
    """An unknown figure is null, never 0; a partly known one is the median of the rest."""
    one = measured()
    assert one.seconds_median == 0.2
    assert one.seconds_all == (0.3, 0.1, 0.2)
    assert (one.bytes_read, one.bytes_shuffled, one.bytes_written) == (20, None, 100)
    assert (one.bytes_broadcast, one.epochs, one.state_updated) == (6, 3, 2.0)
    assert median([None, None]) is None


def test_the_share_of_the_state_is_known_where_both_are() -> None:
    """Records updated per epoch over those that the state began with."""
    assert measured().share_updated == 0.25
    assert replace(measured(), state_records=None).share_updated is None
