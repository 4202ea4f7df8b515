"""Methods of the client: access, sinks, files on disk, alerts.

They return what the service says, as its OpenAPI document describes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from cbp.client.calls import Calls

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

        Args:
            name: Name of the token.
            scope: What it may do: `viewer`, `operator` or `admin`.
            expires_days: Days until it expires; `None` means never.
            dataflows: The only dataflows that it may access; by default all.
        """
        wanted = {"name": name, "scope": scope, "expires_days": expires_days}
        return self._said("tokens", value=wanted | {"dataflows": list(dataflows) or None})

    def rotate_token(self, name: str, *, overlap_hours: float = 0.0) -> Document:
        """Give a token a new secret; the old one still works for `overlap_hours`."""
        return self._said("tokens", name, "rotate", overlap_hours=overlap_hours)

    def revoke_token(self, name: str) -> Document:
        """End a token, and the sessions made from it, at once."""
        revoked: Document = self.rest.delete("tokens", name)
        return revoked

    def end_session(self, session: str) -> None:
        """End the session of a browser that is signed in."""
        self.rest.delete("sessions", session)

    def make_sign_in(self, scope: str | None = None) -> Document:
        """Make a link that signs in a browser once; append its `path` to the service's address."""
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
        """Remove unneeded files of a dataflow, and return why others are kept."""
        return self._said("dataflows", name, "garbage", "collect")

    def scrub(
        self,
        name: str,
        *,
        poll_seconds: float = 0.2,
        report: Callable[[Document], object] = lambda answer: None,
    ) -> Document:
        """Read all files of a dataflow, and return the damaged ones once that is done.

        Args:
            name: Name of the dataflow.
            poll_seconds: Pause between two polls.
            report: Called with the progress after each poll.
        """
        path = ("dataflows", name, "scrub")
        answer = self._said(*path)
        while not answer["ended"]:
            report(answer)
            self.rest.clock.wait(poll_seconds)
            answer = self.rest.get(*path)
        return answer

    def test_alerts(self) -> Document:
        """Send a test notice by every channel; the answer has the result for each."""
        return self._said("alerts", "test")

    def _said(self, *path: str, value: Any = None, **query: Any) -> Document:
        if value is None:
            said: Document = self.rest.post(*path, query=query)
        else:
            said = self.rest.post_json(*path, value=value)
        return said
