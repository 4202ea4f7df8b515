"""Every import contract of pyproject.toml fails for an import that it forbids.

The contracts themselves are checked by `deploy/check.sh`. Here one import is planted at a time in a
copy of the graph of imports: no source file changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter.application.use_cases import read_user_options
from importlinter.configuration import configure
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.layers import LayersContract

REPO = Path(__file__).resolve().parents[1]
configure()
SETTINGS = read_user_options(config_filename=str(REPO / "pyproject.toml"))
CONTRACTS: list[dict[str, Any]] = SETTINGS.contracts_options
KINDS = {"layers": LayersContract, "forbidden": ForbiddenContract}


@cache
def imports() -> Any:
    """Return the graph of all imports, those of other packages included."""
    packages = SETTINGS.session_options["root_packages"]
    return grimp.build_graph(*packages, include_external_packages=True, cache_dir=None)


def is_kept(options: dict[str, Any], graph: Any) -> bool:
    contract = KINDS[options["type"]](
        name=options["name"],
        session_options=SETTINGS.session_options,
        contract_options=options,
    )
    return bool(contract.check(graph, verbose=False).kept)


def forbidden_imports(options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (importer, imported) pairs, each of which breaks the contract."""
    if options["type"] == "forbidden":
        for source in options["source_modules"]:
            yield source, options["forbidden_modules"][0]
        for module in options["forbidden_modules"]:
            yield options["source_modules"][0], module
        return
    layers = [[name.strip() for name in layer.split("|")] for layer in options["layers"]]
    for container in options.get("containers", [""]):
        whole = [[f"{container}.{name}".lstrip(".") for name in layer] for layer in layers]
        for above, below in pairwise(whole):
            yield below[0], above[0]
        for layer in whole:
            for one, other in combinations(layer, 2):
                yield from ((one, other), (other, one))


@pytest.mark.parametrize("options", CONTRACTS, ids=lambda options: options["name"])
def test_a_contract_fails_for_each_import_that_it_forbids(options: dict[str, Any]) -> None:
    """One step up between any two layers, one between two that are apart, one forbidden module."""
    assert is_kept(options, deepcopy(imports()))
    planted = list(forbidden_imports(options))
    assert planted
    kept = []
    for importer, imported in planted:
        graph = deepcopy(imports())
        assert importer in graph.modules, importer
        if imported not in graph.modules:
            graph.add_module(imported, is_squashed=True)
        graph.add_import(importer=importer, imported=imported)
        if is_kept(options, graph):
            kept.append((importer, imported))
    assert not kept


@pytest.mark.parametrize(
    "options",
    [options for options in CONTRACTS if options["type"] == "layers" and "containers" in options],
    ids=lambda options: options["name"],
)
def test_a_package_without_a_layer_fails(options: dict[str, Any]) -> None:
    """Layers inside a package name all that it holds: a new room needs its place."""
    graph = deepcopy(imports())
    graph.add_module(f"{options['containers'][0]}.new_room")
    assert not is_kept(options, graph)


def test_every_package_with_rooms_has_layers() -> None:
    """A package of several packages has a contract, or is named here with its reason."""
    with_layers = {c for options in CONTRACTS for c in options.get("containers", ())}
    rooms = {
        package
        for package in imports().modules
        if re.match(r"(cbp|controller)\b", package)
        and sum(bool(imports().find_children(child)) for child in imports().find_children(package))
        >= 2
    }
    assert rooms <= with_layers
