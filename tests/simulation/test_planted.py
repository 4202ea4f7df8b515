"""What the simulator is worth: it must find each of the planted faults."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.sampling import sampled
from tests.simulation import operations, plan, planting
from tests.simulation.bench import Bench
from tests.simulation.faults_planted import (
    BUILDS,
    CRASHES,
    EVERY,
    KNOWN_SEEDS,
    LOSSES,
    OPERATIONS,
    REPLACEMENTS,
    VIEWS,
    due_times_of_others_are_forgotten,
    later_records_overtake,
    leases_are_not_asked,
    neither_leases_nor_epochs_are_asked,
    priorities_are_not_brought,
    records_outlive_their_age,
    terms_never_end,
    what_is_given_back_stays,
)
from tests.simulation.planting import SEEDS_MAX, Plant


def finding_seed(
    bench: Bench, plant: Plant, *, power: bool = False, seeds: int = SEEDS_MAX
) -> int | None:
    """Return a seed that finds a planted fault, the known one first; `None` if none does."""
    first = KNOWN_SEEDS.get(plant, 0)
    return planting.finding_seed(bench, plant, first=first, power=power, seeds=seeds)


def is_found(bench: Bench, plant: Plant, *, power: bool = False) -> bool:
    """Tell whether any seed finds a planted fault."""
    return finding_seed(bench, plant, power=power) is not None


class _Fitting:
    """Plants nothing: checks that what a fault replaces is there, and is called in the same way."""

    def setattr(self, target: Any, name: Any, value: Any = None, raising: bool = True) -> None:
        original = getattr(target, name)
        if not (inspect.isfunction(original) and inspect.isfunction(value)):
            return
        parameters = inspect.signature(original).parameters.values()
        given = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
        named = {one.name: None for one in parameters if one.kind is one.KEYWORD_ONLY}
        inspect.signature(value).bind(*given, **named)


@pytest.mark.parametrize("plant", EVERY, ids=lambda p: p.__name__)
def test_a_fault_fits_the_code_that_it_replaces(plant: Plant) -> None:
    """Else it proves nothing: each is played rarely, and names what is internal."""
    patch: Any = _Fitting()
    plant(patch)


@pytest.mark.parametrize("plant", sampled(CRASHES, every=6, first=2), ids=lambda p: p.__name__)
def test_a_planted_fault_is_found(bench: Bench, plant: Plant) -> None:
    """Crashes, errors and repetitions of few seeds bring it to light."""
    assert is_found(bench, plant), f"{SEEDS_MAX} seeds did not find it"


@pytest.mark.parametrize("plant", sampled(OPERATIONS, every=8), ids=lambda p: p.__name__)
def test_a_fault_in_an_operation_is_found(
    bench: Bench, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is one in what operators do; here all of them do something."""
    monkeypatch.setattr(plan, "OPERATED_SHARE", 1.0)
    assert is_found(bench, plant), f"{SEEDS_MAX} seeds did not find it"


@pytest.mark.soak
def test_only_the_fence_stops_a_leader_that_does_not_know_that_it_was_deposed(
    bench: Bench,
) -> None:
    """By a lease that nobody asks nothing comes to harm, unless the store's fence is gone too.

    What a zombie commits behind the back of its successor is missing in the successor's memory.
    """
    seed = finding_seed(bench, neither_leases_nor_epochs_are_asked)
    assert seed is not None, f"{SEEDS_MAX} seeds did not find it"
    passed = finding_seed(bench, leases_are_not_asked, seeds=max(seed + 1, 12))
    assert passed is None, "the fence let it pass"


@pytest.mark.part(every=3)
@pytest.mark.parametrize(
    ("verb", "effect"),
    [("change", "description"), ("back", "generation"), ("close", "punctuation")],
)
def test_what_a_term_that_ended_puts_is_found(
    bench: Bench, verb: str, effect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version, a roll-back or a close that comes behind a take-over does harm."""
    monkeypatch.setattr(plan, "OPERATED_SHARE", 1.0)
    monkeypatch.setattr(plan, "STALLS", {verb: (f"{effect}.before",)})
    monkeypatch.setattr(operations, "MIXES", ((verb,),))
    assert is_found(bench, terms_never_end), f"{SEEDS_MAX} seeds did not find it"


def test_a_priority_that_no_recovery_brings_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store says something else than the file, once it was lost or a death came between."""
    monkeypatch.setattr(plan, "PRIORITIZED_SHARE", 1.0)
    assert is_found(bench, priorities_are_not_brought), f"{SEEDS_MAX} seeds did not find it"


def test_a_timer_that_does_not_fire_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that sets a timer forgets when the others are due."""
    monkeypatch.setattr(plan, "TIMED_SHARE", 1.0)
    assert is_found(bench, due_times_of_others_are_forgotten), f"{SEEDS_MAX} seeds did not find it"


def test_a_record_that_does_not_expire_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replay forgets what was silent for the age."""
    monkeypatch.setattr(plan, "TIMED_SHARE", 1.0)
    assert is_found(bench, records_outlive_their_age), f"{SEEDS_MAX} seeds did not find it"


@pytest.mark.parametrize("plant", sampled(VIEWS, every=2), ids=lambda p: p.__name__)
def test_a_fault_of_views_is_found(
    bench: Bench, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is one in the changes of views, with records that are kept and those given anew."""
    monkeypatch.setattr(plan, "VIEWED_SHARE", 1.0)
    assert is_found(bench, plant), f"{SEEDS_MAX} seeds did not find it"


@pytest.mark.parametrize("plant", sampled(REPLACEMENTS, every=3), ids=lambda p: p.__name__)
def test_a_fault_of_replacements_is_found(
    bench: Bench, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is taken back counts no longer, and everything else still does."""
    monkeypatch.setattr(plan, "REPLACED_SHARE", 1.0)
    assert is_found(bench, plant), f"{SEEDS_MAX} seeds did not find it"


@pytest.mark.parametrize("plant", sampled(BUILDS, every=2), ids=lambda p: p.__name__)
def test_a_fault_of_builds_is_found(
    bench: Bench, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is one in tables that are built beside, and in what a death leaves of a build."""
    monkeypatch.setattr(plan, "REPLACED_SHARE", 1.0)
    monkeypatch.setattr(plan, "BUILT_OF_REPLACED", 1.0)
    assert is_found(bench, plant), f"{SEEDS_MAX} seeds did not find it"


@pytest.mark.soak
@pytest.mark.parametrize(
    "plant", [later_records_overtake, what_is_given_back_stays], ids=lambda p: p.__name__
)
def test_a_fault_of_what_is_set_aside_is_found(
    bench: Bench, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is one in the order of what waits, and in what an epoch gives back."""
    monkeypatch.setattr(plan, "ASIDE_SHARE", 1.0)
    assert is_found(bench, plant), f"{SEEDS_MAX} seeds did not find it"


@pytest.mark.parametrize("plant", sampled(LOSSES, every=2), ids=lambda p: p.__name__)
def test_a_missing_sync_is_found(bench: Bench, plant: Plant) -> None:
    """A loss of power brings to light what was acknowledged and not durable."""
    assert is_found(bench, plant, power=True), f"{SEEDS_MAX} seeds did not find it"
