"""The registry: which translators a document may name, and how its text is read."""

from controller.registry.text import parse_document
from controller.registry.translators import Registry, TranslatorInfo

__all__ = ["Registry", "TranslatorInfo", "parse_document"]
