"""The registry: which translators a document may name, and how its text is read."""

from controller.registry.text import parse_document
from controller.registry.translator_files import TranslatorFiles
from controller.registry.translators import Registry, TranslatorInfo

__all__ = ["Registry", "TranslatorFiles", "TranslatorInfo", "parse_document"]
