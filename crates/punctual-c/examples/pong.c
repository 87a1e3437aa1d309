/* Answers each message at port 7400 with the same bytes: pong [NAME [COUNT]], or over UDP pong LOCAL PEER [COUNT]. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <punctual.h>

#define SECOND_NS UINT64_C(1000000000)

static void check(punctual_error error, const char *what) {
    if (error != PUNCTUAL_OK) {
        fprintf(stderr, "pong: %s: %s: %s\n", what, punctual_error_name(error), punctual_last_error());
        exit(1);
    }
}

int main(int argc, char **argv) {
    punctual_bus bus;
    int is_udp = argc > 2 && strchr(argv[2], ':') != NULL;
    if (is_udp) {
        const char *peer = argv[2];
        check(punctual_bus_peers(argv[1], &peer, 1, &bus), "bus");
    } else {
        check(punctual_bus_shared(argc > 1 ? argv[1] : "demo", &bus), "bus");
    }
    int at = is_udp ? 3 : 2;
    long count = argc > at ? atol(argv[at]) : 0;

    punctual_node node;
    punctual_communicator pong;
    size_t size_max;
    check(punctual_node_open(bus, "pong", NULL, &node), "node");
    check(punctual_communicator_bind(node, 7400, NULL, &pong), "port 7400");
    check(punctual_node_message_size_max(node, &size_max), "size");
    void *buffer = malloc(size_max);
    if (buffer == NULL) return 1;

    for (long answers = 0; count == 0 || answers < count; answers++) {
        punctual_message message;
        punctual_error error = punctual_communicator_receive(pong, buffer, size_max, PUNCTUAL_FOREVER, &message);
        while (error == PUNCTUAL_BUFFER_TOO_SMALL) { /* in memory a peer's ring may carry more than ours */
            void *larger = realloc(buffer, message.size);
            if (larger == NULL) return 1;
            buffer = larger;
            size_max = message.size;
            error = punctual_communicator_receive(pong, buffer, size_max, PUNCTUAL_FOREVER, &message);
        }
        check(error, "receive");
        error = punctual_communicator_send(pong, message.source, buffer, message.size, SECOND_NS);
        if (error != PUNCTUAL_OK) printf("no answer: %s\n", punctual_error_text(error));
    }
    free(buffer);
    check(punctual_communicator_close(pong), "close");
    check(punctual_node_close(node), "close");
    check(punctual_bus_close(bus), "close");
    return 0;
}
