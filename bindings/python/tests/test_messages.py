"""Messages through every medium that needs no privilege, and wrong use, which is an exception."""

import array
import asyncio
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

import punctual
import pytest

PATIENCE = 20.0


def unique(name):
    return f"{name}-{os.getpid()}-{time.monotonic_ns() % 10**9:x}"


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as candidate:
        candidate.bind(("127.0.0.1", 0))
        return candidate.getsockname()[1]


def media():
    name = unique("py")
    here, there = (f"127.0.0.1:{free_port()}" for _ in range(2))
    return {
        "loopback": (punctual.Bus.loopback(name),) * 2,
        "shared": (punctual.Bus.shared(name),) * 2,
        "udp": (punctual.Bus.peers(here, [there]), punctual.Bus.peers(there, [here])),
    }


@pytest.fixture(params=["loopback", "shared", "udp"])
def pair(request):
    buses = media()[request.param]
    with punctual.Node(buses[0], "here") as here, punctual.Node(buses[1], "there") as there:
        with here.bind(1) as sender, there.bind(7) as receiver:
            yield here, there, sender, receiver


TARGET = punctual.Target("there", 7)


def test_a_message_without_bytes_is_one(pair):
    _, _, sender, receiver = pair
    sender.send(TARGET, b"")
    message = receiver.receive(PATIENCE)
    assert message and len(message) == 0


def test_a_message_goes_there_and_back(pair):
    here, there, sender, receiver = pair
    sender.send(TARGET, b"hello")
    message = receiver.receive(PATIENCE)
    assert message.payload == bytes(message) == b"hello" and len(message) == message.size == 5
    assert message.source == sender.address and message.target == TARGET
    receiver.send(message.source, b"hello too")
    assert sender.receive(PATIENCE).payload == b"hello too"
    assert receiver.try_receive() is None
    ledger = there.ledger()
    assert (ledger["delivered"], ledger["sent"]) == (1, 1)
    assert [peer["arrived"] for peer in there.peers()] == [1]
    assert here.id == message.source.node


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: array.array("B", data)])
def test_every_buffer_is_sent(pair, kind):
    _, _, sender, receiver = pair
    for size in [0, 1, 63, 64, 1000]:
        sender.send(TARGET, kind(bytes(range(256)) * 4)[:size] if size else kind(b""))
        assert receiver.receive(PATIENCE).payload == (bytes(range(256)) * 4)[:size]


def test_a_message_lands_in_a_buffer(pair):
    _, _, sender, receiver = pair
    sender.send(TARGET, b"0123456789")
    sender.send(TARGET, b"next")
    small, large = bytearray(4), bytearray(b"." * 16)
    with pytest.raises(punctual.BufferTooSmall, match="10 bytes"):
        receiver.receive_into(small, PATIENCE)
    assert small == bytes(4)
    message = receiver.receive_into(memoryview(large)[2:12], PATIENCE)
    assert large == b"..0123456789...." and message.payload is None and message.size == 10
    assert receiver.receive(PATIENCE).payload == b"next"
    with pytest.raises(punctual.Empty):
        receiver.receive_into(large, 0.01)
    with pytest.raises(ValueError, match="bytearray"):
        receiver.receive_into(b"cannot be written", 0)
    with pytest.raises(ValueError, match="gaps"):
        receiver.receive_into(memoryview(large)[::2], 0)


def test_nothing_comes(pair):
    _, _, _, receiver = pair
    for timeout in [0, 0.01, 0.15]:
        begun = time.monotonic()
        with pytest.raises(punctual.Empty):
            receiver.receive(timeout)
        assert time.monotonic() - begun >= timeout * 0.9
    for wrong in [-1, float("nan")]:
        with pytest.raises(ValueError, match="timeout"):
            receiver.receive(wrong)


def test_who_waits_releases_the_interpreter(pair):
    """Method: a thread waits while this one computes, which ends the wait."""
    _, _, sender, receiver = pair
    found = []
    waits = threading.Thread(target=lambda: found.append(receiver.receive(PATIENCE).payload))
    waits.start()
    for _ in range(5):
        sum(range(10_000))
        time.sleep(0.01)
    assert waits.is_alive()
    with pytest.raises(punctual.Busy, match="another thread"):
        receiver.try_receive()
    with pytest.raises(punctual.Busy):
        receiver.close()
    sender.send(TARGET, b"now")
    waits.join(PATIENCE)
    assert found == [b"now"]
    sender.send(TARGET, b"again")
    assert receiver.receive(PATIENCE).payload == b"again"


def test_what_is_closed_says_so(pair):
    here, _, sender, receiver = pair
    here.close()
    here.close()
    with pytest.raises(punctual.Closed, match="node is closed"):
        here.bind(9)
    sender.send(TARGET, b"goes on")
    assert receiver.receive(PATIENCE).payload == b"goes on"
    receiver.close()
    for use in [receiver.try_receive, receiver.arm, receiver.fileno, lambda: receiver.receive_into(bytearray(1))]:
        with pytest.raises(punctual.Closed, match="communicator is closed"):
            use()


def test_wrong_use_is_an_exception(pair):
    here, _, sender, _ = pair
    with pytest.raises(punctual.TooLong):
        sender.send(TARGET, bytes(here.message_size_max + 1))
    with pytest.raises(TypeError):
        sender.send(TARGET, "text")
    with pytest.raises(TypeError):
        sender.send("there", b"")
    with pytest.raises(punctual.Error, match="taken"):
        here.bind(1)
    with pytest.raises(ValueError, match="65535"):
        here.bind(65535)
    with pytest.raises(ValueError, match="65535"):
        punctual.Target("there", 65535)
    with pytest.raises(OverflowError):
        here.bind(70_000)
    with pytest.raises(ValueError, match="unknown way"):
        here.bind(2, wake="hope")
    with pytest.raises(ValueError, match="node 0"):
        punctual.Target(0, 1)
    with pytest.raises(ValueError, match="letters"):
        punctual.Node(punctual.Bus.loopback("a bus"), "node")
    with pytest.raises(ValueError, match="group"):
        punctual.Bus.multicast("nowhere", "127.0.0.1")
    with pytest.raises(punctual.Error, match="/nowhere"):
        punctual.Bus.loopback("sealed").sealed("/nowhere/keys")
    assert issubclass(punctual.Empty, punctual.Error) and issubclass(punctual.Error, Exception)


@pytest.mark.parametrize("medium", ["loopback", "shared", "udp"])
@pytest.mark.parametrize("size", [64 << 10, 8 << 20])
def test_messages_larger_than_a_frame(medium, size):
    """Method: another thread receives."""
    buses = media()[medium]
    sent = bytes(range(251)) * (size // 251 + 1)
    sent = sent[:size]
    options = {"message_size_max": 8 << 20}
    with punctual.Node(buses[0], "here", **options) as here, punctual.Node(buses[1], "there", **options) as there:
        assert here.message_size_max == there.message_size_max == 8 << 20
        with here.bind(1) as sender, there.bind(7) as receiver:
            received, into = [], bytearray(size)

            def receive():
                received.append(receiver.receive(PATIENCE).payload)
                with pytest.raises(punctual.BufferTooSmall, match=f"{size} bytes"):
                    receiver.receive_into(bytearray(8), PATIENCE)
                received.append(receiver.receive_into(into, PATIENCE).size)

            receives = threading.Thread(target=receive)
            receives.start()
            sender.send(TARGET, sent, PATIENCE)
            sender.send(TARGET, memoryview(sent), PATIENCE)
            receives.join(PATIENCE)
            assert received[0] == sent and received[1] == size and into == sent
            assert there.ledger()["large_lost"] == 0
            with pytest.raises(punctual.TooLong):
                sender.send(TARGET, bytes((8 << 20) + 1))
            with pytest.raises(punctual.TooLong):
                sender.try_send(TARGET, bytes((8 << 20) + 1))


@pytest.mark.parametrize("options", [{}, {"message_size_max": 1 << 20}])
def test_a_message_that_is_too_long_waits_for_nobody(options):
    """Method: nobody is there, and the wait would have no end."""
    with punctual.Node(punctual.Bus.loopback(unique("long")), "here", **options) as node, node.bind(1) as sender:
        too_long = bytes(node.message_size_max + 1)
        for timeout in [0, 0.2, None]:
            with pytest.raises(punctual.TooLong, match=str(len(too_long))):
                sender.send(TARGET, too_long, timeout)


def test_sizes_that_cannot_be():
    bus = punctual.Bus.loopback(unique("sizes"))
    for size in [(64 << 20) + 1, 2**63]:
        with pytest.raises(ValueError, match="at most 67108864"):
            punctual.Node(bus, "node", message_size_max=size)
    for size in [-1, 2**64]:
        with pytest.raises(OverflowError):
            punctual.Node(bus, "node", message_size_max=size)
    with pytest.raises(TypeError):
        punctual.Node(bus, "node", message_size_max="large")


def test_nobody_is_there():
    with punctual.Node(punctual.Bus.loopback(unique("nobody")), "here") as node, node.bind(1) as sender:
        for send in [sender.try_send, lambda target, data: sender.send(target, data, timeout=0.15)]:
            with pytest.raises(punctual.Unreachable):
                send(punctual.Target("there", 7), b"hello")


def test_a_sealed_bus_hears_who_has_the_key(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("7 1 000102030405060708090a0b0c0d0e0f\n")
    bare = punctual.Bus.loopback(unique("sealed"))
    keys.chmod(0o644)
    with pytest.raises(punctual.Error, match="chmod 600"):
        bare.sealed(keys)
    keys.chmod(0o600)
    bus = bare.sealed(keys)
    with punctual.Node(bus, "here") as here, punctual.Node(bus, "there") as there:
        with here.bind(1) as sender, there.bind(7) as receiver:
            sender.send(TARGET, b"secret")
            message = receiver.receive(PATIENCE)
            assert (message.payload, message.sealed_in) == (b"secret", 7)


def test_an_event_loop_is_woken(pair):
    _, _, sender, receiver = pair

    async def wait():
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(receiver.fileno(), woken.set)
        while receiver.try_receive() is not None:
            pass
        assert receiver.arm()
        loop.call_later(0.02, sender.send, TARGET, b"wake up")
        await asyncio.wait_for(woken.wait(), PATIENCE)
        loop.remove_reader(receiver.fileno())
        return receiver.receive(PATIENCE).payload

    assert asyncio.run(wait()) == b"wake up"
    assert receiver.arm()
    assert select.select([receiver], [], [], 0) == ([], [], [])


def test_streams_are_read_from_rings():
    bus = punctual.Bus.loopback(unique("streams"), hold_back=True)
    with punctual.Node(bus, "here") as here, punctual.Node(bus, "there") as there:
        publication = here.publication(punctual.Target("there", 8), ring_size=4096, stamps=True)
        with pytest.raises(punctual.Unreachable):
            publication.offer(b"to nobody")
        with pytest.raises(ValueError, match="65535"):
            here.publication(punctual.Target("there", 8), source=65535)
        subscription = there.subscription(8)
        publication.offer(memoryview(b"one"))
        publication.offer(bytearray(b"two"), timeout=PATIENCE)
        for wrong in [-1, float("nan")]:
            with pytest.raises(ValueError, match="timeout"):
                publication.offer(b"there is room", timeout=wrong)
        message = subscription.receive(PATIENCE)
        assert message.payload == b"one" and message.latency_ns > 0 and message.target.port == 8
        buffer = bytearray(2)
        with pytest.raises(punctual.BufferTooSmall):
            subscription.receive_into(buffer, PATIENCE)
        assert subscription.receive_into(bytearray(3)).size == 3
        assert subscription.try_receive() is None
        with pytest.raises(punctual.Full):
            for _ in range(4096):
                publication.offer(b"too much")
        with pytest.raises(punctual.Full):
            publication.offer(b"still", timeout=0.01)
        offered = []
        waits = threading.Thread(target=lambda: offered.append(publication.offer(b"late", timeout=PATIENCE)))
        waits.start()
        time.sleep(0.05)
        while subscription.receive(PATIENCE).payload != b"late":
            pass
        waits.join(PATIENCE)
        assert offered == [None]
        publication.close()
        with pytest.raises(punctual.Closed):
            publication.offer(b"closed")


def test_who_closes_releases_the_interpreter():
    """Method: what a node sent last is read by a thread that runs only while this one lets it."""
    bus = punctual.Bus.shared(unique("closes"))
    here, there = punctual.Node(bus, "here"), punctual.Node(bus, "there")
    subscription = there.subscription(8)
    publication = here.publication(punctual.Target("there", 8))
    found, closes = [], threading.Event()

    def read():
        closes.wait()
        found.append(subscription.receive(PATIENCE).payload)

    reads = threading.Thread(target=read, daemon=True)
    reads.start()
    publication.offer(b"the last")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        closes.set()
        publication.close()
        here.close()
    finally:
        sys.setswitchinterval(interval)
    reads.join(PATIENCE)
    assert found == [b"the last"]


def test_buses_of_the_kernel_have_no_streams():
    with punctual.Node(punctual.Bus.peers("127.0.0.1:0", []), "alone") as node:
        with pytest.raises(punctual.Error, match="memory"):
            node.subscription(1)


def test_counters_are_seen_from_outside():
    name = unique("seen")
    with punctual.Node(punctual.Bus.loopback(name), "node"):
        seen = [one for one in punctual.read_all() if one["bus"] == f"loopback:{name}"[:32]]
        assert [one["name"] for one in seen] == ["node"] and seen[0]["counters"]["sent"] == 0


def test_a_child_uses_nothing_of_its_parents(pair):
    here, _, sender, receiver = pair
    child = os.fork()
    if child == 0:
        try:
            for use in [here.ledger, receiver.try_receive, lambda: sender.try_send(TARGET, b""), sender.close]:
                with pytest.raises(punctual.Closed, match="forked"):
                    use()
            with punctual.Node(punctual.Bus.loopback("of-a-child"), "own") as own, own.bind(1) as alone:
                alone.send(alone.address, b"own")
                assert alone.receive(PATIENCE).payload == b"own"
            gc.collect()
            os._exit(0)
        except BaseException as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    sender.send(TARGET, b"after")
    assert receiver.receive(PATIENCE).payload == b"after"


def test_an_interrupt_ends_a_wait():
    # A process that was started with interrupts ignored, such as a shell's background job, ignores them at first.
    text = """
import signal
import punctual
signal.signal(signal.SIGINT, signal.default_int_handler)
node = punctual.Node(punctual.Bus.loopback("interrupted"), "node")
communicator = node.bind(1)
print("waits", flush=True)
try:
    communicator.receive()
except KeyboardInterrupt:
    print("interrupted")
"""
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as waits:
        assert waits.stdout.readline() == "waits\n"
        time.sleep(0.05)
        waits.send_signal(signal.SIGINT)
        try:
            assert waits.communicate(timeout=PATIENCE)[0] == "interrupted\n"
        finally:
            waits.kill()


@pytest.mark.parametrize("bus", ["loopback('nobody')", "peers('127.0.0.1:{}', ['127.0.0.1:{}'])"])
def test_an_interrupt_ends_a_large_message_to_nobody(bus):
    """Method: nobody is there, in memory and on a wire, where that is not known; and the message may take as long as it will."""
    text = f"""
import signal
import punctual
signal.signal(signal.SIGINT, signal.default_int_handler)
node = punctual.Node(punctual.Bus.{bus.format(free_port(), free_port())}, "node", message_size_max=1 << 20)
communicator = node.bind(1)
print("waits", flush=True)
try:
    communicator.send(punctual.Target("nobody", 1), bytes(1 << 20), timeout=None)
except KeyboardInterrupt:
    print("interrupted")
"""
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as sends:
        assert sends.stdout.readline() == "waits\n"
        time.sleep(0.05)
        sends.send_signal(signal.SIGINT)
        try:
            assert sends.communicate(timeout=PATIENCE)[0] == "interrupted\n"
        finally:
            sends.kill()


def test_processes_share_a_bus_and_a_ledger_that_sums_after_kills():
    """Method: writers that are killed under load; of each life everything arrived or stands as lost."""
    name = unique("killed")
    text = f"""
import punctual
node = punctual.Node(punctual.Bus.shared({name!r}, ring_size=16384), "writer")
writer = node.bind(1)
number = 0
while True:
    writer.send(punctual.Target(port=7), number.to_bytes(8, "little") * (1 + number % 40))
    number += 1
"""
    lives, highest = 4, []
    with punctual.Node(punctual.Bus.shared(name, ring_size=16384), "survivor") as node, node.bind(7) as reader:
        for life in range(lives):
            writer = subprocess.Popen([sys.executable, "-c", text])
            last = None
            stop = time.monotonic() + PATIENCE
            while node.ledger()["died"] == life:
                assert time.monotonic() < stop
                try:
                    payload = reader.receive(0.01).payload
                except punctual.Empty:
                    continue
                number = int.from_bytes(payload[:8], "little")
                assert payload == payload[:8] * (1 + number % 40), "torn"
                if last is None:
                    stop_at = time.monotonic() + 0.05
                last = number
                if writer.poll() is None and time.monotonic() > stop_at:
                    writer.kill()
                    writer.wait()
            while (message := reader.try_receive()) is not None:
                last = int.from_bytes(message.payload[:8], "little")
            highest.append(last)
        ledger, peers = node.ledger(), node.peers()
        places = ["delivered", "waiting", "no_such_port", "inbox_full", "unread", "copies_refused"]
        assert ledger["copies"] == sum(ledger[place] for place in places)
        assert (ledger["died"], ledger["corrupt_peers"], ledger["bad_frames"]) == (lives, 0, 0)
        sums = sorted(peer["arrived"] + peer["lost"] for peer in peers)
        assert len(sums) == lives and all(peer["missing"] == 0 and not peer["present"] for peer in peers)
        assert all(total > number for total, number in zip(sums, sorted(highest)))


def test_an_interpreter_without_its_lock_is_refused():
    """Method: one that says so, in a process of its own."""
    text = "import sys; sys._is_gil_enabled = lambda: False; import punctual"
    imports = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=PATIENCE)
    assert imports.returncode != 0
    assert "ImportError: punctual needs the interpreter's global lock" in imports.stderr
