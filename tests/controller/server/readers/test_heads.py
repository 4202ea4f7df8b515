"""Which requests a reader serves: only what is plain, and only what is marked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.server.readers.protocols import HeadFilter, head_length

SERVED = "/api/v1/runs"
FILTER = HeadFilter(lambda path: path == SERVED)


def serves(head: bytes) -> bool:
    """Tell whether a reader serves the request with this head."""
    return FILTER.serves(head)


def head(line: str = f"GET {SERVED} HTTP/1.1", *headers: str, end: str = "\r\n") -> bytes:
    """Return a head with these lines."""
    return end.join([line, "Host: a", *headers, "", ""]).encode("latin-1")


@pytest.mark.parametrize("query", ["", "?limit=3", "?dataflow=%2F&x=?"])
def test_a_plain_get_of_a_marked_route_is_served(query: str) -> None:
    """With any query, and with headers that announce nothing."""
    assert serves(head(f"GET {SERVED}{query} HTTP/1.1", "Accept: */*", "Connection: close"))
    assert serves(head("GET /api/v1/r%75ns HTTP/1.1"))


@pytest.mark.parametrize(
    "line",
    [
        "POST /api/v1/runs HTTP/1.1",
        "HEAD /api/v1/runs HTTP/1.1",
        "get /api/v1/runs HTTP/1.1",
        "GET /api/v1/runs HTTP/1.0",
        "GET /api/v1/runs",
        "GET  /api/v1/runs HTTP/1.1",
        "GET http://a/api/v1/runs HTTP/1.1",
        "GET /api/v1/tokens HTTP/1.1",
        "GET /api/v1/runs#x HTTP/1.1",
        "GET /api/v1/runs\x80 HTTP/1.1",
        "PRI * HTTP/2.0",
        "",
    ],
)
def test_everything_else_is_left_to_the_service(line: str) -> None:
    """Another method, another form of the target, another version, another route."""
    assert not serves(head(line))


@pytest.mark.parametrize(
    "header",
    [
        "Content-Length: 0",
        "content-length : 5",
        "Transfer-Encoding: chunked",
        "EXPECT: 100-continue",
        "Upgrade: websocket",
        "TE: trailers",
        " folded: line",
        "Host: b",
        "No colon",
        "X: a\x00b",
        "X: a ",
        "X: ",
        "X\x7f: a",
        "Bad name: a",
    ],
)
def test_a_head_with_more_behind_it_is_left_to_the_service(header: str) -> None:
    """A body, another protocol, or a line that two parsers could read in two ways."""
    assert not serves(head(f"GET {SERVED} HTTP/1.1", header))
    assert not serves(head(f"GET {SERVED} HTTP/1.1", "Accept: */*", header))


def test_lines_that_end_otherwise_are_left_to_the_service() -> None:
    """A head ends where HTTP parsers end it; only the usual end is served."""
    bare = head(end="\n")
    assert head_length(bare + b"x") == len(bare)
    assert not serves(bare)


@given(st.binary(max_size=40), st.binary(max_size=10))
def test_a_head_is_complete_at_its_first_empty_line(more: bytes, rest: bytes) -> None:
    """What comes behind is another request, whatever it is; without an empty line there is none."""
    line = head().removesuffix(b"\r\n\r\n")
    assert head_length(line) == 0
    whole = line + b"\r\n\r\n"
    assert head_length(whole + more + rest) == len(whole)
