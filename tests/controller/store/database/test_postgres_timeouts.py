"""How long a conversation with PostgreSQL may be silent; with a server: `conformance`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.machine import needs_postgres_driver

SECONDS = 10.0


class Server:
    """What is ready, second by second; says whether it was given up."""

    def __init__(self, ready: list[int]) -> None:
        self.now, self._ready, self.given_up = 0.0, ready, 0

    def asked(self, answers: int) -> Generator[Any, Any, int]:
        """Talk as the driver does until so much was ready; return how often it was woken."""
        woken = 0
        while answers:
            answers -= bool((yield "read"))
            woken += 1
        return woken

    def talk(self, answers: int) -> Any:
        """Do what waits for the driver: wake the conversation each second."""
        from controller.store.database.postgres_timeouts import unless_silent

        talk = unless_silent(self.asked(answers), SECONDS, self._give_up, lambda: self.now)
        try:
            assert next(talk) == "read"
            for ready in self._ready:
                self.now += 1.0
                talk.send(ready)
        except StopIteration as end:
            return end.value
        return None

    def _give_up(self) -> None:
        self.given_up += 1


@pytest.fixture(autouse=True)
def driver() -> None:
    """Skip, or fail where everything must be there, without PostgreSQL's driver."""
    needs_postgres_driver()


def test_an_answer_that_keeps_coming_may_take_as_long_as_it_takes() -> None:
    """Only silence is counted, anew from each sign of the server."""
    server = Server([*([0] * 9), 1] * 5)
    assert server.talk(5) == 50
    assert server.given_up == 0


def test_what_is_answered_at_once_is_handed_on() -> None:
    """A conversation that waits for nothing ends with its result."""
    server = Server([])
    from controller.store.database.postgres_timeouts import unless_silent

    with pytest.raises(StopIteration) as end:
        next(unless_silent(server.asked(0), SECONDS, server._give_up, lambda: server.now))
    assert end.value.value == 0


def test_silence_ends_the_conversation() -> None:
    """After so long without a sign it is given up, once, and says so."""
    from controller.store.database.postgres_timeouts import ServerSilentError

    server = Server([0, 1, *([0] * 20)])
    with pytest.raises(ServerSilentError):
        server.talk(2)
    assert server.given_up == 1
    assert server.now == 2 + SECONDS
