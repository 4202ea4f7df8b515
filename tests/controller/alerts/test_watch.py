"""The watch: what is wrong reaches every channel that works, and later those that did not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from structlog.testing import capture_logs

from controller.alerts.conditions import DataflowHealth
from controller.alerts.notices import AlertLimits, Notice
from controller.alerts.watch import UNSENT_MAX, AlertWatch
from tests.controller.world import SettableClock


@dataclass
class Recorder:
    """A channel that keeps what it is given, or fails."""

    name: str
    fails: bool = False
    notices: list[tuple[str, str]] = field(default_factory=list)

    def send(self, notices: Sequence[Notice]) -> None:
        if self.fails:
            raise OSError("unplugged")
        self.notices += [(notice.status, notice.alert.key) for notice in notices]


class World:
    def __init__(self) -> None:
        self.healths: list[DataflowHealth] = []
        self.leads = True
        self.clock = SettableClock()
        self.hook, self.mail = Recorder("hook"), Recorder("mail")
        self.watch = AlertWatch(
            health=lambda: self.healths,
            leads=lambda: self.leads,
            channels=[self.hook, self.mail],
            limits=AlertLimits(),
            clock=self.clock,
        )


STOPPED = DataflowHealth("a", "stopped", "a bug")


def test_an_alert_reaches_every_channel_once():
    """The second look has nothing new; the end is sent once."""
    world = World()
    world.healths = [STOPPED]
    world.watch.look()
    world.watch.look()
    world.healths = []
    world.watch.look()
    expected = [("firing", "stopped:a"), ("resolved", "stopped:a")]
    assert world.hook.notices == world.mail.notices == expected


def test_a_channel_that_fails_gets_its_notices_later_and_stops_no_other():
    """In their order, and each once."""
    world = World()
    world.healths, world.hook.fails = [STOPPED], True
    world.watch.look()
    assert world.mail.notices == [("firing", "stopped:a")]
    assert world.watch.deliveries()[1].error == "OSError: unplugged"
    world.healths, world.hook.fails = [], False
    world.watch.look()
    assert world.hook.notices == world.mail.notices
    assert world.hook.notices == [("firing", "stopped:a"), ("resolved", "stopped:a")]


def test_an_instance_that_follows_sends_nothing():
    """Once it leads it sends what holds then."""
    world = World()
    world.healths, world.leads = [STOPPED], False
    world.watch.look()
    assert not world.hook.notices
    assert not world.watch.standing()
    world.leads = True
    world.watch.look()
    assert world.hook.notices == [("firing", "stopped:a")]


def test_what_an_earlier_lead_could_not_send_is_not_sent_in_the_next():
    """Another instance led in between: only what holds now is news."""
    world = World()
    world.healths, world.hook.fails = [STOPPED], True
    world.watch.look()
    world.leads = False
    world.watch.look()
    world.healths, world.leads, world.hook.fails = [], True, False
    world.watch.look()
    assert not world.hook.notices


def test_notices_that_are_dropped_are_counted_in_the_log():
    """A channel that fails for long keeps the newest ones."""
    world = World()
    world.healths, world.hook.fails = [], True
    with capture_logs() as entries:
        for number in range(UNSENT_MAX + 2):
            world.healths = [replace(STOPPED, dataflow=f"d{n}") for n in range(number + 1)]
            world.watch.look()
    dropped = [one["count"] for one in entries if one["event"] == "alerts.dropped"]
    assert dropped == [1, 1]


def test_without_a_channel_what_is_wrong_is_listed_and_nothing_counts_as_sent():
    """It holds since the first look, however late it is asked for."""
    world = World()
    world.watch.channels = ()
    world.healths = [STOPPED]
    first = world.clock()
    world.watch.look()
    world.clock.advance(3600)
    world.watch.look()
    (one,) = world.watch.standing()
    assert (one.alert.key, one.since, one.sent_at) == ("stopped:a", first, None)


def test_the_list_is_of_now_and_sends_nothing():
    """Neither what began since the last look is missing, nor what ended is listed."""
    world = World()
    world.healths = [STOPPED]
    assert [one.alert.key for one in world.watch.standing()] == ["stopped:a"]
    assert not world.hook.notices
    world.watch.look()
    world.healths = []
    assert not world.watch.standing()


def test_the_test_says_for_each_channel_what_became_of_it():
    """It is sent whether or not something is wrong, and by an instance that follows too."""
    world = World()
    world.leads, world.mail.fails = False, True
    outcomes = {delivery.channel: delivery.error for delivery in world.watch.test()}
    assert outcomes == {"hook": None, "mail": "OSError: unplugged"}
    assert world.hook.notices == [("test", "test")]
    assert [delivery.channel for delivery in world.watch.deliveries()] == ["mail", "hook"]


def test_health_that_cannot_be_read_ends_no_watch():
    """`look` raises, so that the thread logs it; the next look goes on with the same book."""
    world = World()
    world.healths = [STOPPED]
    world.watch.look()

    def unreadable() -> list[DataflowHealth]:
        raise ConnectionError

    world.watch._health = unreadable
    with pytest.raises(ConnectionError):
        world.watch.look()
    world.watch._health = lambda: [STOPPED]
    world.watch.look()
    assert world.hook.notices == [("firing", "stopped:a")]
