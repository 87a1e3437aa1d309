"""Asks `pong` once a second, in any language, and prints how long each answer took: ping.py [NAME [COUNT]]."""

import itertools
import sys
import time

import punctual

name = sys.argv[1] if len(sys.argv) > 1 else "demo"
count = int(sys.argv[2]) if len(sys.argv) > 2 else None
with punctual.Node(punctual.Bus.shared(name), "ping") as node, node.bind(1) as ping:
    for number in itertools.count() if count is None else range(count):
        while ping.try_receive() is not None:
            pass  # an answer that came too late
        asked = time.perf_counter_ns()
        try:
            ping.send(punctual.Target("pong", 7400), f"hello {number}".encode(), timeout=10)
            answer = ping.receive(timeout=10)
            print(f"{answer.size} bytes after {(time.perf_counter_ns() - asked) / 1000:.1f} us")
        except punctual.Error as error:
            print(error)
        if count is None:
            time.sleep(1)
