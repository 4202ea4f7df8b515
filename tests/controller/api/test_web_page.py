"""The page's files: who gets which, under which policy, and that nothing else gets out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from controller.api.answers import problems
from controller.api.security.guard import Guard
from controller.api.web_page import page_router
from tests.controller.api.app_transport import AppTransport
from tests.controller.api.fake_service import Service

INDEX = '<html><meta name="style-nonce" content="%STYLE_NONCE%"><div id="root"></div></html>'
HTML = {"Accept": "text/html,application/xhtml+xml"}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A built page of three files, beside a secret."""
    (tmp_path / "token").write_text("secret")
    bundle = tmp_path / "bundle"
    (bundle / "assets").mkdir(parents=True)
    (bundle / "index.html").write_text(INDEX)
    (bundle / "assets" / "main-1.js").write_text("let plain;")
    (bundle / "assets" / "main-1.js.br").write_bytes(b"brotli")
    (bundle / "stamp.txt").write_text("digest")
    return bundle


@pytest.fixture
def browser(bundle: Path) -> Iterator[httpx.Client]:
    """What asks for the page, without a token."""
    app = FastAPI()
    app.include_router(page_router(bundle))
    problems.install(app)
    app.add_middleware(Guard, access=Service(bundle).access, host="127.0.0.1")
    with httpx.Client(transport=AppTransport(app), base_url="http://127.0.0.1") as client:
        yield client


def test_every_screen_is_the_page_with_a_nonce_of_its_own(browser: httpx.Client) -> None:
    """An address of the page that is no file gives the page, never cached, under its policy."""
    nonces = set()
    for path in ("/ui", "/ui/", "/ui/dataflows/clicks", "/ui/stamp.txt", "/ui/index.html"):
        answer = browser.get(path)
        assert answer.status_code == 200, path
        assert answer.headers["cache-control"] == "no-store"
        nonce = re.findall('content="([^"]+)"', answer.text)
        policy = answer.headers["content-security-policy"]
        assert f"style-src 'self' 'nonce-{nonce[0]}';" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        nonces.add(nonce[0])
    assert len(nonces) == 5
    assert all(len(nonce) >= 20 for nonce in nonces)


def test_a_file_is_cached_for_good_and_compressed_for_who_takes_it(browser: httpx.Client) -> None:
    """A name has a digest of the content, so a file of that name never changes."""
    packed = browser.get("/ui/assets/main-1.js", headers={"Accept-Encoding": "gzip, br;q=1"})
    assert packed.headers["content-encoding"] == "br"
    assert packed.headers["vary"] == "Accept-Encoding"
    assert "immutable" in packed.headers["cache-control"]
    plain = browser.get("/ui/assets/main-1.js", headers={"Accept-Encoding": "identity"})
    assert plain.text == "let plain;"
    assert "javascript" in plain.headers["content-type"]
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize("path", ["/ui/", "/ui/assets/main-1.js", "/ui/assets/none.js"])
def test_head_answers_as_get_without_a_body(browser: httpx.Client, path: str) -> None:
    """The status and the headers are the same."""
    head, get = browser.head(path), browser.get(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    for name in ("content-type", "content-length", "cache-control"):
        assert head.headers[name] == get.headers[name]


def test_a_file_that_is_not_there_is_no_page(browser: httpx.Client) -> None:
    """A script that an older page asks for is missed in words, not answered with HTML."""
    for name in ("main-0.js", f"{'x' * 300}.js"):
        answer = browser.get(f"/ui/assets/{name}")
        assert answer.status_code == 404
        assert answer.json()["error_code"] == "not_found"


@pytest.mark.parametrize(
    "path",
    [
        "/ui/../token",
        "/ui/assets/../../token",
        "/ui/assets/%2e%2e/%2e%2e/token",
        "/ui/assets/..%2f..%2ftoken",
        "/ui/assets/..%5c..%5ctoken",
        "/ui//token",
        "/ui/assets/%00",
        "/ui/assets/.hidden",
        "/ui/assets//main-1.js",
    ],
)
def test_no_path_leads_out_of_the_bundle(browser: httpx.Client, path: str) -> None:
    """Whatever is asked for, only files below the bundle are read."""
    raw = httpx.URL("http://127.0.0.1").copy_with(raw_path=path.encode())
    answer = browser.send(browser.build_request("GET", raw))
    assert "secret" not in answer.text
    assert answer.status_code in (200, 400, 401, 404)


def test_only_reading_the_page_is_open(browser: httpx.Client) -> None:
    """A write to the page's addresses needs the token as everything else does."""
    assert browser.post("/ui/").status_code == 401
    assert browser.get("/uid").status_code == 401


def test_without_a_bundle_the_page_says_how_to_build_it(
    browser: httpx.Client, bundle: Path
) -> None:
    """The reason of the build is shown as text; the service works on."""
    (bundle / "index.html").unlink()
    (bundle / "not-built.txt").write_text("npm said <b>no</b>")
    answer = browser.get("/ui/")
    assert answer.status_code == 503
    assert "python controller/ui/build_page.py" in answer.text
    assert "npm said &lt;b&gt;no&lt;/b&gt;" in answer.text
    assert "script-src 'self'" in answer.headers["content-security-policy"]


def test_a_browser_is_sent_from_the_top_to_the_page(service: Service) -> None:
    """Others get the links, and need the token for them."""
    with service.client(token=None) as client:
        answer = client.get("/", headers=HTML)
        assert (answer.status_code, answer.headers["location"]) == (307, "/ui/")
        assert client.get("/", headers={"Accept": "application/json"}).status_code == 401
    with service.client() as client:
        assert "dataflows" in client.get("/").json()["links"]
