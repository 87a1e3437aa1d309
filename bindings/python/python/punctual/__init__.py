"""Messages between components, processes and hosts in microseconds, each late one explained.

docs/python.md says how each part is used.
"""

from ._punctual import (
    Bus,
    BufferTooSmall,
    Busy,
    Closed,
    Communicator,
    Due,
    Empty,
    Error,
    Full,
    Message,
    Node,
    Publication,
    Publisher,
    Response,
    Subscriber,
    Subscription,
    Target,
    TooLong,
    Topic,
    Unreachable,
    __version__,
    read_all,
)
from .runs import Run, read_run

__all__ = [
    "Bus",
    "BufferTooSmall",
    "Busy",
    "Closed",
    "Communicator",
    "Due",
    "EVERYONE",
    "Empty",
    "Error",
    "Full",
    "Message",
    "Node",
    "Publication",
    "Publisher",
    "Response",
    "Run",
    "Subscriber",
    "Subscription",
    "Target",
    "TooLong",
    "Topic",
    "Unreachable",
    "__version__",
    "read_all",
    "read_run",
]

#: Every port of every node on the bus, but the sender itself.
EVERYONE = Target()
