"""The client of the service: all groups of methods, and those for maintenance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import httpx

from cbp.client.address import find_address
from cbp.client.calls import Calls
from cbp.client.dataflow_calls import DataflowCalls
from cbp.client.record_calls import RecordCalls
from cbp.client.rest import ANSWER_SECONDS, RestClient, Retries
from cbp.client.run_calls import RunCalls

Document = dict[str, Any]


class UpkeepCalls(Calls):
    """Calls for operators who maintain a service."""

    def make_token(
        self,
        name: str,
        scope: str = "viewer",
        *,
        expires_days: int | None = 90,
        dataflows: Sequence[str] = (),
    ) -> Document:
        """Make a token; only this answer shows its `secret`.

        Its scope is `viewer`, `operator` or `admin`. With `expires_days=None` it never expires. By
        default it may access all dataflows.
        """
        wanted = {"name": name, "scope": scope, "expires_days": expires_days}
        return self._said("tokens", value=wanted | {"dataflows": list(dataflows) or None})

    def rotate_token(self, name: str, *, overlap_hours: float = 0.0) -> Document:
        """Give a token a new secret; the old one still works for `overlap_hours`."""
        return self._said("tokens", name, "rotate", overlap_hours=overlap_hours)

    def revoke_token(self, name: str) -> Document:
        """Revoke a token and end the sessions made from it; both take effect at once."""
        revoked: Document = self.rest.delete("tokens", name)
        return revoked

    def end_session(self, session: str) -> None:
        """End the session of a browser that is signed in."""
        self.rest.delete("sessions", session)

    def make_sign_in(self, scope: str | None = None) -> Document:
        """Make a link that signs in one browser: the service's address and the answer's `path`."""
        return self._said("session", "codes", scope=scope)

    def pause_sink(self, name: str, sink: str) -> Document:
        """Pause a sink; unpublished increments are kept."""
        return self._said("dataflows", name, "sinks", sink, "pause")

    def resume_sink(
        self, name: str, sink: str, *, undone: Literal["rewrite", "keep"] | None = None
    ) -> Document:
        """Resume a sink; `undone` decides about published increments that a roll-back undid."""
        return self._said("dataflows", name, "sinks", sink, "resume", undone=undone)

    def retry_sink(self, name: str, sink: str) -> Document:
        """Retry a failed sink now, without waiting for its next attempt."""
        return self._said("dataflows", name, "sinks", sink, "retry")

    def collect(self, name: str) -> Document:
        """Remove files that a dataflow no longer needs, and return why others are kept."""
        return self._said("dataflows", name, "garbage", "collect")

    def scrub(
        self,
        name: str,
        *,
        poll_seconds: float = 0.2,
        report: Callable[[Document], object] = lambda answer: None,
    ) -> Document:
        """Check all files of a dataflow, and return the damaged ones; waits for the end."""
        path = ("dataflows", name, "scrub")
        answer = self._said(*path)
        while not answer["ended"]:
            report(answer)
            self.rest.clock.wait(poll_seconds)
            answer = self.rest.get(*path)
        return answer

    def test_alerts(self) -> Document:
        """Send a test notice by every channel, and return the result for each."""
        return self._said("alerts", "test")

    def _said(self, *path: str, value: Any = None, **query: Any) -> Document:
        if value is None:
            said: Document = self.rest.post(*path, query=query)
        else:
            said = self.rest.post_json(*path, value=value)
        return said


RETRIES = Retries(attempts=5)


class Client(DataflowCalls, RecordCalls, RunCalls, UpkeepCalls):
    """A typed client of the service; a context manager that closes its connections.

    If nothing answers, or if the service is busy, a request is sent up to five times, with pauses
    of 0.2 to 1.6 s, or longer if the service asks for it. This holds only for requests that are
    safe to repeat: reads, and requests with an idempotency key, such as those of `register`, `drop`
    and `roll_back`. A client is safe to use by one thread at a time.

    By default, the address (such as `http://127.0.0.1:8420`) and the token are those that the
    commands use. `rest` sends requests for which this class has no method, by path. `transport`
    replaces the network in tests.

    Raises:
        TokenMissingError: If there is no token.
        DefinitionError: If the address, or a file that `find_address` reads, is not valid.
        ServiceUnreachableError: If nothing answers; raised by every method.
        ServiceProblemError: A subclass in `cbp.client.errors`, if the service refuses; raised
            by every method.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        answer_seconds: float = ANSWER_SECONDS,
        retries: Retries = RETRIES,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        address = find_address(url, token)
        self.rest = RestClient(address, transport, answer_seconds=answer_seconds, retries=retries)

    @classmethod
    def over(cls, rest: RestClient) -> Self:
        """Return a client that sends its requests through this `RestClient`."""
        made = cls.__new__(cls)
        made.rest = rest
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.rest.close()
