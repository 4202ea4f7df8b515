"""The session of one call of `cbp`: its settings, its connection, and the form of its answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import httpx
import typer

from cbp.client import Client
from cbp.client.answers import Answer
from cbp.client.rest import ANSWER_SECONDS, RestClient
from cbp.clock import MACHINE, Clock
from controller.client.service_client import ServiceClient
from controller.settings import Settings, load_settings
from controller.terminal import print_json, print_text


@dataclass(frozen=True, slots=True)
class Waits:
    """How a command waits for the service.

    Attributes:
        poll_seconds: Pause between two polls.
        patience_seconds: How long a file waits until another file of its name is taken in.
    """

    poll_seconds: float = 0.1
    patience_seconds: float = 60.0


@dataclass
class Session:
    """One call of `cbp`; tests pass settings, a transport, short waits and a clock.

    Attributes:
        given: Replaces the settings of the environment.
        transport: Replaces the network.
        as_json: Whether the command prints JSON, which `--json` asks for.

    All requests of a command go over one connection. If the service has closed it in the meantime,
    or it was idle for some seconds, another one is opened (tests/controller/cli/test_session.py).
    """

    given: Settings | None = None
    transport: httpx.BaseTransport | None = field(default=None, repr=False)
    waits: Waits = Waits()
    clock: Clock = MACHINE
    as_json: bool = False
    _client: Client | None = field(default=None, init=False, repr=False)

    @cached_property
    def settings(self) -> Settings:
        """The settings, read when a command first needs them."""
        return self.given if self.given is not None else load_settings()

    def connect(self, *, answer_seconds: float = ANSWER_SECONDS) -> ServiceClient:
        """Return a client of the service that the settings name."""
        return ServiceClient(
            self.settings, self.transport, answer_seconds=answer_seconds, clock=self.clock
        )

    @property
    def client(self) -> Client:
        """The typed client, with which commands change something; connected when first used."""
        if self._client is None:
            self._client = Client.over(self.connect())
        return self._client

    @property
    def rest(self) -> RestClient:
        """Sends requests by their paths, over the same connection."""
        return self.client.rest

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def exit_if_json(
        self, answer: Answer | Mapping[str, Any], *, is_whole: bool = False, status: int = 0
    ) -> None:
        """With `--json`, print an answer, and end the command; `is_whole` as for `print_json`."""
        if self.as_json:
            document = answer.answer if isinstance(answer, Answer) else answer
            print_json(document, is_whole=is_whole)
            raise typer.Exit(status)

    def fetch(self, *path: str, **query: Any) -> Any:
        """Return what the service answers to a GET; with `--json` print it, and end the command.

        Args:
            path: Parts of the path after `/api/v1`.
            query: Parameters; those with the value `None` are left out.
        """
        answer = self.rest.get(*path, **query)
        self.exit_if_json(answer)
        return answer

    def pages(self, *path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield all pages of a list; arguments as for `fetch`."""
        cursor = None
        while True:
            page = self.rest.get(*path, **query, cursor=cursor)
            yield page
            if (cursor := page["cursor"]) is None:
                return

    def report(self, answer: Answer | Mapping[str, Any], text: str, style: str = "green") -> None:
        """Print a text about what was done; with `--json` the answer, and end the command."""
        self.exit_if_json(answer)
        print_text(text, style)
