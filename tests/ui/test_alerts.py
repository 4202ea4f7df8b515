"""The screen of alerts: who is notified, and a test of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.controller.http_sink import HttpSink
from tests.ui.served import Served
from tests.ui.viewer import Viewer, assert_accessible, screenshot


@pytest.fixture(scope="module")
def webhook() -> Iterator[HttpSink]:
    sink = HttpSink()
    yield sink
    sink.close()


@pytest.fixture(scope="module")
def served(
    browser: Browser, bundle: object, webhook: HttpSink, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A service that notifies a webhook."""
    environment = {"CBP_ALERT_WEBHOOK_URL": f"{webhook.url}/s3cret"}
    service = Served(tmp_path_factory.mktemp("served"), environment=environment)
    try:
        service.start()
        yield service
    finally:
        service.stop()


def test_a_test_of_the_channels_arrives_and_a_refusal_is_said(
    served: Served, viewer: Viewer, webhook: HttpSink
) -> None:
    """The button posts to the webhook; the list of deliveries says what became of each test."""
    page = viewer.open("/alerts")
    expect(page.get_by_text("Nothing is wrong.")).to_be_visible()
    expect(page.get_by_text("webhook 127.0.0.1")).to_be_visible()
    page.get_by_role("button", name="Send a test").click()
    deliveries = page.get_by_role("region", name="Table of deliveries")
    expect(deliveries.get_by_text("sent", exact=True)).to_be_visible()
    assert [body["alerts"][0]["status"] for body in webhook.bodies] == ["test"]
    webhook.status = 503
    page.get_by_role("button", name="Send a test").click()
    expect(deliveries.get_by_text("RuntimeError: the webhook answered 503")).to_be_visible()
    assert "s3cret" not in page.content()
    assert [one["error"] is None for one in served.get("/alerts")["deliveries"]] == [False, True]
    assert_accessible(page)
    screenshot(page, "alerts")
