"""The crawl queue: which pages to crawl next.

    pages -> extract_links -> count_in_links -+-> merge -> score ----> threshold -> queue
                   '------------ crawled -----'     '--- done ---------'

`threshold.queue` is the result, a view: the URLs to crawl, each with its last score
(`ThresholdView`). If a page arrives again, its links are counted again.

Source: CBP (SoCC'10), section 1.1, figure 1; section 4.4.1.
"""

from __future__ import annotations

from typing import Any, Literal

from cbp import Dataflow, DataflowBuilder
from stages.flows import read_document
from stages.translators.count_in_links import CountInLinks
from stages.translators.count_in_links_arrow import CountInLinksArrow
from stages.translators.count_in_links_kept import CountInLinksKept
from stages.translators.extract_links import ExtractLinks
from stages.translators.merge_counts import MergeCounts
from stages.translators.merge_counts_arrow import MergeCountsArrow
from stages.translators.score_candidates import ScoreCandidates
from stages.translators.threshold_view import ThresholdView
from stages.translators.threshold_view_arrow import ThresholdViewArrow


def document() -> dict[str, Any]:
    """Return the document to register, as JSON values."""
    return read_document("crawl_queue")


def crawl_queue(
    *,
    site_rule: str = "first_label",
    grouping: Literal["inner", "outer"] = "inner",
    minimum: float = 1.0,
    form: Literal["groupwise", "arrow", "kept"] = "groupwise",
) -> Dataflow:
    """Build the dataflow; by default the same as `document`.

    `site_rule` is that of `ExtractLinks`, and `minimum` the least score that enters the queue. With
    the grouping `"outer"`, states of counts are scanned in every epoch, like in the paper. The form
    of the stages with state does not change the tables: `"groupwise"` works record by record,
    however large a site is; `"arrow"` works on columns and holds whole sites in memory; `"kept"`
    reads and writes only the URLs that the pages name, and needs inner grouping.
    """
    threshold = ThresholdViewArrow(minimum) if form == "arrow" else ThresholdView(minimum)
    count_links, merge_counts = {
        "groupwise": (CountInLinks(grouping), MergeCounts(grouping)),
        "arrow": (CountInLinksArrow(grouping), MergeCountsArrow(grouping)),
        "kept": (CountInLinksKept(), MergeCounts(grouping, keep=True)),
    }[form]
    flow = DataflowBuilder("crawl_queue")
    pages = flow.source("pages", "url STRING NOT NULL, site STRING, links ARRAY<STRING>")
    extract = flow.stage("extract_links", ExtractLinks(site_rule), pages=pages)
    count = flow.stage("count_in_links", count_links, links=extract.links)
    merge = flow.stage(
        "merge",
        merge_counts,
        url_counts=count.url_counts,
        site_counts=count.site_counts,
        crawled=extract.crawled,
    )
    score = flow.stage("score", ScoreCandidates(), candidates=merge.candidates)
    flow.stage("threshold", threshold, scored=score.scored, done=merge.done)
    return flow.build()
