"""Fingerprints of an author's code: what counts, what does not, and that processes agree."""

from __future__ import annotations

import copy
import functools
import gc
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cbp import Input, Output, State
from cbp.model.author.code_fingerprint import Code, fingerprint, held_by, modules_of
from cbp.sdk.declare import place_of
from stages.translators.incremental_pagerank import IncrementalPageRank
from stages.translators.url_count import UrlCount
from tests.authored import asked, forget, write

COUNT = '''"""A shop."""

from __future__ import annotations

import enum
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cbp import Input, Output, Translate, by, framed
from shop import text
from shop.base import Based
from shop.text import LIMIT as MOST

WORDS = {"a", "b", "c"}
HERE = Path(__file__).parent
PATTERN = re.compile("a+")
_seen: dict[str, int] = {}


class Color(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    a: int
    b: int = 2


@dataclass
class Rule:
    most: int = 3

    def applies(self, n: int) -> bool:
        return n < self.most


RULE = Rule()


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def inner(*arguments: Any) -> Any:
        return function(*arguments)

    return inner


def key_of(record: Any) -> str:
    return record.url.strip()


def hour_of(record: Any) -> int:
    return record.at // 3600


@functools.lru_cache
def cached(url: str) -> str:
    return url.lower()


class Count(Based):
    """Counts."""

    urls = Input("url STRING, at BIGINT", route_by=by(key_of, "STRING"), frame_by=framed(hour_of))
    totals = Output("url STRING, n BIGINT", key="url")
    key = "url STRING"

    def __init__(self, n: int = 1) -> None:
        self.n = n
        self.pair = Pair(1)

    @decorated
    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Translate."""
        from shop.late import later

        _seen["x"] = _seen.get("x", 0) + 1
        assert key is not None
        if key.url in {"x", "y", "z"} or PATTERN.match(cached(key.url)):
            return
        try:
            n = text.cleaned(key.url, MOST)
        except ValueError:
            n = 0
        if key.url in WORDS and RULE.applies(n):
            n = len(text.helper.split(key.url)) + Color.RED.value
            out.totals(url=later(key.url) + HERE.name, n=n)
'''
FILES = {
    "shop/__init__.py": "",
    "shop/count.py": COUNT,
    "shop/base.py": (
        "from cbp import Translate\n\nFACTOR = 2\n\n\nclass Based(Translate):\n"
        "    scale = 4\n\n    def times(self, n):\n        return n * FACTOR\n"
    ),
    "shop/text.py": (
        "from shop import helper\n\nLIMIT = 10\nUNUSED = 1\n\n\ndef cleaned(text, most=5):\n"
        "    return min(len(text), most)\n\n\ndef unused():\n    return 1\n"
    ),
    "shop/helper.py": "def split(text):\n    return [p for p in text.split('/') if p]\n",
    "shop/late.py": "def later(text):\n    return text.upper()\n",
}
TARGET = "shop.count:Count"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Code]]:
    """Loads the package anew, some of its text replaced, and returns the fingerprint."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(path: str = "", old: str = "", new: str = "") -> Code:
        assert not path or old in FILES[path]
        write(tmp_path, FILES | ({path: FILES[path].replace(old, new)} if path else {}))
        forget("shop")
        return fingerprint(importlib.import_module("shop.count").Count)

    yield load
    forget("shop")


@pytest.mark.parametrize(
    ("path", "old", "new", "told"),
    [
        ("shop/count.py", "n = 0", "n = 1", "shop.count.Count.translate"),
        ("shop/count.py", "n: int = 1", "n: int = 2", "shop.count.Count.__init__"),
        ("shop/count.py", '{"x", "y", "z"}', '{"x", "y"}', "shop.count.Count.translate"),
        ("shop/count.py", "except ValueError", "except KeyError", "shop.count.Count.translate"),
        ("shop/count.py", 'WORDS = {"a", ', "WORDS = {", "shop.count.WORDS"),
        ("shop/count.py", '"a+"', '"a*"', "shop.count.PATTERN"),
        ("shop/count.py", "RED = 1", "RED = 2", "shop.count.Color"),
        ("shop/count.py", "b: int = 2", "b: int = 3", "shop.count.Pair"),
        ("shop/count.py", "most: int = 3", "most: int = 4", "shop.count.RULE"),
        ("shop/count.py", "n < self.most", "n <= self.most", "shop.count.Rule.applies"),
        ("shop/count.py", "url.strip()", "url", "shop.count.key_of"),
        ("shop/count.py", "// 3600", "// 60", "shop.count.hour_of"),
        ("shop/count.py", "url.lower()", "url.upper()", "shop.count.cached"),
        ("shop/count.py", "    return inner", "    return function", "shop.count.decorated"),
        ("shop/count.py", 'key="url"', 'key="n"', "shop.count.Count"),
        ("shop/base.py", "FACTOR = 2", "FACTOR = 3", "shop.base.FACTOR"),
        ("shop/base.py", "scale = 4", "scale = 5", "shop.base.Based"),
        ("shop/base.py", "n * FACTOR", "n + FACTOR", "shop.base.Based.times"),
        ("shop/text.py", "LIMIT = 10", "LIMIT = 11", "shop.count.MOST"),
        ("shop/text.py", "most=5", "most=6", "shop.text.cleaned"),
        ("shop/text.py", "min(", "max(", "shop.text.cleaned"),
        ("shop/helper.py", "if p", "", "shop.helper.split"),
        ("shop/late.py", "upper", "lower", "shop.late.later"),
    ],
)
def test_what_the_code_needs_of_its_package_counts(
    shop: Callable[..., Code], path: str, old: str, new: str, told: str
) -> None:
    """Each edit is another fingerprint, and the difference names what was edited."""
    before, after = shop(), shop(path, old, new)
    (difference,) = before.differences(after)
    if told != "shop.count.decorated":
        assert told in difference


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("shop/count.py", '"""Translate."""', '"""Translate it."""'),
        ("shop/count.py", '    """Counts."""\n', ""),
        ("shop/count.py", "        try:", "        # Why?\n\n        try:"),
        ("shop/text.py", "UNUSED = 1", "UNUSED = 2"),
        ("shop/text.py", "    return 1", "    return 2"),
        ("shop/text.py", "LIMIT = 10", "\n\n# More.\nLIMIT = 10"),
        ("shop/count.py", "(min(len(text), most))", ""),
    ],
)
def test_comments_docstrings_lines_and_what_nobody_calls_do_not_count(
    shop: Callable[..., Code], path: str, old: str, new: str
) -> None:
    """An upgrade that changes only these stops nobody."""
    if old not in FILES[path]:
        old = new = ""
    assert shop() == shop(path, old, new)


def test_what_a_run_keeps_in_a_module_is_no_other_code(shop: Callable[..., Code]) -> None:
    """Values are taken as they were when the module was first seen."""
    before = shop()
    module = sys.modules["shop.count"]
    module._seen["x"] = 7
    again = fingerprint(type("Other", (module.Count,), {"__module__": "shop.count"}))
    assert again.parts["shop.count._seen"] == before.parts["shop.count._seen"]


def test_the_modules_that_the_code_lies_in_are_known(shop: Callable[..., Code]) -> None:
    """Those of functions, classes and constants that count; no other."""
    shop()
    actual = modules_of(sys.modules["shop.count"].Count)
    names = {"shop.count", "shop.base", "shop.text", "shop.helper", "shop.late"}
    assert actual - {"shop"} == names


def test_processes_agree_whatever_their_hash_seed_and_folder(tmp_path: Path) -> None:
    """Sets have another order in each, and files another path."""
    write(tmp_path / "a", FILES)
    write(tmp_path / "b", FILES)
    first = asked(tmp_path / "a", TARGET, seed="1")
    assert first == asked(tmp_path / "b", TARGET, seed="2")
    assert "shop.text.cleaned" in first[1]


def test_an_interpreter_without_assertions_is_another_one(tmp_path: Path) -> None:
    """Without any, its code is the same; a difference is blamed on the interpreter."""
    write(tmp_path, FILES)
    with_, without = (Code(asked(tmp_path, TARGET, *o)[0]) for o in ((), ("-OO",)))
    (difference,) = with_.differences(without)
    assert "another interpreter" in difference
    bare, stripped = (asked(tmp_path, "shop.text:cleaned", *o)[0] for o in ((), ("-OO",)))
    assert not list(Code(bare).differences(Code(stripped)))


def test_a_package_in_an_archive_has_a_fingerprint(tmp_path: Path) -> None:
    """It is taken from what is loaded, and needs no file."""
    import zipfile

    with zipfile.ZipFile(tmp_path / "shop.zip", "w") as archive:
        for path, text in FILES.items():
            archive.writestr(path, text)
    write(tmp_path / "plain", FILES)
    assert asked(tmp_path / "shop.zip", TARGET) == asked(tmp_path / "plain", TARGET)


def test_functions_and_classes_of_an_instance_count_and_its_other_values_do_not() -> None:
    """A translator's parameters are part of its document; what it keeps is no code."""
    first, second, third = UrlCount(), UrlCount(), UrlCount()
    second.note, third.note = 5, lambda r: r  # type: ignore[attr-defined]
    third.note.__module__ = UrlCount.__module__  # type: ignore[attr-defined]
    codes = [held_by(vars(one), UrlCount) for one in (first, second, third)]
    assert codes[0] == codes[1] == fingerprint(UrlCount)
    assert codes[2] != codes[0]


def test_a_code_read_back_does_not_differ() -> None:
    """What a description holds is what was registered; what is unknown is not compared."""
    code = fingerprint(UrlCount)
    assert list(code.differences(Code.from_json(code.to_json()))) == []
    assert list(Code("0123456789abcdef").differences(code)) == []
    assert list(code.differences(fingerprint(IncrementalPageRank)))
    assert not Code("0123456789abcdef")
    assert code


class Slow:
    """Garbage that runs Python when it is collected, so that threads change places there."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        for _ in range(200):
            pass


@pytest.fixture
def _restless() -> Iterator[None]:
    """Threads change as often as they can, also inside of the parser."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("_restless")
def test_documents_may_be_compiled_by_several_threads_at_once() -> None:
    """The parser of Python 3.11 fails with SystemError where two threads meet in it."""
    failed: list[BaseException] = []

    def work(depth: int) -> object:
        if depth:
            return work(depth - 1)
        return fingerprint(IncrementalPageRank) and place_of(UrlCount)

    def run(depth: int) -> None:
        for _ in range(10):
            garbage = [Slow() for _ in range(40)]
            del garbage
            try:
                work(depth)
            except SystemError as error:
                failed.append(error)

    threads = [threading.Thread(target=run, args=(depth,)) for depth in (5, 20, 40, 80)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_function_is_told_by_what_it_does() -> None:
    """Another body is another function; a comment is none; of a built-in one, its name counts."""

    class First:
        def one(self, r: Any) -> Any:
            return r.a

    class Second:
        def one(self, r: Any) -> Any:
            # says why

            return r.a

    class Third:
        def one(self, r: Any) -> Any:
            return r.b

    plain, same, other = (
        next(iter(fingerprint(one).parts.values())) for one in (First.one, Second.one, Third.one)
    )
    assert plain == same != other
    assert fingerprint(len) != fingerprint(max)


def test_what_python_adds_to_a_class_later_is_no_code(shop: Callable[..., Code]) -> None:
    """Copying an instance makes `copyreg` add an attribute to its class, before it is asked for."""
    before = shop()
    forget("shop")
    count = importlib.import_module("shop.count").Count
    copy.copy(count())
    assert "__slotnames__" in vars(count)
    assert fingerprint(count) == before


LONE = {
    "lone_count.py": (
        "import json\nimport lone_helper\nfrom lone_helper import LIMIT\n"
        "from lone_text import rules\n\n\ndef count(text):\n    from lone_late import later\n"
        "    return json.loads(later(lone_helper.cleaned(rules.strict(text))))[:LIMIT]\n"
    ),
    "lone_helper.py": "LIMIT = 3\n\n\ndef cleaned(text):\n    return text.strip()\n",
    "lone_late.py": "def later(text):\n    return text.lower()\n",
    "lone_text/__init__.py": "",
    "lone_text/rules.py": "def strict(text):\n    return text\n",
}


@pytest.fixture
def lone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Code]]:
    """Loads modules of one folder anew, some of their text replaced; returns the fingerprint."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(path: str = "", old: str = "", new: str = "", below: str = ".") -> Code:
        assert not path or old in LONE[path]
        folder = tmp_path / below
        write(folder, LONE | ({path: LONE[path].replace(old, new)} if path else {}))
        for name in LONE:
            forget(name.removesuffix(".py").partition("/")[0])
        with monkeypatch.context() as paths:
            paths.syspath_prepend(str(folder))
            return fingerprint(importlib.import_module("lone_count").count)

    yield load
    for name in LONE:
        forget(name.removesuffix(".py").partition("/")[0])


@pytest.mark.parametrize(
    ("path", "old", "new", "told"),
    [
        ("lone_helper.py", "strip", "rstrip", "lone_helper.cleaned"),
        ("lone_helper.py", "LIMIT = 3", "LIMIT = 4", "lone_count.LIMIT"),
        ("lone_late.py", "lower", "upper", "lone_late.later"),
        ("lone_text/rules.py", "return text", "return text * 2", "lone_text.rules.strict"),
    ],
)
def test_what_lies_beside_a_module_is_its_author_s_too(
    lone: Callable[..., Code], path: str, old: str, new: str, told: str
) -> None:
    """An edit of a module of the same folder is reported like one of the same package."""
    (difference,) = lone().differences(lone(path, old, new))
    assert told in difference
    assert modules_of(sys.modules["lone_count"].count) >= {"lone_count", "lone_helper"}


def test_in_a_folder_of_all_packages_a_distribution_is_an_author_s(
    lone: Callable[..., Code], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module there belongs to those that were installed with it, and to no others."""
    owners = {"lone_count": ["mine"], "lone_helper": ["mine"], "lone_late": ["theirs"]}
    monkeypatch.setattr("cbp.model.author.sibling_packages._of_all", lambda: owners)
    load = functools.partial(lone, below="site-packages")
    before = load()
    assert list(before.differences(load("lone_helper.py", "strip", "rstrip")))
    assert not list(before.differences(load("lone_late.py", "lower", "upper")))
    assert not list(before.differences(load("lone_text/rules.py", "text\n", "text * 2\n")))


class Declares:
    """Declarations as the first releases had them."""

    urls = Input("url STRING", route_by="url")
    counts = State("url STRING, n BIGINT")
    totals = Output("url STRING, n BIGINT", key="url")


def test_an_option_of_a_later_release_counts_once_it_is_used() -> None:
    """What was registered before a declaration got more options does not drift by an upgrade."""
    (digest,) = fingerprint(Declares).parts.values()
    assert digest == "5bd6637f404672b1"

    class Emits:
        counts = State("url STRING, n BIGINT")

    class Keeps:
        counts = State("url STRING, n BIGINT", keep=True, key="url, n")

    (emits,), (keeps,) = (fingerprint(each).parts.values() for each in (Emits, Keeps))
    assert emits != keeps
