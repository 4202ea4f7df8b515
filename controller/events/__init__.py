"""Events as they are followed: one reader of the store per instance, any number of clients."""

from controller.events.errors import EventsGoneError, EventStreamsExhaustedError
from controller.events.feed import EventFeed, FeedLimits

__all__ = ["EventFeed", "EventStreamsExhaustedError", "EventsGoneError", "FeedLimits"]
