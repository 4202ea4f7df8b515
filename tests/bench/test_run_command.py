"""The command `python -m tests.bench` hands on what was asked for."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

import tests.bench
from tests.bench import BenchOptions
from tests.bench.__main__ import main
from tests.bench.options import CANDIDATES, OURS
from tests.bench.run_command import Against


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[BenchOptions]:
    """Collect the options instead of measuring."""
    actual: list[BenchOptions] = []
    monkeypatch.setattr(tests.bench, "run_bench", actual.append)
    return actual


def call(*arguments: str) -> Any:
    """Call the command; return the status of the process."""
    with pytest.raises(SystemExit) as ended:
        main(["run", *arguments])
    return ended.value.code


def test_lists_come_with_commas_or_repeated(asked: list[BenchOptions]) -> None:
    """Several sizes and peers may be given either way."""
    arguments = "--state-keys 1000,2_000 --state-keys 1e4 --increment 10 --against merge,duckdb"
    assert call("url-count", *arguments.split()) == 0
    (options,) = asked
    assert options.state_keys == (1000, 2000, 10_000)
    assert options.increment == (10,)
    assert options.against == ("merge", "duckdb")


def test_hit_rates_ask_for_distinct_keys(asked: list[BenchOptions]) -> None:
    """Shares of the state need no further option."""
    assert call("url-count", "--hit-rates", "0.0001,0.5", "--against", "scan", "--age", "3") == 0
    (options,) = asked
    options.check()
    assert (options.hit_rates, options.keys, options.age) == ((0.0001, 0.5), "distinct", 3)


@pytest.mark.parametrize(
    ("arguments", "peers"),
    [
        (["url-count"], ("jobs", "streaming", "duckdb", "polars")),
        (["crawl-queue"], ("blackbox",)),
        (["clustering"], ("plain", "blackbox", "scratch", "warm")),
        (["pagerank"], ("broadcast", "paper", "scratch", "warm")),
        (["url-count", "--soak"], ()),
        (["url-count", "--against", ""], ()),
    ],
)
def test_peers_by_default_are_those_that_can_run(
    asked: list[BenchOptions], arguments: list[str], peers: tuple[str, ...]
) -> None:
    """Without `--against` nothing is chosen that would be refused."""
    assert call(*arguments) == 0
    assert asked[0].against == peers
    asked[0].check()


def test_a_graph_is_sized_in_nodes_and_links(asked: list[BenchOptions]) -> None:
    """The same options under the names that graphs have."""
    arguments = "--nodes 1000,2000 --edges 9000 --changed 5 --threshold 0.1 --against ''"
    assert call("pagerank", *arguments.replace("''", ",").split()) == 0
    (options,) = asked
    options.check()
    assert (options.state_keys, options.increment) == ((1000, 2000), (5,))
    assert (options.edges, options.threshold, options.against) == (9000, 0.1, ())


def test_a_size_that_is_no_number_is_a_wrong_call(
    asked: list[BenchOptions], capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with status 2 and names the option."""
    assert call("url-count", "--state-keys", "many") == 2
    assert "--state-keys" in capsys.readouterr().err
    assert asked == []


def test_a_refusal_ends_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    """It is reported like every other error of the product."""
    assert call("url-count", "--form", "cobol") == 1
    assert "bench_refused" in capsys.readouterr().err


def test_the_help_names_every_candidate() -> None:
    """The message lists what can be chosen; ours takes part anyway."""
    _, option = get_args(Against)
    told = str(option.help)
    assert {*CANDIDATES} - {OURS} - {*re.findall(r"[a-z-]+", told)} == set()
