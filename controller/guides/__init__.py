"""Guides: how to do one task, in Markdown, as the package carries them.

    cbp help                        lists them
    cbp help roll-back              prints one
    GET /api/v1/guides/roll-back    the same for the page, taken apart into blocks

Each guide is in `pages`, begins with its title and one paragraph that says which task it is for,
and is executed command by command (tests/test_guides.py). The parts between `<!-- NAME: begin -->`
and `<!-- NAME: end -->` are written by `python -m tests.guides.write` from the code that they
describe. Links lead to other guides only, since nothing else travels with the package.
"""

from controller.guides.library import GROUPS, PAGES, Guide, find_guide, guides

__all__ = ["GROUPS", "PAGES", "Guide", "find_guide", "guides"]
