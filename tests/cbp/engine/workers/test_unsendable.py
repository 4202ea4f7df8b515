"""What cannot be sent to a worker is named by its stage, its attribute and its line."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cbp import DataflowBuilder, Input, Output, TranslateRecords
from cbp.engine.workers.shipping import pickled, refuse_unsendable
from cbp.errors import AuthorUnsendableError
from cbp.model.dataflow.nodes import StageNode


class Plain(TranslateRecords):
    urls = Input("url STRING")
    seen = Output("url STRING")

    def translate(self, record: Any, out: Any) -> None:
        out.seen(url=record.url)


class Locked(Plain):
    def __init__(self) -> None:
        self.limit = 3
        self.lock = threading.Lock()

    def translate(self, record: Any, out: Any) -> None:
        with self.lock:
            out.seen(url=record.url)


def node(translator: Any) -> StageNode:
    flow = DataflowBuilder("d")
    flow.stage("mark", translator, urls=flow.source("urls", "url STRING"))
    return flow.build().stages["mark"]


def test_an_attribute_that_cannot_be_sent_is_named() -> None:
    """A lock, a connection or an open file that `__init__` makes; with where to make it."""
    stages = [node(Plain()), node(Locked())]
    with pytest.raises(TypeError):
        pickled([stage.translator.translate for stage in stages])
    with pytest.raises(AuthorUnsendableError) as caught:
        refuse_unsendable(stages)
    details = caught.value.details
    assert (details["stage"], details["attribute"]) == ("mark", "lock")
    assert "Locked.translate" in details["function"]
    assert "test_unsendable.py:" in details["place"]
    assert "cached_property" in details["cause"]


def test_what_can_be_sent_is_not_refused() -> None:
    """Then the error was another one, and is raised as it was."""
    refuse_unsendable([node(Plain())])
