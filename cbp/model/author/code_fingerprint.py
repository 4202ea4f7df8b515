"""The fingerprint of author's code: that of the loaded code, and that of a registered version.

Both are compared before anything runs. The description of a version has its fingerprint:

    3:3.11:1f0c9a2b77e4d310      scheme : interpreter : digest of all parts
    parts: {"shop.count.Count": "9a31c0de", "shop.text.clean": "0be41f22", ...}

Fingerprints of two schemes cannot be compared, so no difference is reported. Fingerprints of one
scheme are equal if their digests are equal. If the digests differ, the parts tell what differs,
unless the interpreters differ too: each compiles the same source to other bytecode.

Invariant (tests/cbp/model/author/test_fingerprint.py): a code does not differ from itself after
`to_json` and `from_json`.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

SCHEME = "3"
"""The current scheme of fingerprints; see `cbp.model.author.fingerprint`."""

LATER: Mapping[str, bool] = {"cbp.later": True}
"""Metadata of a dataclass field that a later release added to a declaration.

While the field has its default, it is left out of fingerprints, which then equal those of the
releases before.
"""

_OPTIMISED = "-O" if sys.flags.optimize else ""
_INTERPRETER = f"{sys.version_info.major}.{sys.version_info.minor}{_OPTIMISED}"

SHOWN_MAX = 5
"""Maximum number of parts that a message names."""


@dataclass(frozen=True, slots=True)
class Code:
    """The fingerprint of some code.

    Attributes:
        text: `scheme:interpreter:digest`; `""` if unknown. A text without a scheme is from
            an earlier release.
        parts: Maps the name of each function, class or constant to its own digest. Not shipped
            to workers.
    """

    text: str = ""
    parts: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, parts: Mapping[str, str]) -> Code:
        """Return the code of these parts, in this interpreter."""
        lines = "\n".join(f"{name} {digest}" for name, digest in sorted(parts.items()))
        made = hashlib.sha256(lines.encode(errors="surrogatepass")).hexdigest()[:16]
        return cls(f"{SCHEME}:{_INTERPRETER}:{made}", parts)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the text."""
        return Code, (self.text,)

    def __str__(self) -> str:
        """Return the text."""
        return self.text

    def __bool__(self) -> bool:
        """Return whether it has the current scheme, so that it can be compared with loaded code."""
        return self.text.startswith(f"{SCHEME}:")

    def __add__(self, other: Code) -> Code:
        """Return the fingerprint of both."""
        return Code.of({**self.parts, **other.parts})

    @property
    def interpreter(self) -> str:
        """The version of Python, such as `3.11`; with `-O` if it leaves out assertions."""
        return self.text.split(":")[1] if self else ""

    def differences(self, now: Code) -> Iterator[str]:
        """Yield the differences to the loaded code, in words; nothing if there is none."""
        if not self or not now or self.text.split(":")[2] == now.text.split(":")[2]:
            return
        if self.interpreter != now.interpreter:
            was, is_ = (f"Python {one.interpreter}" for one in (self, now))
            yield f"its code: compiled by another interpreter ({was} -> {is_}), so not comparable"
            return
        others = sorted(
            name
            for name in self.parts.keys() | now.parts.keys()
            if self.parts.get(name) != now.parts.get(name)
        )
        shown = ", ".join(others[:SHOWN_MAX])
        more = f" and {len(others) - SHOWN_MAX} more" if len(others) > SHOWN_MAX else ""
        yield f"its code: {shown}{more}" if others else "its code"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        return {"text": self.text, "parts": dict(self.parts)}

    @classmethod
    def from_json(cls, value: Any) -> Code:
        """Read the output of `to_json`, or the text alone, as earlier releases wrote it."""
        if isinstance(value, str):
            return cls(value)
        return cls(value["text"], value["parts"])


UNKNOWN_CODE = Code()
