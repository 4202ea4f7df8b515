"""A target that gets one POST for each increment with records; the records are not sent.

    Idempotency-Key: 3f2a90c1d4b5e677-g0-12
    X-CBP-Signature: sha256=<HMAC-SHA256 of the body with the secret, in hexadecimal>

    {"delivery": "3f2a90c1d4b5e677-g0-12", "dataflow": "clicks", "sink": "calls",
     "flow": "count.totals", "increment": 12, "generation": 0, "epoch": 12, "records": 340,
     "time": "2026-11-23T04:00:00+00:00", "links": {"records": "http://...", "dataflow": "..."}}

Deliveries come in the order of the flow, each at least once: the next one waits until a receiver
has answered with 200 to 299. A delivery that is sent again has the same id and the same body. After
a roll-back, increments are announced again, with another generation in body and id.

A delivery that a receiver refuses (400 to 499, except 408, 425 and 429) waits for an operator, who
can skip it; skipped deliveries are counted. After any other failure it is sent again, with growing
pauses.

The address is checked when it is dialled (`controller.outbound`); an error never shows the path of
the address.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from urllib.parse import quote, urlsplit

import httpx
import pyarrow as pa

from controller.outbound.addresses import AddressRefusedError, OutboundFailedError
from controller.sinks.errors import SinkDeliveryError, SinkPlaceError, SinkRefusedError
from controller.sinks.notes import SinkNote
from controller.sinks.target import Shipment, Target

SIGNATURE = "X-CBP-Signature"
_TOKEN_DIGITS = 16
_PASSING = frozenset({408, 425, 429})


def signature(secret: bytes, body: bytes) -> str:
    """Return the value of the header `X-CBP-Signature`."""
    return "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()


def numbers_of(delivery: str) -> tuple[int, int]:
    """Return the generation and the increment in the id of a delivery."""
    _, generation, index = delivery.rsplit("-", 2)
    return int(generation.removeprefix("g")), int(index)


def delivery_body(
    dataflow: str, sink: str, delivery: str, shipment: Shipment, service_url: str
) -> bytes:
    """Return the body of a delivery; the same bytes each time it is sent."""
    name, flow = quote(dataflow, safe=""), quote(shipment.flow, safe="")
    path = f"/api/v1/dataflows/{name}/increments/{flow}/{shipment.index}"
    value = {
        "delivery": delivery,
        "dataflow": dataflow,
        "sink": sink,
        "flow": shipment.flow,
        "increment": shipment.index,
        "generation": shipment.generation,
        "epoch": shipment.index if "." in shipment.flow else None,
        "records": shipment.records,
        "time": None if shipment.created_at is None else shipment.created_at.isoformat(),
        "links": {
            "records": f"{service_url}{path}",
            "dataflow": f"{service_url}/ui/dataflows/{name}",
        },
    }
    return json.dumps(value, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Webhook(Target):
    """Posts to an address; `secret` signs the bodies, and `None` means that they are not signed.

    It is never stale: deliveries cannot be taken back, and are sent again.
    """

    url: str
    secret: bytes | None
    service_url: str
    http: httpx.Client

    def claim(self, note: SinkNote) -> SinkNote:
        """Do nothing: receivers have no owner."""
        return replace(note, claimed=True)

    def publish(
        self, note: SinkNote, shipment: Shipment, batches: Iterable[pa.RecordBatch]
    ) -> SinkNote:
        """Send a notice of an increment, without its records. See `Target.publish`."""
        delivery = f"{note.token[:_TOKEN_DIGITS]}-g{shipment.generation}-{shipment.index}"
        body = delivery_body(self.dataflow, self.sink, delivery, shipment, self.service_url)
        headers = {"Content-Type": "application/json", "Idempotency-Key": delivery}
        if self.secret is not None:
            headers[SIGNATURE] = signature(self.secret, body)
        self.faults("sink_request.before")
        try:
            with self.http.stream("POST", self.url, content=body, headers=headers) as answer:
                status = answer.status_code  # what else it says is not read
        except AddressRefusedError as error:
            raise SinkPlaceError(self.sink, error.message) from error
        except OutboundFailedError as error:
            raise SinkDeliveryError(self.sink, delivery, error.message) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:  # its text can have the URL
            host = urlsplit(self.url).hostname
            why = f"{host} could not be reached ({type(error).__name__})"
            raise SinkDeliveryError(self.sink, delivery, why) from None
        if 400 <= status < 500 and status not in _PASSING:
            raise SinkRefusedError(self.sink, delivery, status)
        if not 200 <= status < 300:
            raise SinkDeliveryError(self.sink, delivery, f"the receiver answered {status}")
        self.faults("sink_request.after")
        return note
