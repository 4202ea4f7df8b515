"""The client: every method of the parts, on one connection."""

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

    A request is sent up to five times, within some ten seconds, if nothing answers or the service
    is busy, and a repetition changes nothing: it reads, or it has an idempotency key, which
    `register`, `drop` and `roll_back` make. Safe to use by one thread at a time.

    Args:
        url: Address of the service, such as `http://127.0.0.1:8420`; by default that which the
            commands find.
        token: By default that which the commands find: `CBP_TOKEN`, else the token file.
        answer_seconds: How long an answer may take.
        retries: How often a request is sent.
        transport: Replaces the network in tests.

    Attributes:
        rest: Sends requests that have no method here, by their paths.

    Raises:
        TokenMissingError: If there is no token.
        ServiceUnreachableError: If nothing answers; raised by every method.
        ServiceProblemError: One of its kinds in `cbp.client.errors`, if the service refuses; raised
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
        """Return a client that sends its requests by this one."""
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
