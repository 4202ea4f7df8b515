"""Writes the generated parts of the guides anew: `python -m tests.guides.write`.

A guide names a part by two comments; what is between them is replaced. A test fails while a
guide is not what this module would write (tests/test_documents.py).
"""

from __future__ import annotations

import re

from controller.guides.library import PAGES
from tests.guides.generated_parts import PARTS

__all__ = ["main", "renew"]

_PART = re.compile(r"(<!-- (\w+): begin -->\n).*?(<!-- \2: end -->)", re.DOTALL)


def renew(text: str) -> str:
    """Return a guide's text with its generated parts as the code has them now."""
    return _PART.sub(lambda match: f"{match[1]}\n{PARTS[match[2]]()}\n\n{match[3]}", text)


def main() -> None:
    """Write each guide that changes."""
    for path in sorted(PAGES.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (new := renew(text)) != text:
            path.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
