"""What an increment must touch, counted by hand and by the reference engine."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from cbp.engine.reference.engine import ReferenceEngine
from controller.demo.corpus.pages import Page
from controller.demo.crawl_queue import compiled, document
from controller.demo.results.touched_groups import Touched, expected_touched
from controller.settings import load_settings

DATAFLOW = compiled(document(), load_settings())
NAMES = st.sampled_from(["a", "a.x", "a.y", "b", "b.x", "c", "c.x", "d.x"])


def page(url: str, *links: str) -> Page:
    return Page(url, url.partition(".")[0], links)


def test_an_example_counted_by_hand():
    """Two pages: links to a.x, b and c; d is crawled, has no link and was unknown; a.y had one."""
    before = [page("a", "b.x", "a.y"), page("e", "a")]
    now = [page("a.y", "a.x", "b"), page("d", "b", "c")]
    assert expected_touched(now, before) == [
        # a, b, c; and a.x, b, c with the totals of a, b, c
        Touched("count_in_links", 3, 6),
        # a, b, c, d; and a.x, b, c, a.y, d with the totals of a, b, c, d
        Touched("merge", 4, 9),
        # a.x, b, c; and a.y, which leaves
        Touched("threshold", 4, 3),
    ]


def states(engine: ReferenceEngine) -> dict[str, set[tuple[object, ...]]]:
    names = {"count_in_links": "counts", "merge": "known", "threshold": "queue"}
    return {
        stage: {tuple(r.values()) for r in engine.state(stage, name)}
        for stage, name in names.items()
    }


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Page], list[Page]]:
    urls = draw(st.lists(NAMES, unique=True, max_size=8))
    links = st.lists(NAMES, unique=True, max_size=4)
    pages = [page(url, *draw(links)) for url in urls]
    cut = draw(st.integers(0, len(pages)))
    return pages[:cut], pages[cut:]


@given(histories())
def test_it_is_what_changes_in_the_reference_engine(history: tuple[list[Page], list[Page]]):
    """The records written are exactly those that are new in the oracle's state."""
    engine = ReferenceEngine(DATAFLOW)
    before, now = history

    def feed(pages: Sequence[Page]) -> dict[str, set[tuple[object, ...]]]:
        engine.feed("pages", [one.record() for one in pages])
        engine.run_until_idle()
        return states(engine)

    old, new = feed(before), feed(now)
    for touched in expected_touched(now, before):
        assert touched.state_written == len(new[touched.stage] - old[touched.stage])
