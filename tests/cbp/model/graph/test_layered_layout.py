"""Layouts: every node has one place, and edges rise except where they close a cycle."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from cbp.model.graph.drawing import lay_out

NAMES = [f"n{number}" for number in range(9)]
EDGES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=25)


@given(EDGES)
def test_every_node_has_one_place_and_forward_edges_rise(edges: list[tuple[str, str]]):
    """A long edge has one lane in each layer between its ends, and nothing is drawn twice."""
    layout = lay_out(NAMES, edges)
    places = [one for layer in layout.layers for one in layer]
    assert sorted(one for one in places if isinstance(one, str)) == NAMES
    assert len(set(places)) == len(places)
    for begin, end in set(edges) - set(layout.back):
        layers = range(layout.layer_of[begin] + 1, layout.layer_of[end])
        assert layout.layer_of[end] > layout.layer_of[begin]
        assert all((begin, end, at) in layout.layers[at] for at in layers)


@given(EDGES)
def test_only_edges_of_cycles_lead_back(edges: list[tuple[str, str]]):
    """Without the edges that lead back there is no cycle, and each of them is part of one."""
    layout = lay_out(NAMES, edges)
    after = {name: {end for begin, end in edges if begin == name} for name in NAMES}

    def reaches(begin: str, goal: str) -> bool:
        waiting, known = [begin], {begin}
        while waiting:
            if (name := waiting.pop()) == goal:
                return True
            new = after[name] - known
            known |= new
            waiting += new
        return False

    assert all(reaches(end, begin) for begin, end in layout.back)


@given(EDGES, st.permutations(NAMES), st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_edges_moves_no_node_to_another_layer(
    edges: list[tuple[str, str]], names: list[str], random: Random
):
    """Nor does it make another edge lead back."""
    permuted = random.sample(edges, len(edges))
    layout, other = lay_out(NAMES, edges), lay_out(names, permuted)
    assert layout.layer_of == other.layer_of
    assert set(layout.back) == set(other.back)


def test_every_process_makes_the_same_layout():
    """Sets of names have another order in each process; the layout does not depend on it."""
    code = (
        "import random\n"
        "from cbp.model.graph.drawing import lay_out\n"
        f"names = {NAMES!r}\n"
        "for seed in range(200):\n"
        "    draw = random.Random(seed)\n"
        "    edges = [(draw.choice(names), draw.choice(names)) for _ in range(seed % 25)]\n"
        "    print(lay_out(names, edges))\n"
    )
    layouts = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    ]
    assert layouts[0].count("Layout(") == 200
    assert layouts[0] == layouts[1] == layouts[2]


def test_a_cycle_begins_where_it_is_fed():
    """The stage of a cycle that a source feeds comes before the other one."""
    layout = lay_out(["edges", "a", "b"], [("edges", "b"), ("b", "a"), ("a", "b")])
    assert layout.back == (("a", "b"),)
    assert layout.layer_of == {"edges": 0, "b": 1, "a": 2}
