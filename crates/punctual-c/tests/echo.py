"""As `large.c echo`: sends so many messages of a bus of shared memory back, those larger than a frame too."""

import sys

import punctual

with punctual.Node(punctual.Bus.shared(sys.argv[2]), "echo", message_size_max=8 << 20) as node, node.bind(7) as port:
    for _ in range(int(sys.argv[3])):
        message = port.receive(timeout=20)
        port.send(message.source, message.payload, timeout=20)
