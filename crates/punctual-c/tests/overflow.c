/* A program that lies about the size of its buffer: what a library cannot see, and a tool that looks at every access does. */
#include <stdlib.h>

#include <punctual.h>

int main(void) {
    punctual_bus bus;
    punctual_node node;
    punctual_communicator communicator;
    punctual_address own;
    punctual_message message;
    static const char data[64] = {0};
    char *small = (char *)malloc(16);
    if (punctual_bus_loopback("overflow", &bus) || punctual_node_open(bus, "liar", NULL, &node) ||
        punctual_communicator_bind(node, 1, NULL, &communicator) || punctual_communicator_address(communicator, &own) ||
        punctual_communicator_try_send(communicator, own, data, sizeof data))
        return 2;
    punctual_communicator_receive(communicator, small, sizeof data, 0, &message);
    free(small);
    return 0;
}
