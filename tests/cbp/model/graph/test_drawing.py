"""SVG pictures of dataflows: well-formed, complete, and without markup in names."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from cbp.model.dataflow.dataflow import Dataflow
from cbp.model.graph.drawing import FlowEdge, Node, draw_graph
from stages.flows.crawl_queue import crawl_queue
from stages.flows.pagerank_in_phases import pagerank_in_phases as pagerank
from tests.cbp.model.dataflow.random_graphs import random_flow

SVG = "{http://www.w3.org/2000/svg}"


def texts(drawing: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(drawing).iter(f"{SVG}text")]


def boxes(drawing: str) -> list[str]:
    return [
        element.attrib.get("data-node", "") for element in ET.fromstring(drawing).iter(f"{SVG}g")
    ]


@pytest.mark.parametrize("flow", [crawl_queue(), pagerank(), *map(random_flow, range(10))])
def test_a_picture_has_every_node_and_names_every_flow(flow: Dataflow):
    """Sources, stages and results each have one box; each flow is named at an arrow."""
    drawing = flow.draw()
    results = [name for name in flow.flows() if "." in name and not any(flow.consumers(name))]
    assert sorted(boxes(drawing)) == sorted([*flow.sources, *flow.stages, *results])
    named = {name for text in texts(drawing) for name in text.split(", ")}
    read = [name for name in flow.flows() if any(flow.consumers(name))]
    assert {name.rpartition(".")[2] for name in read} <= named


def test_boxes_do_not_overlap():
    """Two boxes of a picture share no point."""
    for seed in range(10):
        rectangles = [
            tuple(float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            for rect in ET.fromstring(random_flow(seed).draw()).iter(f"{SVG}rect")
        ]
        for at, (x, y, width, height) in enumerate(rectangles):
            for left, top, wide, high in rectangles[at + 1 :]:
                apart = (
                    x + width <= left or left + wide <= x or y + height <= top or top + high <= y
                )
                assert apart


def test_a_loop_is_drawn_with_dashes_that_lead_back():
    """The crawl queue has no loop; PageRank has its verdict and its messages."""
    dashed = 'stroke-dasharray="5 3"'
    assert dashed not in crawl_queue().draw()
    assert pagerank().draw().count(dashed) == 2


def test_a_name_never_becomes_markup():
    """Names and titles with angle brackets and quotes stay text."""
    name = "<script>\"&'"
    drawing = draw_graph(
        name, [Node(name, "source"), Node("b", "stage", name)], [FlowEdge(name, "b", name)]
    )
    assert boxes(drawing) == [name, "b"]
    assert "<script" not in drawing


def test_a_notebook_shows_the_picture():
    """`draw()` is an image for a notebook, and the dataflow itself shows its name and picture."""
    flow = crawl_queue()
    assert flow.draw()._repr_svg_() == flow.draw()
    assert flow.draw() in flow._repr_html_()
    assert "crawl_queue" in flow._repr_html_()
