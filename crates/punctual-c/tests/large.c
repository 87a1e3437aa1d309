/* Messages larger than a frame, over memory and UDP: large UDP_PORT UDP_PORT. Or, of another process, sent back: large echo BUS COUNT. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <punctual.h>

#include "expect.h"

#define SECOND_NS UINT64_C(1000000000)
#define PATIENCE_NS (20 * SECOND_NS)
#define SIZE_MAX_OF_OURS (8 << 20)

#define OK(call) EXPECT(PUNCTUAL_OK, call)

static punctual_communicator receiver;
static size_t arrived;

static unsigned char byte_at(size_t at) {
    return (unsigned char)(at % 251 + 1);
}

/* Receives one message into a buffer that is too small, and then into one that is not. */
static void *receive_one(void *unused) {
    static unsigned char buffer[SIZE_MAX_OF_OURS];
    punctual_message message;
    (void)unused;
    memset(buffer, 0, sizeof buffer);
    EXPECT(PUNCTUAL_BUFFER_TOO_SMALL, punctual_communicator_receive(receiver, buffer, 100, PATIENCE_NS, &message));
    size_t told = message.size;
    OK(punctual_communicator_receive(receiver, buffer, sizeof buffer, 0, &message));
    for (size_t at = 0; at < sizeof buffer; at++)
        if (buffer[at] != (at < told ? byte_at(at) : 0) || message.size != told) {
            fprintf(stderr, "%zu bytes, %zu told: byte %zu is altered\n", message.size, told, at);
            exit(1);
        }
    OK(punctual_communicator_detach(receiver));
    arrived = told;
    return NULL;
}

static void exchange(punctual_bus near, punctual_bus far) {
    static unsigned char sent[SIZE_MAX_OF_OURS];
    punctual_node_options options = PUNCTUAL_NODE_OPTIONS_INIT;
    punctual_node here, there;
    punctual_communicator sender;
    punctual_address target;
    punctual_ledger ledger;
    options.message_size_max = SIZE_MAX_OF_OURS;
    OK(punctual_node_open(near, "here", &options, &here));
    OK(punctual_node_open(far, "there", &options, &there));
    OK(punctual_communicator_bind(here, 1, NULL, &sender));
    OK(punctual_communicator_bind(there, 7, NULL, &receiver));
    OK(punctual_communicator_address(receiver, &target));
    OK(punctual_communicator_detach(receiver));
    for (size_t at = 0; at < sizeof sent; at++) sent[at] = byte_at(at);
    size_t sizes[] = {64 << 10, SIZE_MAX_OF_OURS};
    for (int turn = 0; turn < 2; turn++) {
        pthread_t thread;
        arrived = 0;
        if (pthread_create(&thread, NULL, receive_one, NULL) != 0) exit(1);
        OK(punctual_communicator_send(sender, target, sent, sizes[turn], PATIENCE_NS));
        if (pthread_join(thread, NULL) != 0 || arrived != sizes[turn]) exit(1);
    }
    OK(punctual_node_ledger(there, &ledger, sizeof ledger));
    if (ledger.large_delivered == 0 || ledger.large_lost + ledger.fragments_refused != 0) exit(1);
    OK(punctual_communicator_close(sender));
    OK(punctual_communicator_close(receiver));
    OK(punctual_node_close(here));
    OK(punctual_node_close(there));
    OK(punctual_bus_close(near));
    OK(punctual_bus_close(far));
}

/* Sends so many messages of a bus of shared memory back. */
static void echo(const char *name, long count) {
    static unsigned char buffer[SIZE_MAX_OF_OURS];
    punctual_node_options options = PUNCTUAL_NODE_OPTIONS_INIT;
    punctual_bus bus;
    punctual_node node;
    punctual_message message;
    options.message_size_max = sizeof buffer;
    OK(punctual_bus_shared(name, &bus));
    OK(punctual_node_open(bus, "echo", &options, &node));
    OK(punctual_communicator_bind(node, 7, NULL, &receiver));
    while (count-- > 0) {
        OK(punctual_communicator_receive(receiver, buffer, sizeof buffer, PATIENCE_NS, &message));
        OK(punctual_communicator_send(receiver, message.source, buffer, message.size, PATIENCE_NS));
    }
    OK(punctual_communicator_close(receiver));
    OK(punctual_node_close(node));
    OK(punctual_bus_close(bus));
}

int main(int argc, char **argv) {
    if (argc == 4) return echo(argv[2], atol(argv[3])), 0;
    if (argc != 3) return 2;
    punctual_bus near, far;
    const char *near_end = argv[1], *far_end = argv[2];
    OK(punctual_bus_loopback("large", &near));
    OK(punctual_bus_loopback("large", &far));
    exchange(near, far);
    OK(punctual_bus_peers(near_end, &far_end, 1, &near));
    OK(punctual_bus_peers(far_end, &near_end, 1, &far));
    exchange(near, far);
    puts("whole");
    return 0;
}
