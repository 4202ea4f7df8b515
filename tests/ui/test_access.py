"""Signing in by a link, what scopes show, tokens, sessions, the audit log, and forged forms."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, Route, expect

from tests.ui.conftest import OpenViewer
from tests.ui.served import TOKEN, Served
from tests.ui.viewer import Viewer, assert_accessible, screenshot


@pytest.fixture(scope="module")
def served(shared: Served) -> Served:
    return shared


def link(served: Served, scope: str = "admin") -> str:
    """Return a link that signs in once."""
    made = served.post("/session/codes", scope=scope)
    return f"{served.url}{made['path']}"


def enter(viewer: Viewer, served: Served, scope: str = "admin") -> Page:
    """Sign in by a link; return the page once it shows a screen."""
    page = viewer.page
    page.goto(link(served, scope))
    expect(page.get_by_role("button", name="Who is signed in")).to_be_visible()
    return page


def stored(page: Page) -> str:
    """Return everything that scripts of the page can read of what the browser keeps."""
    text: str = page.evaluate(
        "() => JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie,"
        " location.href, history.state])"
    )
    return text


def test_a_link_signs_in_and_leaves_no_code(clicks: Served, viewer: Viewer) -> None:
    """The address is clean at once, and nothing that scripts can read has a secret."""
    address = link(clicks)
    page = viewer.page
    page.goto(address)
    expect(page.get_by_role("link", name="clicks", exact=True)).to_be_visible()
    code = address.partition("#code=")[2]
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
    for secret in (code, cookie["value"], TOKEN):
        assert secret not in stored(page)
    assert page.url == f"{clicks.url}/ui/"
    page.reload()
    expect(page.get_by_role("link", name="clicks", exact=True)).to_be_visible()


@pytest.mark.soak
def test_a_link_works_once(clicks: Served, viewer: Viewer, open_viewer: OpenViewer) -> None:
    """The second browser gets the reason and a way on."""
    address = link(clicks)
    viewer.page.goto(address)
    expect(viewer.page.get_by_role("button", name="Who is signed in")).to_be_visible()
    second = open_viewer()
    second.allow("403")
    page = second.page
    page.goto(address)
    expect(page.get_by_role("alert")).to_contain_text("code_refused")
    expect(page.get_by_role("form", name="Sign in")).to_be_visible()
    assert "#" not in page.url
    assert_accessible(page)
    screenshot(page, "sign-in-refused")


def test_a_viewer_sees_no_buttons(clicks: Served, viewer: Viewer) -> None:
    """Neither screens nor buttons that its scope may not use; an address says what is needed."""
    page = enter(viewer, clicks, "viewer")
    page.goto(f"{clicks.url}/ui/dataflows/clicks/housekeeping")
    expect(page.get_by_role("heading", name="Garbage collection and compaction")).to_be_visible()
    expect(page.get_by_role("button", name="Collect now")).to_have_count(0)
    for name in ("Tokens", "Audit", "Register"):
        expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)
    page.goto(f"{clicks.url}/ui/tokens")
    expect(page.get_by_text("Tokens needs the scope admin")).to_be_visible()
    assert_accessible(page)


def test_an_empty_service_offers_registration_only_to_admins(
    clicks: Served, viewer: Viewer
) -> None:
    """A button that is always refused is misleading; the screen says which scope is needed."""
    page = viewer.page
    page.route(
        re.compile(r"/api/v1/dataflows(\?.*)?$"),
        lambda route: route.fulfill(json={"items": [], "cursor": None}),
    )
    enter(viewer, clicks, "operator")
    expect(page.get_by_text("needs the scope admin")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^Register"))).to_have_count(0)


def test_signing_out_ends_the_session(clicks: Served, viewer: Viewer) -> None:
    """At the service, too: the cookie that somebody copied is worth nothing."""
    page = enter(viewer, clicks)
    (cookie,) = page.context.cookies()
    page.get_by_role("button", name="Who is signed in").click()
    expect(page.get_by_text("token-file")).to_be_visible()
    page.get_by_role("menuitem", name="Sign out").click()
    expect(page.get_by_role("form", name="Sign in")).to_be_visible()
    assert page.context.cookies() == []
    copied = {"Cookie": f"{cookie['name']}={cookie['value']}", "Authorization": ""}
    sent = clicks.rest.build_request("GET", "/session", headers=copied)
    del sent.headers["authorization"]
    assert clicks.rest.send(sent).status_code == 401


@pytest.mark.soak
def test_an_ended_session_returns_to_where_one_was(clicks: Served, viewer: Viewer) -> None:
    """The page says that it has ended; after signing in it shows the same screen."""
    viewer.allow("401")
    page = enter(viewer, clicks)
    page.goto(f"{clicks.url}/ui/audit?outcome=done")
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    current = clicks.get("/sessions")["items"][0]
    clicks.rest.delete(f"/sessions/{current['id']}")
    page.get_by_label("Outcome").select_option("failed")
    expect(page.get_by_role("status")).to_contain_text("Your session has ended")
    assert_accessible(page)
    screenshot(page, "session-ended")
    viewer.sign_in()
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    assert page.url.endswith("/ui/audit?outcome=failed")


def test_an_ended_session_loses_no_text(clicks: Served, viewer: Viewer) -> None:
    """What was being written is there after signing in again; not after signing out."""
    viewer.allow("401|422")
    page = enter(viewer, clicks)
    page.goto(f"{clicks.url}/ui/register")
    editor = page.get_by_label("Document (YAML)")
    editor.fill("name: half\n")
    clicks.rest.delete(f"/sessions/{clicks.get('/sessions')['items'][0]['id']}")
    editor.fill("name: half a document\n")
    expect(page.get_by_role("status")).to_contain_text("Your session has ended")
    viewer.sign_in()
    expect(editor).to_have_value("name: half a document\n")
    page.get_by_role("button", name="Who is signed in").click()
    page.get_by_role("menuitem", name="Sign out").click()
    viewer.sign_in()
    expect(editor).to_have_value("")


def test_tokens_are_made_rotated_and_revoked(clicks: Served, viewer: Viewer) -> None:
    """The secret is shown once, and works; each button does what it says."""
    page = enter(viewer, clicks)
    page.get_by_role("link", name="Tokens").click()
    expect(page.get_by_text("No named tokens")).to_be_visible()
    page.get_by_role("button", name="New token").click()
    form = page.get_by_role("form", name="New token")
    form.get_by_label("Name").fill("ci")
    form.get_by_label("May").select_option("operator")
    assert_accessible(page)
    screenshot(page, "token-new")
    form.get_by_role("button", name="Make it").click()
    secret = page.get_by_label("Secret", exact=True).inner_text()
    assert who(clicks, secret) == "token:ci"
    screenshot(page, "token-secret")
    assert_accessible(page)
    page.get_by_role("button", name="I have it").click()
    expect(page.get_by_text(secret)).to_have_count(0)
    assert secret not in stored(page)
    page.get_by_role("button", name="Rotate ci").click()
    page.get_by_role("button", name="Rotate", exact=True).click()
    rotated = page.get_by_label("Secret", exact=True).inner_text()
    assert (who(clicks, secret), who(clicks, rotated)) == ("", "token:ci")
    page.get_by_role("button", name="I have it").click()
    assert_accessible(page)
    screenshot(page, "tokens")
    page.get_by_role("button", name="Revoke ci").click()
    page.get_by_role("button", name="Revoke", exact=True).click()
    expect(page.get_by_text("Revoked", exact=True)).to_be_visible()
    assert who(clicks, rotated) == ""


def who(served: Served, secret: str) -> str:
    """Return the actor that a token belongs to; `""`: it is refused."""
    answer = served.rest.get("/session", headers={"Authorization": f"Bearer {secret}"})
    return answer.json()["actor"] if answer.is_success else ""


@pytest.mark.soak
def test_a_session_that_is_held_says_that_the_disk_is_full(clicks: Served, viewer: Viewer) -> None:
    """Over every screen, until the service says that it is stored."""
    page = enter(viewer, clicks)

    def hold(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "in_memory": True})

    assert clicks.get("/session")["in_memory"] is False
    page.clock.install()
    page.route("**/api/v1/session", hold)
    page.goto(f"{clicks.url}/ui/audit")
    notice = page.get_by_role("status").filter(
        has_text="The disk of the service's database is full"
    )
    expect(notice).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert_accessible(page)
    screenshot(page, "session-held")
    page.unroute("**/api/v1/session")
    page.clock.fast_forward(20_000)
    expect(notice).to_have_count(0)


@pytest.mark.soak
def test_a_session_is_ended_from_the_list(
    clicks: Served, viewer: Viewer, open_viewer: OpenViewer
) -> None:
    """Another one, not the own one."""
    ended = open_viewer()
    ended.allow("401")
    other = enter(ended, clicks, "viewer")
    page = enter(viewer, clicks)
    newest = clicks.get("/sessions")["items"]
    page.goto(f"{clicks.url}/ui/tokens")
    page.get_by_role("button", name=f"End session {newest[1]['id']}").click()
    expect(page.get_by_text("The session has ended")).to_be_visible()
    assert newest[1]["id"] not in [one["id"] for one in clicks.get("/sessions")["items"]]
    assert other.context.cookies()


def test_the_audit_log_is_what_the_service_says(clicks: Served, viewer: Viewer) -> None:
    """With its filters in the address, and links to what was changed."""
    clicks.rest.post("/dataflows/clicks/pause", headers={"X-CBP-User": "ada@desk"})
    clicks.rest.post("/dataflows/clicks/resume")
    clicks.rest.post("/dataflows/nobody/pause")
    page = enter(viewer, clicks, "operator")
    page.goto(f"{clicks.url}/ui/audit?dataflow=clicks&period=1h")
    rows = page.get_by_role("table", name="Audit log").locator("tbody tr")
    said = clicks.get("/audit", dataflow="clicks", limit=50)["items"]
    expect(rows).to_have_count(len(said))
    for row, entry in zip(rows.all(), said, strict=True):
        expect(row).to_contain_text(entry["action"])
        expect(row).to_contain_text(entry["actor"])
    expect(page.get_by_text("ada@desk")).to_be_visible()
    assert_accessible(page)
    screenshot(page, "audit")
    page.get_by_role("textbox", name="Dataflow").fill("nobody")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("not_found")
    assert "dataflow=nobody" in page.url
    page.get_by_role("textbox", name="Dataflow").fill("clicks")
    expect(page).to_have_url(re.compile("dataflow=clicks"))
    page.get_by_role("textbox", name="Action").fill("dataflows_pause")
    expect(rows).to_have_count(1)
    rows.get_by_role("link", name="clicks").click()
    expect(page.get_by_role("heading", name="clicks").first).to_be_visible()


@pytest.mark.soak
def test_small_and_dark_displays_work(clicks: Served, open_viewer: OpenViewer) -> None:
    """400 pixels, and dark."""
    page = enter(open_viewer(width=400, color_scheme="dark"), clicks)
    for name in ("tokens", "audit"):
        page.goto(f"{clicks.url}/ui/{name}")
        expect(page.get_by_role("heading", name=name.capitalize(), exact=True)).to_be_visible()
        assert_accessible(page)
        screenshot(page, f"{name}-400-dark")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 400, name


@contextmanager
def page_of_another_port(body: str) -> Iterator[str]:
    """Serve one page at another port of this host: the same site for the browser."""

    class Evil(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = f"<!doctype html><title>x</title><h1>x</h1>{body}".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.soak
def test_a_form_of_another_port_changes_nothing(clicks: Served, open_viewer: OpenViewer) -> None:
    """The browser sends the cookie, as it is the same site; the service refuses all the same."""
    viewer = open_viewer()
    page = enter(viewer, clicks)
    path = f"{clicks.url}/api/v1/dataflows/clicks/pause"
    form = (
        f'<form method="post" action="{path}"><input name="a" value="b"><button>x</button></form>'
    )
    with page_of_another_port(form) as address:
        viewer.allow("a request leaves the host|403")
        page.goto(address)
        with page.expect_response(path) as answered:
            page.get_by_role("button", name="x").click()
        assert answered.value.status == 403
        assert answered.value.json()["error_code"] == "origin_refused"
    assert clicks.get("/dataflows/clicks")["summary"]["desired"] == "running"
