"""Real graphs and random ones with hubs, as arrays of edges; and answers from scratch with NumPy.

Debian's packages and their dependencies come from the package lists of apt; a machine that has no
lists has fewer edges, from the packages that are installed, and one without dpkg has none.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stages.strong_components import strong_components
from tests.machine import leave_out
from tests.stages.manuals import numbered, pages_of

__all__ = [
    "Edges",
    "communities",
    "core_numbers",
    "debian",
    "imports",
    "labels",
    "power_law",
    "scores",
    "steps",
    "strong_labels",
    "triangles",
]

Edges = npt.NDArray[np.int64]
"""Rows of two nodes; each edge once, none from a node to itself, in a random order."""
Floats = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]

_PATHS = 1 << 24
"""Paths of two links that are looked at together."""
_STATUS = Path("/var/lib/dpkg/status")
_NAME = re.compile(r"(?:^|[,|])\s*([a-z0-9.+-]+)")


@cache
def debian() -> Edges:
    """Return which package depends on which one; skip where there is no Debian."""
    lines: Iterable[str] = ()
    if shutil.which("apt-cache"):
        command = ["apt-cache", "dumpavail"]
        shown = subprocess.run(command, capture_output=True, check=False)
        lines = shown.stdout.decode(errors="replace").splitlines()
    if not lines and _STATUS.is_file():
        lines = _STATUS.read_text(encoding="utf-8", errors="replace").splitlines()
    edges = np.array(list(_dependencies(lines)), np.int64).reshape(-1, 2)
    if not len(edges):
        leave_out("packages", "no Debian packages are known here: neither apt-cache nor dpkg")
    return _mixed(edges)


def _dependencies(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    numbers: dict[str, int] = {}
    package = ""
    for line in lines:
        if line.startswith("Package: "):
            package = line[9:].strip()
        elif line.startswith("Depends: "):
            src = numbers.setdefault(package, len(numbers))
            for other in _NAME.findall(line[9:]):
                yield src, numbers.setdefault(other, len(numbers))


def imports() -> Edges:
    """Return which module of Python imports which one."""
    return _mixed(np.array(numbered(pages_of("modules")), np.int64))


def power_law(nodes: int, edges: int, *, seed: int = 1) -> Edges:
    """Return random edges to few nodes that have many, and to many that have few."""
    dice = np.random.default_rng(seed)
    dst = (dice.zipf(1.3, edges) * 7919 + dice.integers(0, nodes, edges) // 7) % nodes
    return _mixed(np.stack([dice.integers(0, nodes, edges), dst], axis=1))


def _mixed(edges: Edges) -> Edges:
    edges = edges[edges[:, 0] != edges[:, 1]]
    many = 1 + int(edges.max(initial=0))
    edges = np.stack(np.divmod(np.unique(edges[:, 0] * many + edges[:, 1]), many), axis=1)
    order = [*range(len(edges))]
    random.Random(7).shuffle(order)
    return edges[order]


def scores(edges: Edges, error: float = 1e-12, damping: float = 0.85) -> tuple[Int64s, Floats]:
    """Return nodes, and their PageRank by power iteration until the mean moves by less."""
    nodes, src, dst = _numbered(edges)
    links = np.bincount(src, minlength=len(nodes))
    share = damping / np.maximum(links, 1)
    actual: Floats = np.ones(len(nodes))
    moved = 1.0
    while moved * damping / (1 - damping) > error:
        before = actual
        given = np.bincount(dst, (share * before)[src], len(nodes))
        actual = np.asarray(1 - damping + given, np.float64)
        moved = float(np.abs(actual - before).mean())
    return nodes, actual


def labels(edges: Edges) -> tuple[Int64s, Int64s]:
    """Return nodes, and the least node of the component of each."""
    nodes, src, dst = _numbered(edges)
    label, before = np.arange(len(nodes)), np.empty(0, np.int64)
    while not np.array_equal(label, before):
        before = label.copy()
        np.minimum.at(label, dst, label[src])
        np.minimum.at(label, src, label[dst])
        label = label[label]
    return nodes, nodes[label]


def steps(edges: Edges, source: int) -> tuple[Int64s, Int64s]:
    """Return the nodes that are reached from the source, and the number of edges to each."""
    nodes, src, dst = _numbered(edges)
    far = len(nodes) + 1
    distance, before = np.where(nodes == source, 0, far), np.empty(0, np.int64)
    while not np.array_equal(distance, before):
        before = distance.copy()
        np.minimum.at(distance, dst, np.minimum(distance[src] + 1, far))
    reached = distance < far
    if not np.any(nodes[src] == source):
        reached[:] = False
    return nodes[reached], distance[reached]


def triangles(edges: Edges) -> tuple[Int64s, Int64s]:
    """Return nodes, and the number of triangles of each, by one look at each path of two links."""
    nodes, src, dst = _numbered(edges)
    many = len(nodes)
    src, dst = np.divmod(np.unique(np.minimum(src, dst) * many + np.maximum(src, dst)), many)
    degree = np.bincount(np.concatenate([src, dst]), minlength=many)
    turned = (degree[src] > degree[dst]) | ((degree[src] == degree[dst]) & (src > dst))
    low, high = np.where(turned, dst, src), np.where(turned, src, dst)
    codes = np.sort(low * many + high)
    low, high = np.divmod(codes, many)
    starts, stops = np.searchsorted(low, [np.arange(many), np.arange(many) + 1])
    sizes = (stops - starts)[high]
    corners, ends = np.zeros(many, np.int64), np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    cuts = np.searchsorted(ends, np.arange(_PATHS, total, _PATHS))
    for links in np.split(np.arange(len(codes)), cuts):
        path = np.repeat(links, sizes[links])
        before = np.repeat((ends - sizes)[links], sizes[links])
        place = np.arange(len(path)) + (before[0] if len(path) else 0)
        third = place - before + starts[high[path]]
        wanted = low[path] * many + high[third]
        at = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        closed = codes[at] == wanted
        for corner in (low[path], high[path], high[third]):
            corners += np.bincount(corner[closed], minlength=many)
    return nodes, corners


def strong_labels(edges: Edges) -> tuple[Int64s, Int64s]:
    """Return nodes, and the least node of the strongly connected component of each."""
    nodes, src, dst = _numbered(edges)
    return nodes, nodes[strong_components(len(nodes), src, dst)]


def core_numbers(edges: Edges) -> tuple[Int64s, Int64s]:
    """Return nodes, and the core number of each, by taking away those of few neighbours."""
    nodes, src, dst = _both_ways(edges)
    degree = np.bincount(src, minlength=len(nodes))
    core, least = np.zeros(len(nodes), np.int64), 0
    while len(src):
        least = max(least, int(degree[src].min()))
        goes = np.zeros(len(nodes), np.bool_)
        goes[src[degree[src] <= least]] = True
        core[goes] = least
        stays = ~(goes[src] | goes[dst])
        src, dst = src[stays], dst[stays]
        before, degree = degree, np.bincount(src, minlength=len(nodes))
        core[(before > 0) & (degree == 0) & ~goes] = least
    return nodes, core


def communities(edges: Edges, rounds: int = 5) -> tuple[Int64s, Int64s]:
    """Return nodes, and the label that most around each of them have after some rounds."""
    nodes, src, dst = _both_ways(edges)
    many = len(nodes)
    owner, told = np.concatenate([src, np.arange(many)]), np.concatenate([dst, np.arange(many)])
    label = np.arange(many)
    for _ in range(rounds):
        codes, sizes = np.unique(owner * many + label[told], return_counts=True)
        order = np.lexsort((codes, -sizes, codes // many))
        label = codes[order[np.flatnonzero(np.diff(codes[order] // many, prepend=-1))]] % many
    return nodes, nodes[label]


def _both_ways(edges: Edges) -> tuple[Int64s, Int64s, Int64s]:
    nodes, src, dst = _numbered(np.unique(np.sort(edges, axis=1), axis=0))
    return nodes, np.concatenate([src, dst]), np.concatenate([dst, src])


def _numbered(edges: Edges) -> tuple[Int64s, Int64s, Int64s]:
    nodes, places = np.unique(edges, return_inverse=True)
    src, dst = places.reshape(edges.shape).T
    return nodes, src, dst
