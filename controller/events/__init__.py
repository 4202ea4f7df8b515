"""Events as they are followed: one reader of the store per instance, any number of clients."""

from controller.events.feed import (
    EventFeed,
    EventsGoneError,
    EventStreamsExhaustedError,
    FeedLimits,
)

__all__ = ["EventFeed", "EventStreamsExhaustedError", "EventsGoneError", "FeedLimits"]
