# A publisher of "speed", or a subscriber to it, in Python: `publish BUS`, `subscribe BUS COUNT`.
import sys

import punctual

SPEED = punctual.Topic("speed", unit="m/s", format="f32", count=2)
bus = punctual.Bus.shared(sys.argv[2])

with punctual.Node(bus, "python") as node:
    if sys.argv[1] == "publish":
        with node.publisher(1, SPEED) as publisher:
            while publisher.counts()["withdrawn"] == 0:
                if due := publisher.next_due(0.1):
                    publisher.publish([13.5, due.offset_us])
    else:
        with node.subscriber(7, SPEED, period=0.002) as subscriber:
            for _ in range(int(sys.argv[3])):
                response = subscriber.receive(20.0)
                # As numbers of single precision have them.
                speed, instant = response.value
                assert speed == 13.5 and abs(instant - response.offset_us) <= response.offset_us / 2**23, response
print("served")
