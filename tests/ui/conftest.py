"""Fixtures of the page's tests: the built page, a real service, a browser, a page that listens.

    def test_a_screen(clicks: Served, viewer: Viewer) -> None:
        page = viewer.open("/dataflows/clicks")
        ...
        assert_accessible(page)

The page is built first if its sources changed. Without Chromium the tests are left out.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, expect, sync_playwright

from tests.machine import folder_in_memory, leave_out
from tests.ui.served import Served
from tests.ui.viewer import CHROMIUM, Viewer

REPO = Path(__file__).resolve().parents[2]

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-extensions", "--disable-dev-shm-usage"]

expect.set_options(timeout=60_000)

OpenViewer = Callable[..., Viewer]


def load_builder(folder: Path) -> ModuleType:
    """Return the project's build backend that is in a folder."""
    spec = importlib.util.spec_from_file_location("build_page", folder / "build_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def builder() -> ModuleType:
    """What builds the page: the project's build backend."""
    return load_builder(REPO / "controller" / "ui")


@pytest.fixture(scope="session")
def bundle(builder: ModuleType) -> Path:
    """The folder of the page, built from the sources as they are."""
    builder.build_page()
    return Path(builder.BUNDLE)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of the page.

    Not for the session: while Playwright runs, this thread has an event loop that runs, in which
    other tests of the process cannot run theirs.
    """
    if not Path(CHROMIUM).is_file():
        leave_out(
            "chromium", f"no browser at {CHROMIUM}; apt install chromium, or set CBP_CHROMIUM"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def _serving() -> Iterator[Served]:
    """Start a service; its folder is in memory.

    On a disk, registering 500 stages waits for 900 tables to be synced.
    """
    with folder_in_memory() as folder:
        service = Served(folder)
        try:
            service.start()
            yield service
        finally:
            service.stop()


@pytest.fixture(scope="package")
def shared(browser: Browser, bundle: Path) -> Iterator[Served]:
    """One service for all files whose tests do not mind the dataflows of others.

    Such a file has a fixture `served` that returns it.
    """
    with _serving() as service:
        yield service


@pytest.fixture(scope="module")
def served(browser: Browser, bundle: Path) -> Iterator[Served]:
    """A service without dataflows, for all tests of a file; asks for a browser first."""
    with _serving() as service:
        yield service


@pytest.fixture(scope="module")
def clicks(served: Served) -> Served:
    """The service with the dataflow `clicks`, which has applied three increments."""
    if not any(one["name"] == "clicks" for one in served.get("/dataflows")["items"]):
        served.apply_clicks()
    return served


@pytest.fixture(scope="package")
def free_contexts() -> list[BrowserContext]:
    """Contexts of the browser that no test uses, as empty as new ones.

    What a context has loaded of the page it need not load and compile again.
    """
    return []


@pytest.fixture
def open_viewer(
    browser: Browser, served: Served, free_contexts: list[BrowserContext]
) -> Iterator[OpenViewer]:
    """Return what opens further pages: `open_viewer(width=400, color_scheme="dark")`."""
    opened: list[Viewer] = []

    def open_one(
        width: int = 1280, height: int = 800, color_scheme: Literal["light", "dark"] = "light"
    ) -> Viewer:
        context = free_contexts.pop() if free_contexts else browser.new_context(locale="en-GB")
        viewer = Viewer(context, served.url)
        opened.append(viewer)
        viewer.page.set_viewport_size({"width": width, "height": height})
        viewer.page.emulate_media(color_scheme=color_scheme, reduced_motion="reduce")
        return viewer

    yield open_one
    free_contexts.extend(viewer.leave() for viewer in opened)
    for viewer in opened:
        viewer.assert_quiet()


@pytest.fixture
def viewer(open_viewer: OpenViewer) -> Viewer:
    """A page of 1280 pixels that fails the test for what it hears at its end."""
    return open_viewer()
