"""Markdown becomes blocks, and nothing of a guide gets lost on the way."""

from __future__ import annotations

import re

import pytest

from controller.guides import Guide, guides
from controller.guides.markdown_blocks import (
    Block,
    Code,
    Heading,
    Listing,
    Paragraph,
    Span,
    Table,
    blocks_of,
)


def test_each_kind_of_block() -> None:
    """What is between the marks, and no mark."""
    text = (
        "## One `a` thing\n\nWords of\ntwo **lines**, see [this](roll-back.md).\n\n"
        "- x\n- `y`\n\n1. z\n\n```bash\na | b\n```\n\n| h | i |\n| --- | --- |\n| 1 \\| 2 | |\n"
    )
    assert blocks_of(text) == [
        Heading(
            "heading",
            2,
            "one-a-thing",
            [Span("text", "One "), Span("code", "a"), Span("text", " thing")],
        ),
        Paragraph(
            "paragraph",
            [
                Span("text", "Words of two "),
                Span("strong", "lines"),
                Span("text", ", see "),
                Span("link", "this", "roll-back"),
                Span("text", "."),
            ],
        ),
        Listing("list", False, [[Span("text", "x")], [Span("code", "y")]]),
        Listing("list", True, [[Span("text", "z")]]),
        Code("code", "bash", "a | b\n"),
        Table(
            "table",
            [[Span("text", "h")], [Span("text", "i")]],
            [[[Span("text", "1 | 2")], []]],
        ),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<b>x</b>\n",
        "a <b>x</b>\n",
        "> x\n",
        "![x](x.png)\n",
        "- a\n  - b\n",
        "- a\n\n      b\n",
        "***\n",
        "[x](https://example.org)\n",
        "[x](/settings)\n",
        "[x](../../README.md)\n",
    ],
)
def test_what_guides_do_not_use_is_refused(text: str) -> None:
    """HTML, pictures, quotations, nested lists, links to elsewhere."""
    with pytest.raises(ValueError, match="guide"):
        blocks_of(text)


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def shown_by(block: Block) -> str:
    match block:
        case Code(text=text, language=language):
            return f"{language} {text}"
        case Heading(spans=spans) | Paragraph(spans=spans):
            return "".join(f"{span.text} {span.target} " for span in spans)
        case Listing(items=items):
            return " ".join(f"{span.text} {span.target}" for spans in items for span in spans)
        case Table(head=head, rows=rows):
            cells = [*head, *(cell for row in rows for cell in row)]
            return " ".join(f"{span.text} {span.target}" for spans in cells for span in spans)


@pytest.mark.parametrize("guide", guides(), ids=lambda guide: guide.name)
def test_every_word_of_a_guide_is_in_its_blocks(guide: Guide) -> None:
    """In number, for all of them; and every link leads to a guide that there is."""
    shown = words_of(" ".join(map(shown_by, blocks_of(guide.text))))
    text = re.sub(r"^\d+\. ", "", guide.text, flags=re.MULTILINE).replace(".md)", ")")
    assert sorted(shown) == sorted(words_of(text))
    targets = set(re.findall(r"\]\(([\w-]+)\.md\)", guide.text))
    assert targets <= {one.name for one in guides()}
