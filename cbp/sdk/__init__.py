"""What an author imports: translators, their inputs and outputs, and the builder."""

from cbp.model.connector import Connector, Decision
from cbp.model.runnable import (
    Align,
    CountWindow,
    KeyWindow,
    Phase,
    Phases,
    RunAll,
    RunAny,
    StaticTable,
)
from cbp.model.schema import Schema
from cbp.sdk.builder import DataflowBuilder
from cbp.sdk.document import dataflow_from_document
from cbp.sdk.translate import Input, Output, State, Translate, TranslateRecords, by

__all__ = [
    "Align",
    "Connector",
    "CountWindow",
    "DataflowBuilder",
    "Decision",
    "Input",
    "KeyWindow",
    "Output",
    "Phase",
    "Phases",
    "RunAll",
    "RunAny",
    "Schema",
    "State",
    "StaticTable",
    "Translate",
    "TranslateRecords",
    "by",
    "dataflow_from_document",
]
