"""What an author imports: translators, their inputs and outputs, and the builder."""

from cbp.model.schema import Schema
from cbp.sdk.builder import DataflowBuilder
from cbp.sdk.document import dataflow_from_document
from cbp.sdk.translate import Input, Output, State, Translate, TranslateRecords, by

__all__ = [
    "DataflowBuilder",
    "Input",
    "Output",
    "Schema",
    "State",
    "Translate",
    "TranslateRecords",
    "by",
    "dataflow_from_document",
]
