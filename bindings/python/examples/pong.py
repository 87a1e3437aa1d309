"""Answers each message at port 7400 with the same bytes: pong.py [NAME [COUNT]]."""

import itertools
import sys

import punctual

name = sys.argv[1] if len(sys.argv) > 1 else "demo"
with punctual.Node(punctual.Bus.shared(name), "pong") as node, node.bind(7400) as pong:
    for _ in itertools.count() if len(sys.argv) < 3 else range(int(sys.argv[2])):
        message = pong.receive()
        try:
            pong.send(message.source, message.payload)
        except punctual.Error as error:
            print(f"no answer: {error}")  # whoever asked is gone
