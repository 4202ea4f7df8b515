"""A crawl queue with the former stages becomes one with a view: by stages with new names."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from cbp.errors import ChangeRefusedError
from cbp.model.verification import Request
from controller.loop import DEFAULT_LOOP_LIMITS
from stages.flows import crawl_queue
from stages.translators.count_in_links import CountInLinks
from stages.translators.extract_links import ExtractLinks
from stages.translators.merge import Merge
from stages.translators.merge_counts import MergeCounts
from stages.translators.score import Score
from stages.translators.score_candidates import ScoreCandidates
from stages.translators.threshold import Threshold
from stages.translators.threshold_view import ThresholdView
from tests.controller.changing import Changing
from tests.controller.verified import verified
from tests.controller.world import Inline
from tests.stages.crawl import Page, queue_of

pytestmark = pytest.mark.usefixtures("without_syncs")

NAME = "crawl_queue"
TRANSLATORS = {
    "count_in_links": CountInLinks,
    "extract_links": ExtractLinks,
    "merge": Merge,
    "merge_counts": MergeCounts,
    "score": Score,
    "score_candidates": ScoreCandidates,
    "threshold": Threshold,
    "threshold_view": ThresholdView,
}
NEW = {"merge": "merge_counts", "score": "score_candidates", "threshold": "threshold_view"}
"""Former translator to the one in its place; what its stage is called, too."""

BEFORE: list[list[Page]] = [
    [("a.x", "a", ["b.y", "b.z"]), ("a.y", "a", ["b.y"])],
    [("b.y", "b", ["b.z", "a", "c.w"])],
    [("a", "a", ["b.z", "c.v"])],
]
AFTER: list[list[Page]] = [
    [("c.w", "c", ["a.q", "c.v"]), ("b.z", "b", [])],
    [("b.y", "b", ["c.v"]), ("a.q", "a", ["d"])],
]


def former() -> dict[str, Any]:
    """Return the document of a crawl queue as it was registered before its result was a view."""
    document = crawl_queue.document()
    for name, now in NEW.items():
        stage = document["stages"][name]
        assert stage["translator"] == now
        stage["translator"] = name
    del document["stages"]["threshold"]["inputs"]["done"]
    return document


def renamed() -> dict[str, Any]:
    """Return today's document, whose new stages are called as their translators."""
    document = crawl_queue.document()
    stages = document["stages"]
    for stage in stages.values():
        for input_, flow in stage["inputs"].items():
            writer, dot, output = flow.partition(".")
            stage["inputs"][input_] = f"{NEW.get(writer, writer)}{dot}{output}"
    return {**document, "stages": {NEW.get(n, n): stage for n, stage in stages.items()}}


def feed(world: Changing, increments: Sequence[Sequence[Page]]) -> None:
    for pages in increments:
        world.arrive(NAME, "pages", *copy.deepcopy(pages))
        world.clock.advance(1)
        world.ticks()


def queue(world: Changing, stage: str) -> dict[str, float]:
    """Return the URLs of the view, with their scores."""
    node = world.controller.dataflow(NAME).stages[stage]
    folder = world.store.dataflow(NAME).folder
    rows = world.engine.records.read_state(folder, node, "queue")
    return {row["url"]: row["score"] for row in rows}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Changing]:
    made = Changing(tmp_path / "world", verifier=Inline(), limits=DEFAULT_LOOP_LIMITS)
    made.translators |= TRANSLATORS
    made.restart()
    made.controller.register(former())
    feed(made, BEFORE)
    yield made
    made.close()


def test_stages_with_new_names_begin_with_what_came_before(world: Changing) -> None:
    """From the retained input: the queue of plain Python, then and after more pages; verified."""
    world.change(renamed(), retained=[*NEW.values()])
    world.ticks()
    assert queue(world, "threshold_view") == queue_of(BEFORE)
    feed(world, AFTER)
    everything = [*chain(BEFORE, AFTER)]
    assert queue(world, "threshold_view") == queue_of(everything)
    assert queue_of(everything) != queue_of(AFTER), "what came before counts"
    verification = verified(world, NAME, Request())
    assert (verification.status, verification.error) == ("equal", None)


@pytest.mark.parametrize("way", ["keep", "rebuild"])
def test_under_the_former_names_it_is_refused_and_said_how(world: Changing, way: str) -> None:
    """Candidates lose a column, and a history is no view; nothing changes, and pages go on."""
    choice: Any = {way: [*NEW]}
    with pytest.raises(ChangeRefusedError) as told:
        world.change(crawl_queue.document(), **choice)
    mistakes = {(one.code, one.where): one.message for one in told.value.mistakes}
    columns = "schema_incompatible", "stages.merge.outputs.candidates"
    view = "view_not_fillable", "stages.threshold.states.queue"
    assert mistakes.keys() == ({columns, view} if way == "keep" else {columns})
    assert "--retained" in mistakes[columns]
    assert "history" in mistakes.get(view, "history")
    feed(world, AFTER)
    assert world.store.dataflow(NAME).version == 1
