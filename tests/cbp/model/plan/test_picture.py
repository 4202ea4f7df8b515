"""Pictures of graphs: the same text for the same graph, and nothing of it left out."""

from __future__ import annotations

import re

import pytest

from cbp import DataflowBuilder
from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.plan.fusion import choose_leaders
from cbp.model.plan.picture import dot, mermaid, picture
from stages.flows.crawl_queue import crawl_queue
from stages.flows.pagerank_in_phases import pagerank_in_phases as pagerank
from tests.cbp.model.dataflow.random_graphs import random_flow
from tests.chains import SCHEMA, Spread

CRAWL = """\
pages             ●┐
extract_links     ◀┘
    links         ●┐
    crawled       ●│─┐
+ count_in_links  ◀┘ │
    url_counts    ●─┐│
    site_counts   ●┐││
merge             ◀┴┴┘
    candidates    ●┐
    done          ●│┐
+ score           ◀┘│
    scored        ●┐│
threshold         ◀┴┘
    queue"""


def drawn(flow: Dataflow) -> str:
    return picture(flow, choose_leaders(flow))


def test_the_crawl_queue_is_drawn_as_it_is_wired():
    """Each flow's rail leads from its line to the stages that read it."""
    assert drawn(crawl_queue()) == CRAWL


def test_a_rail_that_leads_upwards_closes_a_cycle():
    """The verdict's line is below the stage that reads it."""
    lines = drawn(pagerank()).splitlines()
    rank = next(at for at, line in enumerate(lines) if line.startswith("rank "))
    converged = next(at for at, line in enumerate(lines) if "converged" in line)
    column = lines[converged].index("┘")
    assert all(lines[at][column] in "│┐┬" for at in range(rank, converged))


@pytest.mark.parametrize("seed", range(30))
def test_rails_of_random_graphs_lead_where_the_wiring_says(seed: int):
    """Following every rail by its characters gives the wiring, and nothing else."""
    flow = random_flow(seed)
    assert followed(drawn(flow)) == {
        (f, stage) for f in flow.flows() for stage, _ in flow.consumers(f)
    }, f"seed {seed}"


def followed(text: str) -> set[tuple[str, str]]:
    """Read the wiring out of a picture: every corner belongs to the rail of its column."""
    lines, edges = text.splitlines(), set[tuple[str, str]]()
    marks = next(line.index("●") for line in lines if "●" in line)
    open_: dict[int, tuple[list[str], list[str]]] = {}
    stage = ""
    for line in lines:
        label, cells = line[:marks].strip().removeprefix("+ "), line[marks + 1 :]
        reads = line[marks : marks + 1] == "◀"
        stage = label if reads else stage
        flow = f"{stage}.{label}" if line.startswith("    ") else label
        for column, cell in enumerate(cells):
            if cell in "┐┘┤┬┴┼":
                writers, readers = open_.setdefault(column, ([], []))
                (readers if reads else writers).append(stage if reads else flow)
            if cell in "┘┴":
                writers, readers = open_.pop(column)
                edges |= {(writer, reader) for writer in writers for reader in readers}
    assert not open_
    return edges


@pytest.mark.parametrize("draw", [mermaid, dot])
def test_exports_name_every_node_and_edge(draw):
    """Sources, stages and results are nodes; every edge carries the flow's name."""
    flow = crawl_queue()
    text = draw(flow, choose_leaders(flow))
    for name in (*flow.sources, *flow.stages, "threshold.queue"):
        assert f'"{name}"' in text
    arrows = re.findall(r"-->|->", text)
    assert len(arrows) == 9
    assert text.count("one run") == 2


def test_a_stage_may_have_the_name_of_a_word_of_mermaid():
    """Nodes have ids of their own: `end` alone would end a subgraph."""
    builder = DataflowBuilder("words")
    builder.stage("end", Spread(), items=builder.source("graph", SCHEMA))
    text = mermaid(builder.build(), ["end"])
    assert 'n_end["end"]' in text
    assert not re.search(r"^\s*end\b", text, re.MULTILINE)
