"""The crawl queue as it was before its result was a view: crawled URLs have a null score."""

from __future__ import annotations

from cbp import Dataflow, DataflowBuilder
from stages.translators.count_in_links import CountInLinks
from stages.translators.extract_links import ExtractLinks
from stages.translators.merge import Merge
from stages.translators.score import Score
from stages.translators.threshold import Threshold


def former_crawl_queue() -> Dataflow:
    """Build it with the translators that documents of then name."""
    flow = DataflowBuilder("crawl_queue")
    pages = flow.source("pages", "url STRING NOT NULL, site STRING, links ARRAY<STRING>")
    extract = flow.stage("extract_links", ExtractLinks(), pages=pages)
    count = flow.stage("count_in_links", CountInLinks(), links=extract.links)
    merge = flow.stage(
        "merge",
        Merge(),
        url_counts=count.url_counts,
        site_counts=count.site_counts,
        crawled=extract.crawled,
    )
    score = flow.stage("score", Score(), candidates=merge.candidates)
    flow.stage("threshold", Threshold(), scored=score.scored)
    return flow.build()
