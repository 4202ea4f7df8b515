"""How many wrong codes an address may send."""

from __future__ import annotations

import pytest

from controller.access.errors import TooManyAttemptsError, TooManyRequestsError
from controller.access.rate_limits import ATTEMPTS_MAX, WINDOW_SECONDS, RequestRates
from tests.controller.access.service_access import AccessOfTest


def test_an_address_has_some_wrong_attempts_a_minute(access: AccessOfTest) -> None:
    """The last allowed one counts; then even a right one waits, and other addresses do not."""
    for _ in range(ATTEMPTS_MAX):
        access.attempts.check("::1")
        access.attempts.note_wrong("::1")
        access.move(seconds=1)
    with pytest.raises(TooManyAttemptsError) as refused:
        access.attempts.check("::1")
    assert refused.value.details["retry_after_seconds"] == WINDOW_SECONDS - ATTEMPTS_MAX
    access.attempts.check("::2")
    access.move(seconds=WINDOW_SECONDS - ATTEMPTS_MAX)
    access.attempts.check("::1")
    access.attempts.note_wrong("::1")
    access.attempts.check("::1")


def test_the_memory_of_addresses_is_bounded(access: AccessOfTest) -> None:
    """Many addresses take no more memory; the ones that were seen last are kept."""
    for n in range(5_000):
        for _ in range(ATTEMPTS_MAX):
            access.attempts.note_wrong(f"::{n}")
    assert len(access.attempts._windows) == 1_000
    with pytest.raises(TooManyAttemptsError):
        access.attempts.check("::4999")


def test_a_caller_has_so_many_requests_a_second() -> None:
    """A burst of two seconds, then as many as the time gives; others do not count."""
    now = [0.0]
    rates = RequestRates(10, lambda: now[0])
    for _ in range(20):
        rates.take("a")
    for _ in range(3):
        with pytest.raises(TooManyRequestsError):
            rates.take("a")
    rates.take("b")
    now[0] = 0.5
    for _ in range(5):
        rates.take("a")
    with pytest.raises(TooManyRequestsError) as refused:
        rates.take("a")
    assert refused.value.details["retry_after_seconds"] == 1
    for n in range(5_000):
        rates.take(str(n))
    assert len(rates._left) == 1_000
