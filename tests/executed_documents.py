"""Executes the fenced blocks of a document in order, and compares what they print.

A `bash` block runs in one shell, after the blocks before it. A block that the text before it calls
by ``Save as `NAME` `` is written to that file at its turn. A `python` block runs in a process of
its own, by its file's name if it has one. A `text` block is what the block before it prints to its
standard output; without one it prints nothing. Other languages, such as `console`, are shown only.

In a `text` block `...` means one or more characters of a line, and alone on a line for one or
more lines: times, ids, paths. What a `text` block says beside them must be there; blanks at the
end of a line do not count.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path

from tests.command_forks import CommandForks

__all__ = ["LANGUAGES", "Block", "blocks", "languages", "matches", "play"]

LANGUAGES = {"bash", "text", "python", "yaml", "console", "mermaid"}
"""A block in another language would neither be run nor be shown for a reason."""
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SAVED = re.compile(r"Save (?:this |it )?as\s+`([^`]+)`", re.IGNORECASE)
ANY = "..."
SECONDS_MAX = 180.0


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        expected: The `text` block that follows it; empty: none does.
        name: The file that the text before it calls it.
    """

    language: str
    content: str
    expected: str = ""
    name: str = ""

    @property
    def runs(self) -> bool:
        """Whether it is executed, and not only saved or shown."""
        if self.language == "python":
            return not self.name or bool(self.expected)
        return self.language == "bash"


def blocks(text: str) -> list[Block]:
    """Return the blocks in order; a `text` block belongs to the one before it."""
    actual: list[Block] = []
    end = 0
    for match in FENCE.finditer(text):
        language, content = match[1], match[2]
        if language == "text" and actual:
            actual[-1] = replace(actual[-1], expected=content)
        else:
            names = SAVED.findall(text[end : match.start()])
            actual.append(Block(language, content, name=names[-1] if names else ""))
        end = match.end()
    return actual


def languages(text: str) -> set[str]:
    """Return the languages of a document's blocks."""
    return {match[1] for match in FENCE.finditer(text)}


def matches(expected: str, actual: str) -> bool:
    """Tell whether an output is what a document shows.

    Raises:
        ValueError: If the document shows nothing but `...`, which any output would be.
    """
    if expected and not re.sub(r"[.\s]", "", expected):
        message = f"{expected!r} says nothing about the output"
        raise ValueError(message)
    lines = []
    actual = "".join(f"{line.rstrip()}\n" for line in actual.splitlines())
    for line in (f"{line.rstrip()}\n" for line in expected.splitlines()):
        if line.strip() == ANY:
            lines.append(r"(?:[^\n]*\n)+?")
        else:
            lines.append("[^\n]+?".join(map(re.escape, line.split(ANY))))
    return re.fullmatch("".join(lines), actual) is not None


def play(
    text: str | Sequence[Block],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    seconds_max: float = SECONDS_MAX,
) -> int:
    """Execute a document's blocks in a folder, and return how many were executed.

    `cbp` and `python` are those of this environment, wherever the shell would find others.

    Raises:
        AssertionError: The first block that fails, or prints something else than is shown.
    """
    parts = blocks(text) if isinstance(text, str) else list(text)
    # A reader's programs import from the folder that they lie in.
    inherited = {name: os.environ[name] for name in os.environ if name != "PYTHONSAFEPATH"}
    with CommandForks() as cbp:
        done = subprocess.run(
            ["bash", "-c", _script(parts, cbp.command)],
            cwd=folder,
            env={**inherited, "COLUMNS": "80", **(environment or {})},
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )
    outputs = re.split(r"^--- \d+\n", done.stdout, flags=re.MULTILINE)
    executed = [part for part in parts if part.runs]
    for part, output in zip(executed, outputs, strict=False):
        assert matches(part.expected, output), _difference(part, output, done.stderr)
    assert done.returncode == 0, done.stderr
    assert outputs[len(executed) :] == [""], done.stderr
    return len(executed)


def _script(parts: Sequence[Block], cbp: str) -> str:
    lines = [
        "set -eu",
        f'cbp() {{ {cbp} "$@"; }}',
        f'python() {{ {shlex.quote(sys.executable)} "$@"; }}',
    ]
    for number, part in enumerate(parts):
        content = part.content
        if part.name:
            folder = shlex.quote(str(Path(part.name).parent))
            lines += [
                f"mkdir -p {folder}",
                f"printf %s {shlex.quote(content)} >{shlex.quote(part.name)}",
            ]
        if not part.runs:
            continue
        if part.language == "python":
            source = shlex.quote(part.name) if part.name else f"-c {shlex.quote(content)}"
            content = f"python {source}\n"
        lines.append(f"{content}echo '--- {number}'")
    return "\n".join(lines)


def _difference(part: Block, output: str, errors: str) -> str:
    shown = part.expected.splitlines(), output.splitlines()
    lines = unified_diff(*shown, "the document", "the output", lineterm="")
    return "\n".join([part.content, *lines, errors[-4000:]])
