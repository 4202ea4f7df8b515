"""Results of verifications: kept, bounded, and removed with their dataflow."""

from __future__ import annotations

import pytest

from cbp.errors import NotFoundError
from controller.store.base import Store, VerificationRecord
from tests.conformance.records import a_dataflow


def a_result(id_: str, dataflow: str = "d", **more: object) -> VerificationRecord:
    return VerificationRecord(id_, dataflow, {"status": "equal", **more})


def test_the_newest_results_of_each_dataflow_are_kept(chain: Store) -> None:
    """Newest first; those of another dataflow count for themselves."""
    chain.register(a_dataflow("other"), {"s": {"i": "x"}})
    chain.keep_verification(a_result("x", "other"), most=3)
    for number in range(5):
        chain.keep_verification(a_result(f"v{number}", text="\0\ud800"), most=3)
    assert [one.id for one in chain.verifications("d")] == ["v4", "v3", "v2"]
    assert chain.verifications("other") == [a_result("x", "other")]
    assert chain.verification("v4") == a_result("v4", text="\0\ud800")
    with pytest.raises(NotFoundError):
        chain.verification("v1")


def test_a_later_result_takes_the_place_of_an_earlier_one(chain: Store) -> None:
    """A verification that was given up may still end."""
    chain.keep_verification(a_result("v0", n=1), most=3)
    chain.keep_verification(a_result("v0", n=2), most=3)
    assert chain.verifications("d") == [a_result("v0", n=2)]


def test_results_go_with_their_dataflow(chain: Store) -> None:
    """And none is kept of a dataflow that is gone."""
    chain.keep_verification(a_result("v0"), most=3)
    chain.delete("d")
    assert chain.verifications("d") == []
    with pytest.raises(NotFoundError) as gone:
        chain.keep_verification(a_result("v1"), most=3)
    assert gone.value.details["kind"] == "dataflow"
