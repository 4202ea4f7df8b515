"""The guides of this package, as Markdown and as blocks for the page."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from controller.api.answers.schemas import Model, Page
from controller.api.routing.router_factory import Scope, needs, problems, router
from controller.guides import find_guide, guides
from controller.guides.markdown_blocks import Block, blocks_of

routes = router("guides")


class GuideSummary(Model):
    """What a guide is about."""

    name: str = Field(description="Name of the guide in requests, such as `roll-back`.")
    group: str = Field(description="Heading under which it is listed.")
    title: str
    about: str = Field(description="Its first paragraph: which task it is for.")


class GuideOut(GuideSummary):
    """A guide in two forms: as Markdown, and as its blocks."""

    text: str = Field(description="The entire guide, as Markdown.")
    blocks: list[Annotated[Block, Field(discriminator="kind")]]


@routes.get("/guides")
@needs(Scope.VIEWER)
def list_guides() -> Page[GuideSummary]:
    """List the guides, in the recommended order."""
    return Page(items=[GuideSummary.of(guide) for guide in guides()])


@routes.get("/guides/{guide}", responses=problems(404))
@needs(Scope.VIEWER)
def show_guide(guide: str) -> GuideOut:
    """Show one guide."""
    page = find_guide(guide)
    return GuideOut.of(page, blocks=blocks_of(page.text))
