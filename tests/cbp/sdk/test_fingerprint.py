"""Fingerprints of authors' classes."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from cbp.sdk.declare import place_of
from cbp.sdk.fingerprint import fingerprint, function_fingerprint
from stages.translators.incremental_pagerank import IncrementalPageRank
from stages.translators.url_count import UrlCount


class Slow:
    """Garbage that runs Python when it is collected, so that threads change places there."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        for _ in range(200):
            pass


@pytest.fixture
def _restless() -> Iterator[None]:
    """Threads change as often as they can, also inside of the parser."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("_restless")
def test_documents_may_be_compiled_by_several_threads_at_once():
    """The parser of Python 3.11 fails with SystemError where two threads meet in it."""
    failed: list[BaseException] = []

    def work(depth: int) -> object:
        if depth:
            return work(depth - 1)
        return fingerprint(IncrementalPageRank) and place_of(UrlCount)

    def run(depth: int) -> None:
        for _ in range(10):
            garbage = [Slow() for _ in range(40)]
            del garbage
            try:
                work(depth)
            except SystemError as error:
                failed.append(error)

    threads = [threading.Thread(target=run, args=(depth,)) for depth in (5, 20, 40, 80)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_fingerprint_tells_code_and_passes_over_comments():
    """The same class has the same one; another class another one."""
    assert fingerprint(UrlCount) == fingerprint(UrlCount) != ""
    assert fingerprint(UrlCount) != fingerprint(IncrementalPageRank)


def test_a_function_is_told_by_its_text_without_comments():
    """Another text is another function; what has no text is not known."""

    class First:
        def one(self, r: Any) -> Any:
            return r.a

    class Second:
        def one(self, r: Any) -> Any:
            # says why

            return r.a

    class Third:
        def one(self, r: Any) -> Any:
            return r.b

    plain = function_fingerprint(First.one)
    assert len(plain) == 16
    assert function_fingerprint(Second.one) == plain
    assert function_fingerprint(Third.one) != plain
    assert function_fingerprint(len) == ""
