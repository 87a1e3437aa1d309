"""Interest and response: subscribers get values when they are due; wrong use is an exception."""

import array
import gc
import os
import select
import threading
import time

import punctual
import pytest
from test_messages import PATIENCE, free_port, unique

SPEED = punctual.Topic("speed", unit="m/s", format="f32", count=2)
PERIOD = 0.002


@pytest.fixture(params=["loopback", "shared", "udp"])
def nodes(request):
    name = unique("interest")
    here, there = (f"127.0.0.1:{free_port()}" for _ in range(2))
    buses = {
        "loopback": (punctual.Bus.loopback(name),) * 2,
        "shared": (punctual.Bus.shared(name),) * 2,
        "udp": (punctual.Bus.peers(here, [there]), punctual.Bus.peers(there, [here])),
    }[request.param]
    with punctual.Node(buses[0], "here") as first, punctual.Node(buses[1], "there") as second:
        yield first, second


@pytest.fixture
def pair(nodes):
    with nodes[0].publisher(1, SPEED, stamps=True) as publisher, nodes[1].subscriber(7, SPEED, PERIOD) as subscriber:
        yield publisher, subscriber


def wanted(publisher, subscriber):
    """The instant for which the subscriber wants a value. It is told once more where the medium lost that."""
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        with pytest.raises(punctual.Empty):
            while True:
                subscriber.receive(0)
        if due := publisher.next_due(0.05):
            return due
    raise AssertionError("nobody wants anything")


def test_a_value_goes_to_who_wants_it(pair):
    publisher, subscriber = pair
    for number in range(20):
        due = wanted(publisher, subscriber)
        publisher.publish([number, due.offset_us % 1000])
        response = subscriber.receive(PATIENCE)
        assert response.value == [number, due.offset_us % 1000] and response.offset_us == due.offset_us
        assert response.source == publisher.address and response.at_once == due.at_once
        assert response.late_ns is None if due.at_once else response.late_ns > 0
    assert publisher.counts()["interests"] == 1 and publisher.counts()["sent"] >= 20
    assert subscriber.counts()["taken"] == 20 and subscriber.counts()["refused"] == 0
    subscriber.close()
    give_up = time.monotonic() + PATIENCE
    while publisher.counts()["withdrawn"] == 0:
        publisher.next_due(0.01)
        assert time.monotonic() < give_up


@pytest.mark.parametrize(
    ("topic", "value"),
    [
        (punctual.Topic("one"), 2.5),
        (punctual.Topic("whole", unit="s", format="i32"), -7),
        (punctual.Topic("long", unit="kg m^2 s^-3", format="i64", count=3), [1, -(2**63), 2**63 - 1]),
        (punctual.Topic(4711, format="f64", count=2), (0.1, -0.1)),
        (punctual.Topic("raw", format="bytes", count=4), b"\x00\xff\x01\x02"),
    ],
)
def test_values_arrive_as_their_topic_says(nodes, topic, value):
    with nodes[0].publisher(1, topic) as publisher, nodes[1].subscriber(7, topic, PERIOD) as subscriber:
        wanted(publisher, subscriber)
        publisher.publish(value)
        received = subscriber.receive(PATIENCE).value
        assert received == (list(value) if isinstance(value, tuple) else value) and type(received) is not tuple


def test_another_type_is_refused(nodes):
    metres = punctual.Topic("speed", unit="m", format="f32", count=2)
    with nodes[0].publisher(1, SPEED) as publisher, nodes[1].subscriber(7, metres, PERIOD) as subscriber:
        give_up = time.monotonic() + PATIENCE
        while subscriber.counts()["refused"] == 0:
            with pytest.raises(punctual.Empty):
                subscriber.receive(0.01)
            assert publisher.next_due(0.01) is None
            assert time.monotonic() < give_up


def test_who_waits_releases_the_interpreter(pair):
    """Method: publisher and subscriber wait in threads of their own, in one interpreter."""
    publisher, subscriber = pair
    ended = threading.Event()

    def publish():
        while not ended.is_set():
            if due := publisher.next_due(0.05):
                publisher.publish([13.5, due.offset_us % 1000])

    serves = threading.Thread(target=publish)
    serves.start()
    try:
        instants = [subscriber.receive(PATIENCE).offset_us for _ in range(50)]
    finally:
        ended.set()
        serves.join()
    assert instants == sorted(set(instants))


def test_what_is_waited_for_becomes_readable(nodes):
    with nodes[0].publisher(1, SPEED) as publisher, nodes[1].subscriber(7, SPEED, PERIOD) as subscriber:
        while publisher.next_due(0) is not None or not publisher.arm():
            pass
        assert publisher.time_left() is None or publisher.time_left() > 0
        with pytest.raises(punctual.Empty):
            subscriber.receive(0)
        assert select.select([publisher], [], [], PATIENCE)[0] == [publisher]
        assert subscriber.time_left() <= 1.0


@pytest.mark.parametrize("unit", ["km", "", "m//s", "m^200", "bytes"])
def test_a_unit_that_is_none_is_refused(unit):
    with pytest.raises(ValueError, match="unit|bytes"):
        punctual.Topic("speed", unit=unit)


def test_topics_that_cannot_be_are_refused(nodes):
    for wrong in [{"format": "f16"}, {"count": 0}, {"format": "bytes", "unit": "m"}]:
        with pytest.raises(ValueError, match="bytes"):
            punctual.Topic("speed", **wrong)
    with pytest.raises(OverflowError):
        punctual.Topic("speed", count=65536)
    with pytest.raises(punctual.TooLong):
        nodes[0].publisher(9, punctual.Topic("speed", count=65535))
    for period in [0, -1.0, 1e9, float("nan")]:
        with pytest.raises(ValueError, match="period"):
            nodes[0].subscriber(9, SPEED, period)
    with pytest.raises(ValueError, match="speed"):
        nodes[0].subscriber(9, SPEED, PERIOD, wake="speed")
    with pytest.raises(ValueError, match="65535"):
        nodes[0].subscriber(9, SPEED, PERIOD, reach=65535)
    with pytest.raises(ValueError, match="65535"):
        nodes[0].publisher(9, SPEED, reach=65535)
    nodes[0].publisher(9, SPEED).close()  # none of these has the port
    same = punctual.Topic("speed", unit="m·s^-1", format="f32", count=2)
    assert same == SPEED and hash(same) == hash(SPEED) and same.size == 8


def test_a_value_of_another_size_is_refused(pair):
    publisher, subscriber = pair
    with pytest.raises(ValueError, match="nothing is due"):
        publisher.publish([1, 2])
    wanted(publisher, subscriber)
    for wrong in [[], [1], [1, 2, 3], iter(int, 1)]:
        with pytest.raises(ValueError, match="8"):
            publisher.publish(wrong)
    for wrong in [1.5, b"12345678", ["one", "two"], None]:
        with pytest.raises((TypeError, ValueError)):
            publisher.publish(wrong)
    # The instant can still be served, once.
    publisher.publish([1.5, 2.5])
    with pytest.raises(ValueError, match="nothing is due"):
        publisher.publish([1.5, 2.5])
    assert subscriber.receive(PATIENCE).value == [1.5, 2.5]


def test_a_buffer_that_is_freed_is_not_looked_at(nodes):
    topic = punctual.Topic("raw", format="bytes", count=64)
    with nodes[0].publisher(1, topic) as publisher, nodes[1].subscriber(7, topic, PERIOD) as subscriber:
        wanted(publisher, subscriber)
        buffer = bytearray(range(64))
        publisher.publish(buffer)
        buffer[:] = bytes(64)
        del buffer
        gc.collect()
        assert subscriber.receive(PATIENCE).value == bytes(range(64))
        wanted(publisher, subscriber)
        released = memoryview(bytearray(64))
        released.release()
        with pytest.raises((ValueError, BufferError)):
            publisher.publish(released)
        with pytest.raises(ValueError, match="64"):
            publisher.publish(array.array("B", bytes(63)))


def test_what_is_closed_says_so(pair):
    publisher, subscriber = pair
    for _ in range(2):
        publisher.close()
        subscriber.close()
    calls = [
        lambda: publisher.next_due(0),
        lambda: publisher.publish([1, 2]),
        lambda: subscriber.receive(0),
        *[getattr(end, name) for end in pair for name in ["counts", "fileno", "arm", "time_left"]],
        *[lambda end=end: end.address for end in pair],
    ]
    for call in calls:
        with pytest.raises(punctual.Closed):
            call()


def test_a_second_thread_is_told(pair):
    _, subscriber = pair
    waits = threading.Thread(target=lambda: pytest.raises(punctual.Empty, subscriber.receive, 0.3))
    waits.start()
    give_up = time.monotonic() + PATIENCE
    with pytest.raises(punctual.Busy):
        while time.monotonic() < give_up:
            subscriber.counts()
            time.sleep(0.001)
    waits.join()
    assert subscriber.counts()["taken"] == 0


def test_a_child_opens_its_own(nodes):
    with nodes[0].publisher(1, SPEED) as publisher:
        child = os.fork()
        if child == 0:
            try:
                publisher.next_due(0)
            except punctual.Closed:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert publisher.next_due(0) is None
