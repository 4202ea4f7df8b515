"""A browser's page that notices what a person would not: messages, refusals, foreign requests."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import Path
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request

from tests.ui.served import TOKEN

__all__ = ["CHROMIUM", "Viewer", "assert_accessible", "assert_legible", "screenshot"]

CHROMIUM = os.environ.get("CBP_CHROMIUM", "/usr/bin/chromium")
AXE = Axe()
SCREENSHOTS = os.environ.get("CBP_SCREENSHOTS", "")


class Viewer:
    """A page of the browser, signed in where the service asks for it.

    Args:
        context: The browser's; one page is opened in it.
        url: The service's address.

    Attributes:
        page: Playwright's page.
        complaints: Messages of the console, errors of scripts, requests to other hosts.
    """

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.url = url
        self.complaints: list[str] = []
        self._allowed: list[re.Pattern[str]] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        context.on("request", self._see)

    def open(self, path: str) -> Page:
        """Open an address below `/ui`, in a session, and return the page once it is quiet.

        The session is asked for over REST: tests of signing in fill in the form themselves.
        """
        if not self.page.context.cookies():
            self.page.context.request.post(
                f"{self.url}/api/v1/session", data={"token": TOKEN}, headers={"X-CBP-Request": "1"}
            )
        self.page.goto(f"{self.url}/ui{path}")
        self.sign_in_if_asked()
        return self.page

    def sign_in_if_asked(self) -> None:
        """Sign in if the page asks for it, as after a reload; return once a screen is shown."""
        self.page.wait_for_selector("main h1")
        if self.page.get_by_role("form", name="Sign in").count():
            self.sign_in()
        self.page.wait_for_selector("main h1:not(:text-is('Sign in'))")

    def sign_in(self, token: str = TOKEN) -> None:
        """Fill in the form, which must be there."""
        self.page.locator("form input").fill(token)
        self.page.get_by_role("button", name="Sign in").click()

    def leave(self) -> BrowserContext:
        """Close all pages, forget what they kept, and return the context."""
        context = self.page.context
        context.remove_listener("request", self._see)
        for page in context.pages:
            if page.url.startswith("http"):
                page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
            page.close()
        context.clear_cookies()
        return context

    def allow(self, pattern: str) -> None:
        """Expect a message of the console, such as the browser's word for a refused request."""
        self._allowed.append(re.compile(pattern))

    def assert_quiet(self) -> None:
        """Fail with everything that was noticed."""
        unexpected = [
            text for text in self.complaints if not any(p.search(text) for p in self._allowed)
        ]
        assert unexpected == [], "\n".join(unexpected)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self.complaints.append(f"{message.type}: {message.text} {message.location}")

    def _see(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != urlsplit(self.url).netloc:
            self.complaints.append(f"a request leaves the host: {request.url}")


def assert_accessible(page: Page) -> None:
    """Fail if axe finds anything on the page as it is, or something on it cannot be seen."""
    assert_legible(page)
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.axe_script)
    # What passes is not reported: most of the time went into its description.
    actual = page.evaluate(
        "() => axe.run({resultTypes: ['violations']}).then(told => told.violations)"
    )
    lines = [
        f"{one['id']}: {one['help']}: {node['html'][:300]} {node['failureSummary']}"
        for one in actual
        for node in one["nodes"]
    ]
    assert lines == [], "\n".join(lines)


def assert_legible(page: Page) -> None:
    """Fail if what is shown or read aloud has a character that hides or turns the text around it.

    Those that stay are a tab, a line end, and what joins letters or emoji.
    """
    shown: list[str] = page.evaluate(SHOWN_TEXT)
    hidden = [text for text in shown if any(is_hidden(character) for character in text)]
    assert hidden == []


SHOWN_TEXT = """() => {
  const texts = [document.title];
  const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (nodes.nextNode()) {
    if (nodes.currentNode.parentElement.closest("script, style, textarea, [data-exact]") === null)
      texts.push(nodes.currentNode.data);
  }
  for (const element of document.body.querySelectorAll("[title], [aria-label]"))
    texts.push(element.title ?? "", element.getAttribute("aria-label") ?? "");
  return texts;
}"""


def is_hidden(character: str) -> bool:
    """Tell whether a character is for control or format, by Python's own tables."""
    kept = "\t\n\u200c\u200d"
    return unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp"} and character not in kept


def screenshot(page: Page, name: str) -> None:
    """Keep a picture of the whole page, if `CBP_SCREENSHOTS` names a folder for it."""
    if not SCREENSHOTS:
        return
    folder = Path(SCREENSHOTS)
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}.png", full_page=True)
