"""What an author's class compiles to, and what is found wrong with it."""

from __future__ import annotations

import importlib
import inspect
import linecache
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cbp import (
    Aggregate,
    Decision,
    Input,
    Loopback,
    Output,
    RunAny,
    State,
    Translate,
    TranslateArrow,
    TranslateRecords,
    by,
    route,
)
from cbp.errors import DefinitionError, Mistake
from cbp.model.dataflow.stage import Computed
from cbp.model.flow.schema import DataType
from cbp.sdk.declare import place_of, place_of_attribute

THIS = Path(__file__).name
URLS = Input("url STRING, n INT", route_by="url")


def groupwise(**attributes: Any) -> Translate:
    """Make a translator with these declarations."""
    body = {"translate": lambda self, key, group, out: None, **attributes}
    made: Translate = type("Made", (Translate,), body)()
    return made


def record_wise(**attributes: Any) -> TranslateRecords:
    body = {"translate": lambda self, record, out: None, **attributes}
    made: TranslateRecords = type("Made", (TranslateRecords,), body)()
    return made


def vectorised(**attributes: Any) -> TranslateArrow:
    body = {"translate": lambda self, groups, out: None, **attributes}
    made: TranslateArrow = type("Made", (TranslateArrow,), body)()
    return made


def mistake_of(translator: Translate | TranslateRecords | TranslateArrow) -> Mistake:
    with pytest.raises(DefinitionError) as caught:
        translator.spec()
    return caught.value.mistake


class UrlCount(Translate):
    urls = Input("url STRING", route_by="url", order_by="url")
    counts = State("url STRING, n BIGINT", grouping="outer")
    totals = Output("url STRING, n BIGINT", key="url", history=True)

    def translate(self, key: Any, group: Any, out: Any) -> None:
        """Emit nothing."""


def test_a_class_compiles_to_plain_values() -> None:
    """Everything declared is in the specification, in order, with the author's place."""
    spec = UrlCount().spec()
    assert (spec.name, str(spec.key), spec.record_wise) == ("UrlCount", "url STRING", False)
    assert spec.input("urls").route_by == ("url",)
    assert spec.input("urls").order_by == ("url",)
    assert (spec.output("totals").key, spec.output("totals").history) == (("url",), True)
    assert spec.state("counts").grouping == "outer"
    line = UrlCount.translate.__code__.co_firstlineno
    assert spec.place.endswith(f"{THIS}:{line}")


def test_a_rule_or_a_method_says_when_it_runs() -> None:
    """Both compile to the same shape, each with the author's place; without, it is RunAll."""
    assert groupwise(urls=URLS).spec().runnable.default
    ruled = groupwise(urls=URLS, runnable=RunAny()).spec().runnable
    assert (ruled.function, ruled.name, ruled.default) == (RunAny(), "RunAny", False)
    made = groupwise(urls=URLS, runnable=lambda self, connectors, memo: Decision(memo=memo))
    spec = made.spec().runnable
    assert spec.function({}, 7) == Decision(memo=7)
    assert spec.place.partition(":")[0].endswith(THIS)
    assert mistake_of(groupwise(urls=URLS, runnable=RunAny)).code == "runnable_invalid"


def test_declarations_keep_their_order_and_the_instance_comes_last() -> None:
    """Base class, class, then what `__init__` sets; a redeclared name is replaced."""

    class Narrow(UrlCount):
        more = Output("n INT")

        def __init__(self) -> None:
            self.totals = Output("n INT")
            self.late = Output("n INT")

    spec = Narrow().spec()
    assert [output.name for output in spec.outputs] == ["totals", "more", "late"]
    assert str(spec.output("totals").schema) == "n INT"


def test_the_key_may_be_declared() -> None:
    """Computed routing needs `key`; its names are what the author sees."""
    spec = groupwise(
        key="site STRING",
        urls=Input("url STRING", route_by=by(lambda r: r.url[:1], "STRING")),
        links=Input("host STRING", route_by="host"),
    ).spec()
    assert spec.key is not None
    assert spec.key.names == ("site",)
    assert isinstance(spec.input("urls").route_by, Computed)


def test_a_state_says_by_which_columns_it_is_kept_and_in_which_order() -> None:
    """Columns of the key's types, in its order; without, or by the key's names, nothing is said."""
    spec = groupwise(
        pairs=Input("a INT, b STRING", route_by="a, b"),
        usual=State("b STRING, a INT"),
        named=State("a INT, b STRING", route_by="a, b", not_compared=None),
        other=State(
            "a STRING, b STRING, x DOUBLE, n ARRAY<INT>, k INT", route_by="k, b", order_by="x"
        ),
    ).spec()
    usual, named, other = spec.states
    assert (usual.route_by, named.route_by) == (None, None)
    assert spec.key_of(usual) == spec.key_of(named) == spec.key
    assert usual.order == ("b", "a")
    assert str(spec.key_of(other)) == "k INT, b STRING"
    assert other.order == ("x", "a", "b", "k")


def test_by_takes_several_types() -> None:
    """A key of several columns is a tuple; commas inside a type do not separate."""
    computed = by(lambda r: (1, 2), "BIGINT, DECIMAL(10,2)")
    assert computed.types == (DataType("BIGINT"), DataType("DECIMAL", precision=10, scale=2))
    assert THIS in computed.place


def test_a_loopback_is_an_input_and_an_output() -> None:
    """Both have its name and schema; addresses need a loopback with `route`."""
    mail = Loopback("url STRING, n INT", route_by=route(lambda m: [m.url], "STRING"), order_by="n")
    spec = groupwise(urls=URLS, mail=mail).spec()
    assert spec.loopbacks == (spec.input("mail"),)
    assert spec.output("mail").schema == spec.input("mail").schema
    assert spec.input("mail").order_by == ("n",)
    assert spec.multicasts
    assert spec.runnable.function == RunAny()
    assert not groupwise(urls=URLS, mail=Loopback("url STRING", route_by="url")).spec().multicasts


def test_a_record_wise_class_has_no_key() -> None:
    """It is called per record."""
    spec = record_wise(lines=Input("text STRING"), words=Output("word STRING")).spec()
    assert spec.record_wise
    assert spec.key is None


def test_a_record_is_its_own_group_unless_its_input_says_otherwise() -> None:
    """Without any route_by there is no key; beside one, it is that input's."""
    alone = groupwise(a=Input("t STRING"), b=Input("n INT"), mail=Loopback("n INT")).spec()
    assert (alone.record_wise, alone.key, alone.parts()) == (True, None, (alone,))
    assert alone.runnable.function == RunAny()
    mixed = groupwise(a=Input("t STRING"), urls=URLS, kept=State("url STRING")).spec()
    assert (mixed.record_wise, str(mixed.key)) == (False, "url STRING")
    groups, records = mixed.parts()
    assert (groups.inputs, groups.absent) == (mixed.inputs[1:], mixed.inputs[:1])
    assert (records.inputs, records.absent) == (mixed.inputs[:1], mixed.inputs[1:])
    assert (groups.record_wise, records.record_wise) == (False, True)


@pytest.mark.parametrize(
    ("translator", "rule", "where", "says"),
    [
        (groupwise(), "input_missing", "Made", "at least one Input"),
        (groupwise(Urls=URLS), "name_invalid", "Made.Urls", "a-z"),
        (groupwise(urls=Input("url VARIANT", route_by="url")), "type_unknown", "Made.urls", "VARI"),
        (
            groupwise(urls=Input("url STRING"), kept=State("url STRING")),
            "route_by_missing",
            "Made.kept",
            "a state belongs to groups",
        ),
        (groupwise(key="a INT", urls=Input("a INT")), "route_by_missing", "Made.key", "'a INT'"),
        (groupwise(key=("url",), urls=URLS), "schema_invalid", "Made.key", "must be DDL text"),
        (
            groupwise(urls=URLS, totals=Output("n DOUBLE", tolerance="1e-6")),  # type: ignore[arg-type]
            "tolerance_invalid",
            "Made.totals",
            "give a number",
        ),
        (vectorised(urls=URLS, more=Input("a INT")), "route_by_missing", "Made.more", "groups"),
        (
            groupwise(urls=Input("url STRING", route_by="u")),
            "route_by_unknown",
            "Made.urls",
            "no column 'u'; use url",
        ),
        (
            groupwise(urls=Input("url STRING", route_by="url", order_by="url, t")),
            "order_by_unknown",
            "Made.urls",
            "no column 't'",
        ),
        (
            groupwise(urls=Input("url STRING", route_by=["url"])),  # type: ignore[arg-type]
            "route_by_invalid",
            "Made.urls",
            "or let a function compute the value",
        ),
        (
            groupwise(urls=Input("url STRING", route_by="url", order_by=5)),  # type: ignore[arg-type]
            "order_by_invalid",
            "Made.urls",
            "or let a function compute the value",
        ),
        (
            groupwise(urls=Input("url STRING", route_by=by(lambda r: r.url, "STRING"))),
            "key_missing",
            "Made.key",
            'key = "site STRING"',
        ),
        (groupwise(key="a VARIANT", urls=URLS), "type_unknown", "Made.key", "VARIANT"),
        (groupwise(key="a INT", urls=URLS), "route_by_type", "Made.urls", "(STRING)"),
        (
            groupwise(urls=URLS, more=Input("a INT", route_by="a")),
            "route_by_type",
            "Made.more",
            "route_by gives (INT), but the key is (url STRING)",
        ),
        (
            groupwise(urls=Input("a ARRAY<INT>", route_by="a")),
            "key_type",
            "Made.a",
            "cannot be ARRAY<INT>",
        ),
        (
            groupwise(urls=URLS, totals=Output("n INT", key="url")),
            "key_unknown",
            "Made.totals",
            "no column 'url'; use n",
        ),
        (
            groupwise(urls=URLS, totals=Output("n INT", key=("n",))),  # type: ignore[arg-type]
            "key_invalid",
            "Made.totals",
            "key takes",
        ),
        (
            groupwise(urls=URLS, kept=State("n INT")),
            "state_key_missing",
            "Made.kept",
            "'url STRING', but has 'n INT'",
        ),
        (
            groupwise(urls=URLS, kept=State("url INT")),
            "state_key_missing",
            "Made.kept",
            "'url STRING', but has 'url INT'",
        ),
        (
            groupwise(urls=URLS, kept=State("url STRING", grouping="left")),  # type: ignore[arg-type]
            "grouping_unknown",
            "Made.kept",
            "'inner' or 'outer'",
        ),
        (
            groupwise(urls=URLS, o=Output("url STRING, x FLOAT", tolerance=-0.1)),
            "tolerance_invalid",
            "Made.o",
            "at least 0 and below 1",
        ),
        (
            groupwise(urls=URLS, o=Output("x FLOAT, n INT", not_compared="x", tolerance=0.1)),
            "tolerance_invalid",
            "Made.o",
            "no compared column",
        ),
        (
            groupwise(urls=URLS, kept=State("url STRING, n INT", not_compared="m")),
            "not_compared_unknown",
            "Made.kept",
            "no column 'm'",
        ),
        (
            groupwise(urls=URLS, kept=State("url STRING, n INT", not_compared="url")),
            "not_compared_invalid",
            "Made.kept",
            "of the key",
        ),
        (
            groupwise(
                urls=URLS,
                o=Output("n INT", not_compared=by(lambda r: r.n, "INT")),  # type: ignore[arg-type]
            ),
            "not_compared_invalid",
            "Made.o",
            "names of columns",
        ),
        (
            groupwise(urls=URLS, kept=State("page STRING", route_by="url")),
            "route_by_unknown",
            "Made.kept",
            "no column 'url'; use page",
        ),
        (
            groupwise(urls=URLS, kept=State("page INT", route_by="page")),
            "route_by_type",
            "Made.kept",
            "route_by gives (INT), but the key is (url STRING)",
        ),
        (
            groupwise(urls=URLS, kept=State("page STRING, n STRING", route_by="page, n")),
            "route_by_type",
            "Made.kept",
            "route_by gives (STRING, STRING)",
        ),
        (
            groupwise(
                pairs=Input("a INT, b INT", route_by="a, b"),
                kept=State("a INT, b INT", route_by="a, a"),
            ),
            "route_by_invalid",
            "Made.kept",
            "names a column twice",
        ),
        (
            groupwise(
                urls=URLS,
                kept=State("page STRING", route_by=by(lambda r: r.page, "STRING")),  # type: ignore[arg-type]
            ),
            "route_by_invalid",
            "Made.kept",
            "store a computed value in a column",
        ),
        (
            groupwise(urls=URLS, kept=State("url STRING", order_by="n")),
            "order_by_unknown",
            "Made.kept",
            "no column 'n'",
        ),
        (
            groupwise(
                urls=URLS,
                kept=State("url STRING", order_by=by(lambda r: r.url, "STRING")),  # type: ignore[arg-type]
            ),
            "order_by_invalid",
            "Made.kept",
            "store a computed value in a column",
        ),
        (
            groupwise(urls=URLS, kept=State("url STRING, m MAP<INT, INT>", order_by="m")),
            "order_by_type",
            "Made.kept",
            "MAP<INT, INT>, which has no order",
        ),
        (
            record_wise(a=Input("t STRING"), b=Input("t STRING")),
            "record_wise_shape",
            "Made",
            "For several inputs derive from Translate",
        ),
        (record_wise(a=URLS), "record_wise_shape", "Made", "without route_by"),
        (
            record_wise(a=Input("t STRING"), kept=State("t STRING")),
            "record_wise_shape",
            "Made",
            "derive from Translate",
        ),
        (
            record_wise(a=Input("t STRING"), moved=Aggregate("sum")),
            "record_wise_shape",
            "Made.moved",
            "derive from Translate",
        ),
        (record_wise(words=Output("t STRING")), "input_missing", "Made", "Input"),
        (
            record_wise(a=Input("t STRING"), mail=Loopback("t STRING")),
            "record_wise_shape",
            "Made",
            "derive from Translate",
        ),
        (groupwise(mail=Loopback("t STRING", route_by="t")), "input_missing", "Made", "Input"),
        (
            groupwise(urls=URLS, associate=Output("t INT")),
            "name_invalid",
            "Made.associate",
            "reserved",
        ),
        (
            groupwise(urls=Input("u INT", route_by="u", order_by=route(lambda r: r.u, "INT"))),
            "order_by_invalid",
            "Made.urls",
            "use by(...)",
        ),
    ],
)
def test_each_mistake_names_rule_attribute_and_way_out(
    translator: Translate | TranslateRecords | TranslateArrow, rule: str, where: str, says: str
) -> None:
    """A wrong declaration is found without data: which rule, where, and what to do."""
    mistake = mistake_of(translator)
    assert (mistake.code, mistake.where) == (rule, where)
    assert says in mistake.message


def test_a_mistake_names_the_authors_file_and_line() -> None:
    """The place is where the attribute is set."""

    class Broken(Translate):
        urls = Input("url STRING", route_by="u")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            """Emit nothing."""

    line = Broken.translate.__code__.co_firstlineno - 2
    assert mistake_of(Broken()).place.endswith(f"{THIS}:{line}")


def test_a_tolerance_may_be_any_number() -> None:
    """As in earlier releases, whose dataflows open: a decimal, for example."""
    exact = Decimal("1e-6")
    totals = Output("n DOUBLE", tolerance=exact)  # type: ignore[arg-type]
    assert groupwise(urls=URLS, totals=totals).spec().outputs[0].tolerance == exact


def test_a_class_whose_file_was_changed_is_still_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the place of a mistake needs the file, which an editor may have left half written."""
    file = tmp_path / "half_written.py"
    file.write_text("class Half:\n    urls = None\n")
    monkeypatch.syspath_prepend(tmp_path)
    half = importlib.import_module("half_written").Half
    file.write_text("class Half(\n")
    linecache.checkcache(str(file))
    assert (place_of(half), place_of_attribute(half, "urls")) == ("", "")


def test_a_mistake_in_what_only_our_base_class_sets_names_the_authors_file() -> None:
    """The author who must add `key` is not sent to a line of the SDK."""

    class Keyless(Translate):
        urls = Input("url STRING", route_by=by(lambda row: row.url, "STRING"))
        out = Output("url STRING")

        def translate(self, key: Any, group: Any, out: Any) -> None: ...

    mistake = mistake_of(Keyless())
    assert mistake.code == "key_missing"
    assert mistake.place.partition(":")[0].endswith(THIS)


def test_an_unknown_type_of_a_computed_key_is_found_at_once() -> None:
    """`by` checks its types when it is called."""
    with pytest.raises(DefinitionError, match="'VARIANT' is not a type"):
        by(lambda r: r, "VARIANT")


def test_a_typing_mistake_in_a_schema_is_told_with_its_line() -> None:
    """That of the attribute, also where a base class or `__init__` sets it."""

    class Wrong(Translate):
        urls = Input("url STRNG", route_by="url")

        def translate(self, key: Any, group: Any, out: Any) -> None:
            """Never called here."""

    class Derived(Wrong):
        """Has it from its base."""

    _, line = inspect.getsourcelines(Wrong)
    for class_ in (Wrong, Derived):
        assert mistake_of(class_()).place.endswith(f"{THIS}:{line + 1}")
