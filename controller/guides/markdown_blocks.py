"""Takes Markdown apart into blocks that a page can show without an HTML parser. Pure.

Guides use a small part of Markdown: headings, paragraphs, code, flat lists, tables; in a line code,
stress and links. Anything else is refused, so that a guide cannot lose a part on the way to the
page (tests/controller/guides/test_markdown_blocks.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line.

    Attributes:
        kind: How it is shown.
        text: Its characters.
        target: The name of the guide that a link leads to; otherwise empty.
    """

    kind: Literal["text", "code", "strong", "link"]
    text: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; `anchor` is its name within the guide."""

    kind: Literal["heading"]
    level: int
    anchor: str
    spans: list[Span]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph."""

    kind: Literal["paragraph"]
    spans: list[Span]


@dataclass(frozen=True, slots=True)
class Code:
    """Lines that are shown unchanged; `language` is `bash`, `text`, `yaml`, ..."""

    kind: Literal["code"]
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A list; each item is one line of spans."""

    kind: Literal["list"]
    ordered: bool
    items: list[list[Span]]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: the cells of its head, and those of each row."""

    kind: Literal["table"]
    head: list[list[Span]]
    rows: list[list[list[Span]]]


Block: TypeAlias = Heading | Paragraph | Code | Listing | Table

_PARSER = MarkdownIt("commonmark").enable("table")
_OTHER_GUIDE = re.compile(r"([a-z0-9-]+)\.md")


def blocks_of(text: str) -> list[Block]:
    """Return the blocks of a guide.

    Raises:
        ValueError: If it has a block that guides do not use; the message names it and its line.
    """
    return [_block(node) for node in SyntaxTreeNode(_PARSER.parse(text)).children]


def _block(node: SyntaxTreeNode) -> Block:
    if node.type == "heading":
        spans = _spans(node)
        words = "".join(span.text for span in spans).lower()
        anchor = re.sub(r"[^\w -]", "", words).replace(" ", "-")
        return Heading("heading", int(node.tag[1:]), anchor, spans)
    if node.type == "paragraph":
        return Paragraph("paragraph", _spans(node))
    if node.type == "fence":
        return Code("code", node.info.strip(), node.content)
    if node.type in ("bullet_list", "ordered_list"):
        items = [_item(item) for item in node.children]
        return Listing("list", node.type == "ordered_list", items)
    if node.type == "table":
        head, *bodies = node.children
        rows = [[_spans(cell) for cell in row.children] for part in bodies for row in part.children]
        return Table("table", [_spans(cell) for cell in head.children[0].children], rows)
    raise _refusal(node)


def _item(item: SyntaxTreeNode) -> list[Span]:
    if [child.type for child in item.children] != ["paragraph"]:
        raise _refusal(item)
    return _spans(item.children[0])


def _spans(node: SyntaxTreeNode) -> list[Span]:
    """Return the spans of a block's line; neighbours of one kind are one."""
    spans: list[Span] = []
    for span in _each(child for inline in node.children for child in inline.children):
        if spans and span.kind == spans[-1].kind == "text":
            spans[-1] = Span("text", spans[-1].text + span.text)
        else:
            spans.append(span)
    return spans


def _each(nodes: Iterable[SyntaxTreeNode]) -> Iterator[Span]:
    for node in nodes:
        if node.type == "text":
            yield Span("text", node.content)
        elif node.type == "softbreak":
            yield Span("text", " ")
        elif node.type == "code_inline":
            yield Span("code", node.content)
        elif node.type in ("strong", "em"):
            yield Span("strong", _plain(node))
        elif node.type == "link":
            yield Span("link", _plain(node), _target(node))
        else:
            raise _refusal(node)


def _plain(node: SyntaxTreeNode) -> str:
    return "".join(span.text for span in _each(node.children))


def _target(node: SyntaxTreeNode) -> str:
    """Return the name of the guide that a link leads to."""
    match = _OTHER_GUIDE.fullmatch(str(node.attrs["href"]))
    if match is None:
        message = f"a guide can link only to other guides, not to {node.attrs['href']}"
        raise ValueError(message)
    return match[1]


def _refusal(node: SyntaxTreeNode) -> ValueError:
    lines = node.map
    place = "" if lines is None else f" (line {lines[0] + 1})"
    return ValueError(f"guides cannot contain the Markdown block {node.type}{place}")
