"""Ready dataflows: the wiring of translators, as Python and as the document to register."""

from importlib import resources
from typing import Any

import yaml


def read_document(name: str) -> dict[str, Any]:
    """Return the document of a ready dataflow, as JSON values."""
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text("utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content
