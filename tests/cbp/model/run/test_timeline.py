"""The timeline of a run, made of the beginnings of its phases."""

from __future__ import annotations

from cbp.model.run.timeline import Phase, begin_figures, is_begin, timeline


def test_a_phase_ends_where_the_next_one_begins() -> None:
    """The last one ends with the run, or lasts while the run goes on."""
    figures = begin_figures([("start", 0.0), ("plan", 0.5), ("job", 0.75)])
    assert timeline({"groups": 3.0, **figures}, 2.0) == (
        Phase("start", 0.0, 0.5),
        Phase("plan", 0.5, 0.75),
        Phase("job", 0.75, 2.0),
    )
    assert timeline(figures, None)[-1] == Phase("job", 0.75, None)


def test_a_phase_that_goes_on_is_recorded_once_and_one_that_comes_again_twice() -> None:
    """Fused stages go through their phases again; more than ten phases keep their order."""
    names = ["start", "plan", "plan", "job", *["plan", "job"] * 5]
    figures = begin_figures([(name, float(n)) for n, name in enumerate(names)])
    assert [phase.name for phase in timeline(figures, 99.0)] == [
        "start", "plan", "job", *["plan", "job"] * 5
    ]  # fmt: skip
    assert [phase.begin for phase in timeline(figures, 99.0)][:4] == [0.0, 1.0, 3.0, 4.0]


def test_figures_of_an_earlier_release_have_no_phases() -> None:
    """Seconds and counts are no beginnings."""
    assert timeline({"seconds_job": 1.0, "tasks": 2.0}, 3.0) == ()
    assert not is_begin("bytes_written")
