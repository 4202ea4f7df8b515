"""Deletion vectors inside their descriptors: other writers make them, and ours never do."""

from __future__ import annotations

import uuid

from pyroaring import BitMap64

from cbp.engine.delta.actions import DeletionVector
from cbp.engine.delta.deletion_vectors import pack_vectors, z85_encode


def inline_vector(bitmap: BitMap64) -> DeletionVector:
    """Return a vector whose descriptor holds its bytes; only for very small vectors."""
    packed, file = pack_vectors("", uuid.uuid4(), {"rows": bitmap})
    assert file is not None
    vector = packed["rows"]
    assert vector.offset is not None
    begin = vector.offset + 4  # behind the length
    data = file.data[begin : begin + vector.size_bytes]
    return DeletionVector("i", z85_encode(data), None, len(data), len(bitmap))
