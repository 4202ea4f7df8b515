"""Sends notices: as JSON to a webhook, or as e-mail.

A webhook gets one POST for all notices of a moment:

    {"service": "http://127.0.0.1:8420",
     "text": "clicks has stopped: one of its stages needs an operator, and why",
     "alerts": [{"status": "firing", "kind": "stopped", "severity": "critical",
                 "dataflow": "clicks", "summary": "...", "detail": "...", "action": "...",
                 "since": "2026-11-23T04:00:00+00:00", "link": "http://.../ui/dataflows/clicks"}]}

`text` is what chat services show. Redirects are not followed, since the address may be secret.
Addresses come from the settings of the service, never from a request. One that leads to a cloud's
metadata service is refused all the same.
"""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Sequence
from email.message import EmailMessage
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit

import httpx

from cbp.errors.message_limits import shortened
from controller.alerts.notices import Notice
from controller.outbound.addresses import AddressRefusedError, AddressRules, OutboundFailedError
from controller.outbound.web_client import outbound_client

SECONDS_MAX = 10.0
_SUBJECT_MAX = 150


class Channel(Protocol):
    """Sends notices to people; its name is shown in listings, and has no secret."""

    name: str

    def send(self, notices: Sequence[Notice]) -> None:
        """Send notices; raises `OSError` if not reached, `RuntimeError` if they are refused."""
        ...


class WebhookChannel:
    """Posts to a URL, which may have secrets in its path and query."""

    def __init__(self, url: str, *, service_url: str) -> None:
        self._url, self._service_url = url, service_url
        self.name = f"webhook {urlsplit(url).hostname}"

    def send(self, notices: Sequence[Notice]) -> None:
        """See `Channel.send`."""
        body = {
            "service": self._service_url,
            "text": text_of(notices, self._service_url),
            "alerts": [_json(notice, self._service_url) for notice in notices],
        }
        try:
            with outbound_client(AddressRules.of_operator(), seconds=SECONDS_MAX) as http:
                answer = http.post(self._url, json=body)
        except httpx.HTTPError as error:  # its text can have the URL
            message = f"the webhook could not be reached ({type(error).__name__})"
            raise OSError(message) from None
        except (AddressRefusedError, OutboundFailedError) as error:
            raise OSError(error.message) from None
        if not answer.is_success:
            message = f"the webhook answered {answer.status_code}"
            raise RuntimeError(message)


class EmailChannel:
    """Sends e-mail over SMTP.

    Args:
        smtp_url: `smtp://user:password@host:587` (STARTTLS if the server offers it, and always
            with a password) or `smtps://...`.
    """

    def __init__(
        self, smtp_url: str, *, sender: str, recipients: Sequence[str], service_url: str
    ) -> None:
        self._smtp, self._sender = urlsplit(smtp_url), sender
        self._recipients, self._service_url = tuple(recipients), service_url
        self.name = f"e-mail {', '.join(self._recipients)}"

    def send(self, notices: Sequence[Notice]) -> None:
        """See `Channel.send`."""
        message = EmailMessage()
        message["From"], message["To"] = self._sender, ", ".join(self._recipients)
        more = f" and {len(notices) - 1} more" if len(notices) > 1 else ""
        message["Subject"] = f"[cbp] {notices[0].line[:_SUBJECT_MAX]}{more}"
        message.set_content("\n\n".join(_paragraph(one, self._service_url) for one in notices))
        try:
            with self._connected() as server:
                server.send_message(message)
        except smtplib.SMTPException as error:
            raise RuntimeError(type(error).__name__) from error

    def _connected(self) -> smtplib.SMTP:
        host, context = self._smtp.hostname or "", ssl.create_default_context()
        server: smtplib.SMTP
        if self._smtp.scheme == "smtps":
            port = self._smtp.port or 465
            server = smtplib.SMTP_SSL(host, port, timeout=SECONDS_MAX, context=context)
        else:
            server = smtplib.SMTP(host, self._smtp.port or 25, timeout=SECONDS_MAX)
        try:
            server.ehlo()
            if self._smtp.scheme == "smtp" and (
                server.has_extn("starttls") or self._smtp.password is not None
            ):
                server.starttls(context=context)  # a password never goes in the clear
            if self._smtp.username is not None:
                server.login(unquote(self._smtp.username), unquote(self._smtp.password or ""))
        except BaseException:
            server.close()
            raise
        return server


TEXT_MAX = 12_000
"""Most characters of the text for chats, which refuse longer messages."""

_ROOM_OF_REST = 200
"""Characters reserved for the line that counts the notices left out."""


def text_of(notices: Sequence[Notice], service_url: str) -> str:
    """Return a paragraph or, if too long, a line for each notice; and how many are left out."""
    parts, left = list[str](), TEXT_MAX - _ROOM_OF_REST
    for number, notice in enumerate(notices):
        part = _paragraph(notice, service_url)
        part = part if len(part) <= left else shortened(notice.line)
        if len(part) > left:
            parts.append(f"and {len(notices) - number} more: {service_url}/ui/")
            break
        parts.append(part)
        left -= len(part) + 2
    return "\n\n".join(parts)


def _paragraph(notice: Notice, service_url: str) -> str:
    """Return what happened; unless it is over, why, since when, and what to do."""
    alert = notice.alert
    if notice.status == "resolved":
        return notice.line
    lines = [
        notice.line,
        f"Reason: {shortened(alert.detail)}" if alert.detail else "",
        f"What to do: {alert.action}",
        f"Since {notice.since:%Y-%m-%d %H:%M:%S} UTC. {_link(notice, service_url)}",
    ]
    return "\n".join(line for line in lines if line)


def _json(notice: Notice, service_url: str) -> dict[str, Any]:
    names = ("kind", "severity", "dataflow", "summary", "detail", "action")
    return {
        "status": notice.status,
        **{name: getattr(notice.alert, name) for name in names},
        "since": notice.since.isoformat(),
        "link": _link(notice, service_url),
    }


def _link(notice: Notice, service_url: str) -> str:
    name = notice.alert.dataflow
    return f"{service_url}/ui/dataflows/{quote(name, safe='')}" if name else f"{service_url}/ui/"
