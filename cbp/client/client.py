"""The client: every method of the parts, on one connection."""

from __future__ import annotations

from typing import Self

import httpx

from cbp.client.address import find_address
from cbp.client.dataflow_calls import DataflowCalls
from cbp.client.record_calls import RecordCalls
from cbp.client.rest import ANSWER_SECONDS, RestClient, Retries
from cbp.client.run_calls import RunCalls
from cbp.client.upkeep_calls import UpkeepCalls

RETRIES = Retries(attempts=5)


class Client(DataflowCalls, RecordCalls, RunCalls, UpkeepCalls):
    """A typed client of the service; a context manager that closes its connections.

    If nothing answers, or if the service is busy, a request is sent up to five times within some
    ten seconds. Only requests that are safe to repeat are: reads, and requests with an idempotency
    key, such as those of `register`, `drop` and `roll_back`. Safe to use by one thread at a time.

    Args:
        url: Address of the service, such as `http://127.0.0.1:8420`; by default the one that
            the commands use.
        token: By default the one that the commands use: `CBP_TOKEN`, or the token file.
        answer_seconds: How long an answer may take.
        retries: How often, and with which pauses, a request is sent.
        transport: Replaces the network in tests.

    Attributes:
        rest: Sends requests for which this class has no method, by path.

    Raises:
        TokenMissingError: If there is no token.
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
        """Return the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.rest.close()
