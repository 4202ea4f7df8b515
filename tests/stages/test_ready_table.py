"""The table of ready stages in stages/README.md: every stage, its inputs, results and forms."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

from cbp.model.dataflow.stage import CHANGES_OF
from tests.stages.ready_stages import stages

REPO = Path(__file__).resolve().parents[2]
ROW = re.compile(
    r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| (?:Python|columns)([^|]*) \|$", re.MULTILINE
)
FORMS = re.compile(r"(?<=`)\w+(?=`)")
PARAMETERS: dict[str, dict[str, Any]] = {
    **{form.__name__: parameters for form, parameters in stages().values()},
    "CountPerKey": {"key": "word STRING"},
    "Distances": {"source": 0},
    "KeyedTable": {"schema": "id INT, name STRING", "key": "id"},
    "LatestChange": {"schema": "id INT, ts INT, op STRING", "key": "id", "sequence": "ts"},
    "Reachable": {"source": 0},
    "ReachableArrow": {"source": 0},
    "ShortestPaths": {"source": 0},
    "ShortestPathsArrow": {"source": 0},
}


def test_the_table_has_every_ready_stage() -> None:
    """Names, inputs, which of them are signed or looked up, results and views, and forms."""
    points = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    known = points["project"]["entry-points"]["cbp.translators"]
    rows = ROW.findall((REPO / "stages" / "README.md").read_text(encoding="utf-8"))
    listed = [name for name, *_, forms in rows for name in (name, *FORMS.findall(forms))]
    assert sorted(listed) == sorted(known)
    for name, inputs, results, forms in rows:
        for one in (name, *FORMS.findall(forms)):
            module, _, class_ = known[one].partition(":")
            assert (inputs, results) == described(getattr(import_module(module), class_)), one


def described(class_: type[Any]) -> tuple[str, str]:
    """Return inputs and results of a stage as the table has them."""
    parameters = next(
        (PARAMETERS[c.__name__] for c in class_.__mro__ if c.__name__ in PARAMETERS), {}
    )
    spec = class_(**parameters).spec()
    lookups = [one.name for one in spec.lookups]
    own = {CHANGES_OF.format(name) for name in lookups}
    wired = [one for one in spec.inputs if not one.loopback and one.name not in own]
    inputs = ", ".join(one.name for one in wired)
    inputs += " (signed)" if all(one.changes for one in wired) else ""
    inputs += "".join(f"; {name} is looked up" for name in lookups)
    loops = {one.name for one in spec.inputs if one.loopback}
    views = {view.name for view in spec.views}
    results = [one.name for one in spec.outputs if one.name not in loops]
    return inputs, ", ".join(f"*{name}*" if name in views else name for name in results)
