"""A cursor is good for the list that handed it out, and for no other."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cbp.model.verification import Request, Verification
from controller.api.app import describe_api
from controller.api.routing.cursors import ListCursors
from controller.store.errors import CursorInvalidError
from tests.controller.api.all_routes import filled_in
from tests.controller.api.fake_service import Service

STREAM = {"events_recent"}
"""Its places are those of the stream of events, and of the header `Last-Event-ID`."""
SAME_LIST = {"flows_download": "flows_read"}
CHOSEN = {
    "recovery_list_recoveries": [""],
    "sinks_list_sinks": [""],
    "rollbacks_list_undone_files": ["1"],
    "state_history": ["site=7", "url=a"],
    "state_look_up": ["site=7", "url=a"],
}
"""What of a query, beside names in the path, chooses the items of a list."""
QUERIES: dict[str, dict[str, str]] = {
    "rollbacks_list_undone_files": {"to": "1"},
    "state_history": {"url": "a", "site": "7"},
    "state_look_up": {"url": "a", "site": "7"},
}
PLACES = ["1", "0", "1.0", "1/0", "v1.0.0", "h3", "urls/1", "count/1", "0000000001"]
"""Places in lists, as their cursors hold them, and as whole cursors were before."""

ACTIONS = {
    operation["operationId"]: (path, name)
    for path, methods in describe_api()["paths"].items()
    for operation in methods.values()
    for name in ("cursor", "_cursor")
    if name in {one["name"] for one in operation.get("parameters", ())}
    and operation["operationId"] not in STREAM
}


class OneVerification:
    """Knows a verification without tables."""

    def show(self, id_: str) -> Verification:
        return Verification(id_, "clicks", Request(), "running")

    def all(self, name: str) -> list[Verification]:
        return [self.show("v0")]


@pytest.fixture
def lists(filled: Service) -> Service:
    filled.controller.verifications = OneVerification()  # type: ignore[assignment]
    return filled


def cursors_of(action: str) -> ListCursors:
    path = ACTIONS[action][0]
    names = ((name, filled_in(f"{{{name}}}")) for name in sorted(re.findall(r"{(\w+)}", path)))
    made = ListCursors((SAME_LIST.get(action, action), *names))
    if action == "verifications_list_differences":
        return made.about("")
    return made.about(*CHOSEN.get(action, ()))


def is_refused(client: httpx.Client, action: str, cursor: str | None) -> bool:
    path, name = ACTIONS[action]
    query: dict[str, Any] = {**QUERIES.get(action, {}), name: cursor}
    answer = client.get(filled_in(path), params=query)
    assert answer.status_code < 500, answer.text
    return "cursor_invalid" in answer.text


def test_every_list_is_known_here() -> None:
    """A further one is tried against all others by being in the document."""
    assert len(ACTIONS) >= 24
    assert {*SAME_LIST, *CHOSEN, *QUERIES} <= set(ACTIONS)


@pytest.mark.part(every=5)
@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_a_list_takes_its_own_cursors_only(action: str, lists: Service) -> None:
    """Refused: those of each other list, of the same list of something else, and bare places."""
    own = cursors_of(action)
    with lists.client() as client:
        accepted = [one for one in PLACES if not is_refused(client, action, own.seal(one))]
        if action != "corrections_list_corrections":  # it takes runs of corrections; there is none
            assert accepted, "no place suits this list: add one of its own to PLACES"
        place = (accepted or PLACES)[0]
        others = [cursors_of(other) for other in ACTIONS if other != action]
        others += [own.about("more"), ListCursors((*own.subject[:1], ("name", "other")))]
        foreign = {one.seal(place) for one in others if one != own}
        assert len(foreign) >= len(ACTIONS) - 1
        assert {one for one in foreign if not is_refused(client, action, one)} == set()
        assert is_refused(client, action, place)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SUBJECTS = st.lists(TEXTS | st.tuples(TEXTS, TEXTS), max_size=3).map(tuple)


@given(mine=SUBJECTS, theirs=SUBJECTS, place=TEXTS)
def test_a_cursor_opens_where_it_was_sealed(
    mine: tuple[Any, ...], theirs: tuple[Any, ...], place: str
) -> None:
    """It gives back its place, whatever that is; for another subject it is refused."""
    cursor = ListCursors(mine).seal(place)
    assert ListCursors(mine).open(cursor) == place
    if mine != theirs:
        with pytest.raises(CursorInvalidError):
            ListCursors(theirs).open(cursor)


@given(TEXTS | st.binary(max_size=30).map(lambda raw: raw.decode("latin-1")))
def test_no_text_is_taken_for_a_cursor(text: str) -> None:
    """Whatever a client sends is refused with a code."""
    with pytest.raises(CursorInvalidError):
        ListCursors(("x",)).open(text)


def test_a_place_that_is_numbers_is_nothing_else() -> None:
    """Another count of them, a sign, a letter and too many digits are refused with a code."""
    cursors = ListCursors(("x",))
    wrong = {
        cursors.number: ("", "a", "-1", "1/2", "9" * 19, "\u0661"),
        cursors.pair: ("1", "1/-2", "1/2/3", "1/x", "/"),
        cursors.named: ("urls", "urls/x", "urls/-1", "/3", "urls/" + "9" * 40),
    }
    for read, places in wrong.items():
        assert read(None) is None
        for place in places:
            with pytest.raises(CursorInvalidError):
                read(cursors.seal(place))
    assert cursors.number(cursors.seal("12")) == 12
    assert cursors.pair(cursors.seal("3/17")) == (3, 17)
    assert cursors.named(cursors.seal("a/b/4")) == ("a/b", 4)
