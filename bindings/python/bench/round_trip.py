"""A round trip of 64 bytes between two Python processes: Punctual over shared memory beside pyzmq over ipc, in turn.

Run: python bindings/python/bench/round_trip.py [OPENINGS]. Each opening is two new processes of each. Prints the median round trip, and
how many times as long Punctual takes: the median of the openings, the least and the largest.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

TRIPS, WARM_UP, SIZE = 20_000, 2_000, 64


def punctual_end(role, place):
    import punctual

    node = punctual.Node(punctual.Bus.shared(os.path.basename(place)), role)
    own, other = node.bind(1), punctual.Target("answer" if role == "ask" else "ask", 1)
    payload = bytes(SIZE)
    if role == "answer":
        for _ in range(WARM_UP + TRIPS):
            message = own.receive(10)
            own.send(message.source, message.payload)
        return None

    def trip():
        own.send(other, payload, 10)
        own.receive(10)

    return trip


def zmq_end(role, place):
    import zmq

    socket = zmq.Context().socket(zmq.PAIR)
    address = f"ipc://{place}.ipc"
    payload = bytes(SIZE)
    if role == "answer":
        socket.bind(address)
        for _ in range(WARM_UP + TRIPS):
            socket.send(socket.recv())
        return None
    socket.connect(address)

    def trip():
        socket.send(payload)
        socket.recv()

    return trip


def take_part(kind, role, place):
    trip = {"punctual": punctual_end, "pyzmq": zmq_end}[kind](role, place)
    if trip is None:
        return
    for _ in range(WARM_UP):
        trip()
    times = []
    for _ in range(TRIPS):
        begun = time.perf_counter_ns()
        trip()
        times.append(time.perf_counter_ns() - begun)
    print(statistics.median(times))


def measure(kind, place):
    def start(role):
        return subprocess.Popen([sys.executable, __file__, kind, role, place], stdout=subprocess.PIPE, text=True)

    with start("answer") as answers, start("ask") as asks:
        printed = asks.communicate(timeout=300)[0]
        if asks.returncode or answers.wait(timeout=60):
            sys.exit(f"{kind} failed")
    return float(printed)


def main():
    if len(sys.argv) == 4:
        take_part(*sys.argv[1:])
        return
    openings = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for opening in range(openings):
            place = os.path.join(folder, f"trip-{os.getpid()}-{opening}")
            ours.append(measure("punctual", place))
            theirs.append(measure("pyzmq", place))
    ratios = sorted(a / b for a, b in zip(ours, theirs))
    print(
        f"pyzmq {statistics.median(theirs) / 1000:.1f} us, punctual {statistics.median(ours) / 1000:.1f} us: "
        f"{statistics.median(ratios):.3f} times as long ({ratios[0]:.3f} to {ratios[-1]:.3f})"
    )


main()
