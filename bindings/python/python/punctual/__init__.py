"""Messages between components, processes and hosts in microseconds, each late one explained.

docs/python.md says how each part is used.
"""

import sys as _sys

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

# Buffers are read and written under the lock. Loading the module turns that on, unless the interpreter was told to do without.
if not getattr(_sys, "_is_gil_enabled", lambda: True)():
    raise ImportError("punctual needs the interpreter's global lock: start it without PYTHON_GIL=0 and -X gil=0")

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
