"""Processes that answer reads over REST, each with an interpreter of its own.

    client -- connection --> service process -- passes it --> reader
                                  ^                             |
                                  '-- passes it back, unread ---'   (what the reader does not serve)

- `channel`: messages between the service and a reader; a message can carry a connection
- `protocols`: what each side does with a connection; which requests a reader serves
- `supervisor`: starts readers, and restarts those that end
- `reader_process`: the main program of a reader

The service process can serve everything itself, and does so while no reader is ready.
"""
