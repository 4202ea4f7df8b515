"""What author's code changes of its process is found and named; what it leaves alone is not."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.cbp.engine.workers.changing import CHANGES
from tests.fresh import of_tests

_ALL = """
import json, sys
import numpy.random
from cbp.model.author.code_fingerprint import fingerprint
from cbp.model.author.process_state import watch_process
from tests.cbp.engine.workers import changing

dumps = json.dumps
fingerprint(changing.Change)
watch = watch_process()
watch.loaded()
found = {}
for name, (change, _) in changing.CHANGES.items():
    watch.begin()
    loaded, before, watch.by_calls = watch.loaded(), watch.ended(), False
    change()
    first = watch.ended()
    found[name] = loaded + before, first, watch.is_changed, watch.ended()
print(dumps(found), file=sys.stderr)
"""

_HARMLESS = """
import functools, json, logging, random, re, sys, tempfile, time, types
from cbp.model.author import process_state

author = types.ModuleType("author")
sys.modules["author"] = author
exec('''
import functools
model = None
LIMITS = {"a": [1, 2]}
@functools.lru_cache
def cached(n):
    return n
class Helper:
    pass
one = Helper()
''', vars(author))
process_state.modules_seen = lambda: frozenset({"author"})
watch = process_state.watch_process()
watch.begin()
before = random.getstate()
random.random()  # as rich does while it is imported
loaded = watch.loaded()
assert not loaded and random.getstate() == before, loaded
author.model = author.Helper()
author.cached(3)
time.strptime("2026", "%Y")
tempfile.gettempdir()
re.compile("a+b").match("aab")
logging.getLogger("author").info("x")
import colorsys, wave
kept = open("/dev/null", "rb"), open("/dev/zero", "rb")
print(json.dumps([watch.ended(), watch.is_changed]), file=sys.stderr)
"""


def found(script: str) -> object:
    done = subprocess.run(
        [sys.executable, "-c", script], env=of_tests(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stderr.splitlines()[-1])


def test_each_change_is_named_once() -> None:
    """Nothing before it, the thing itself behind it, nothing of it afterwards."""
    actual = found(_ALL)
    assert isinstance(actual, dict)
    assert actual.keys() == CHANGES.keys()
    for name, (before, changed, noted, after) in actual.items():
        says = CHANGES[name][1]
        assert not before, name
        assert says in changed, name
        assert noted == bool(changed), name
        assert not after, name


def test_a_global_may_be_set_once() -> None:
    """What is loaded at the first call, caches of functions and lazy modules are no changes."""
    assert found(_HARMLESS) == [[], False]


def test_a_library_that_is_loaded_late_has_changed_nothing() -> None:
    """Else a worker of Spark would be replaced behind each task that loads one."""
    script = (
        "import numpy.random\n"
        "from cbp.model.author.process_state import watch_process\n"
        "watch = watch_process()\n"
        "watch.begin()\n"
        "import pandas, pyarrow.compute, pydantic, sqlalchemy, yaml\n"
        "print(watch.loaded(), watch.ended())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        env=of_tests(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "[] []", done.stderr
