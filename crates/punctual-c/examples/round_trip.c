/* One end of a round trip over shared memory, for `c_cost`: round_trip ask|answer BUS BATCHES TRIPS. Spins.
 * The one that asks prints how long a trip took in each batch, nanoseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <punctual.h>

#define SECOND_NS UINT64_C(1000000000)
#define SIZE 64

static void check(punctual_error error, const char *what) {
    if (error != PUNCTUAL_OK) {
        fprintf(stderr, "round_trip: %s: %s: %s\n", what, punctual_error_name(error), punctual_last_error());
        exit(1);
    }
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int asks = strcmp(argv[1], "ask") == 0;
    long batches = atol(argv[3]), trips = atol(argv[4]);
    punctual_bus bus;
    punctual_node node;
    punctual_communicator own;
    punctual_communicator_options options = PUNCTUAL_COMMUNICATOR_OPTIONS_INIT;
    options.wake = PUNCTUAL_WAKE_SPIN;
    check(punctual_bus_shared(argv[2], &bus), "bus");
    check(punctual_node_open(bus, argv[1], NULL, &node), "node");
    check(punctual_communicator_bind(node, 1, &options, &own), "port");
    punctual_address other = {0, 1, 0};
    check(punctual_node_id_of_name(asks ? "answer" : "ask", &other.node), "other");

    unsigned char bytes[SIZE] = {1};
    punctual_message message;
    if (asks) check(punctual_communicator_send(own, other, bytes, SIZE, 10 * SECOND_NS), "first");
    if (asks) check(punctual_communicator_receive(own, bytes, SIZE, 10 * SECOND_NS, &message), "first");
    for (long batch = 0; batch < batches; batch++) {
        uint64_t begun = now_ns();
        for (long trip = 0; asks && trip < trips; trip++) {
            check(punctual_communicator_try_send(own, other, bytes, SIZE), "ask");
            check(punctual_communicator_receive(own, bytes, SIZE, PUNCTUAL_FOREVER, &message), "answer");
        }
        if (asks) printf("%.2f\n", (double)(now_ns() - begun) / (double)trips);
    }
    for (long trip = 0; !asks && trip < batches * trips + 1; trip++) {
        check(punctual_communicator_receive(own, bytes, SIZE, PUNCTUAL_FOREVER, &message), "question");
        check(punctual_communicator_try_send(own, message.source, bytes, message.size), "answer");
    }
    check(punctual_communicator_close(own), "close");
    check(punctual_node_close(node), "close");
    return 0;
}
