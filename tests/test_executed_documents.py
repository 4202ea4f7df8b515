"""The mechanism that executes documents: what it runs, and that it finds what is not so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.executed_documents import blocks, matches, play


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("a\n", "a\n"),
        ("run r... took ... s\n", "run r17 took 0.3 s\n"),
        ("first\n...\nlast\n", "first\n1\n2\nlast\n"),
        ("1 + 1 = (2)\n", "1 + 1 = (2)\n"),
        ("a b\n", "a b  \n"),
        ("", ""),
    ],
)
def test_an_output_is_as_shown(expected: str, actual: str):
    """`...` replaces what differs from time to time, and nothing else."""
    assert matches(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("a\n", "b\n"),
        ("a\n", ""),
        ("", "a\n"),
        ("run r...\n", "run r\n"),
        ("first\n...\nlast\n", "first\nlast\n"),
        ("first ... last\n", "first\nlast\n"),
        ("a.c\n", "abc\n"),
        ("a\n", "a\nb\n"),
        ("a b\n", "a  b\n"),
    ],
)
def test_another_output_is_found(expected: str, actual: str):
    """A stale, an empty, a shorter and a longer one; dots of their own are dots."""
    assert not matches(expected, actual)


@pytest.mark.parametrize("expected", ["...\n", "...\n...\n", "... .\n"])
def test_a_document_cannot_show_nothing(expected: str):
    """What would fit every output is refused."""
    with pytest.raises(ValueError, match="says nothing"):
        matches(expected, "anything\n")


DOCUMENT = """\
Save as `one.py`:

```python
print("one")
```

```bash
python one.py; cbp --version; cbp help nothing || echo "status $?"
```

```text
one
cbp ...
status 1
```

```python
from one import *
```

```text
one
```
"""


def test_blocks_run_in_order_and_are_compared(tmp_path: Path):
    """A saved file is there for the blocks behind it; a program imports from the folder."""
    assert play(DOCUMENT, tmp_path) == 2


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("status 1\n", "status 2\n"),
        ("```text\none\n```\n", ""),
        ('print("one")', "pass"),
        ('|| echo "status $?"', ""),
        ("from one import *", "import two"),
    ],
)
def test_a_document_that_is_not_so_fails(tmp_path: Path, was: str, becomes: str):
    """Another output, one that is not shown, none, and a command that fails."""
    assert was in DOCUMENT
    with pytest.raises(AssertionError):
        play(DOCUMENT.replace(was, becomes), tmp_path)


def test_a_file_that_is_only_saved_does_not_run():
    """A program without an output is for what follows."""
    saved, ran = blocks("Save as `a.py`:\n\n```python\n1\n```\n\n```bash\ntrue\n```\n")
    assert (saved.name, saved.runs, ran.runs) == ("a.py", False, True)
