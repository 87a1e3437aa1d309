"""As the role `victim` of member.c: sends numbers to everybody until it is killed; their upper half is its pid."""

import os
import sys

import punctual

node = punctual.Node(punctual.Bus.shared(sys.argv[1], ring_size=int(sys.argv[2])), "victim")
victim, everybody = node.bind(1), punctual.Target(port=1)
number = os.getpid() << 32
while True:
    try:
        victim.try_send(everybody, number.to_bytes(8, "little") * (1 + number % 40))
        number += 1
    except (punctual.Full, punctual.Unreachable):
        pass
    victim.try_receive()
