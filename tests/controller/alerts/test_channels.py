"""Channels over real sockets: what arrives, and what a refusal looks like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from controller.alerts.channels import TEXT_MAX, EmailChannel, WebhookChannel, text_of
from controller.alerts.conditions import Alert
from controller.alerts.notices import Notice
from tests.controller.alerts.smtp_sink import SmtpSink
from tests.controller.http_sink import HttpSink

SERVICE = "http://cbp.example:8420"
HOOK = "/hook/s3cret?sig=hidden"
STOPPED = Alert("k", "stopped", "critical", "a b", "a b has\nstopped", "a bug: <é>", "mend it")
NOTICE = Notice("firing", STOPPED, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def webhook() -> Iterator[HttpSink]:
    sink = HttpSink()
    yield sink
    sink.close()


@pytest.fixture
def mail() -> Iterator[SmtpSink]:
    sink = SmtpSink()
    yield sink
    sink.close()


def mailer(url: str) -> EmailChannel:
    return EmailChannel(url, sender="cbp@example", recipients=["ops@example"], service_url=SERVICE)


def test_a_webhook_gets_one_request_for_all_notices_of_a_moment(webhook: HttpSink):
    """With a text for chat services, and everything that is known for programs."""
    over = Notice("resolved", STOPPED, NOTICE.since)
    WebhookChannel(webhook.url + HOOK, service_url=SERVICE).send([NOTICE, over])
    (body,) = webhook.bodies
    assert body["text"].splitlines() == [
        "a b has stopped",
        "Reason: a bug: <é>",
        "What to do: mend it",
        f"Since 2026-01-01 00:00:00 UTC. {SERVICE}/ui/dataflows/a%20b",
        "",
        "Resolved: a b has stopped",
    ]
    assert [one["status"] for one in body["alerts"]] == ["firing", "resolved"]
    assert body["alerts"][0] == {
        "status": "firing",
        "kind": "stopped",
        "severity": "critical",
        "dataflow": "a b",
        "summary": "a b has\nstopped",
        "detail": "a bug: <é>",
        "action": "mend it",
        "since": "2026-01-01T00:00:00+00:00",
        "link": f"{SERVICE}/ui/dataflows/a%20b",
    }


def test_the_text_for_chats_is_never_too_long_for_them():
    """They would refuse it each time; the notices that are left out are counted, with a link."""
    long = Notice("firing", replace(STOPPED, detail="why " * 1_000), NOTICE.since)
    for many in (1, 2, 40, 1_000):
        text = text_of([long] * many, SERVICE)
        assert len(text) <= TEXT_MAX
        assert text.count("a b has stopped") == many or f" more: {SERVICE}/ui/" in text


@pytest.mark.part(every=3)
@pytest.mark.parametrize("status", [302, 404, 500])
def test_a_webhook_that_refuses_is_an_error_without_the_address(webhook: HttpSink, status: int):
    """Its path can be a secret; a redirect is not followed."""
    webhook.status = status
    channel = WebhookChannel(webhook.url + HOOK, service_url=SERVICE)
    with pytest.raises(RuntimeError, match=str(status)) as error:
        channel.send([NOTICE])
    assert "s3cret" not in f"{error.value!r}{channel.name}"
    assert webhook.paths == [HOOK]


def test_a_webhook_that_is_not_there_is_an_error_without_the_address(webhook: HttpSink):
    """Nobody listens on its port any more."""
    channel = WebhookChannel(webhook.url + HOOK, service_url=SERVICE)
    webhook.close()
    with pytest.raises(OSError, match="could not be reached") as error:
        channel.send([NOTICE])
    assert "s3cret" not in repr(error.value)


def test_an_e_mail_has_the_alert_and_where_to_look(mail: SmtpSink):
    """The subject is one line, whatever the summary has; letters arrive as they are."""
    mailer(f"smtp://127.0.0.1:{mail.port}").send([NOTICE, NOTICE])
    (message,) = mail.messages
    assert message["Subject"] == "[cbp] a b has stopped and 1 more"
    assert (message["From"], message["To"]) == ("cbp@example", "ops@example")
    payload = message.get_payload(decode=True)
    assert isinstance(payload, bytes)
    text = payload.decode()
    assert "a bug: <é>" in text
    assert "What to do: mend it" in text
    assert f"{SERVICE}/ui/dataflows/a%20b" in text


def test_a_password_never_goes_in_the_clear(mail: SmtpSink):
    """A server without TLS is refused before anything secret is sent."""
    with pytest.raises(RuntimeError):
        mailer(f"smtp://user:secret@127.0.0.1:{mail.port}").send([NOTICE])
    assert not mail.messages
