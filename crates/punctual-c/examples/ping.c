/* Asks `pong`, and says how long each answer took: ping [NAME [COUNT]], or over UDP ping LOCAL PEER [COUNT]. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <punctual.h>

#define SECOND_NS UINT64_C(1000000000)

static void check(punctual_error error, const char *what) {
    if (error != PUNCTUAL_OK) {
        fprintf(stderr, "ping: %s: %s: %s\n", what, punctual_error_name(error), punctual_last_error());
        exit(1);
    }
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* Takes a message of somebody else that is no answer, whatever its size: until then it is the next that is received. */
static void drop_next(punctual_communicator ping, size_t size) {
    punctual_message message;
    void *room = malloc(size);
    if (room == NULL)
        check(PUNCTUAL_SYSTEM, "memory");
    punctual_communicator_receive(ping, room, size, 0, &message);
    free(room);
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
    punctual_communicator ping;
    punctual_address pong = {0, 7400, 0};
    check(punctual_node_open(bus, "ping", NULL, &node), "node");
    check(punctual_communicator_bind(node, 1, NULL, &ping), "port 1");
    check(punctual_node_id_of_name("pong", &pong.node), "pong");

    for (long asking = 0, answers = 0; count == 0 || answers < count; asking++) {
        char question[32], answer[64];
        punctual_message message;
        int size = snprintf(question, sizeof question, "hello %ld", asking);
        uint64_t asked = now_ns();
        punctual_error error = punctual_communicator_send(ping, pong, question, (size_t)size, SECOND_NS);
        do { /* past answers that came too late */
            if (error == PUNCTUAL_OK)
                error = punctual_communicator_receive(ping, answer, sizeof answer, SECOND_NS / 10, &message);
            if (error == PUNCTUAL_BUFFER_TOO_SMALL)
                drop_next(ping, message.size);
        } while (error == PUNCTUAL_OK &&
                 (message.size != (size_t)size || memcmp(question, answer, message.size) != 0));
        if (error != PUNCTUAL_OK) {
            printf("%s\n", punctual_error_text(error)); /* asked again, after a pause: some errors come at once */
            struct timespec pause = {0, 100000000};
            nanosleep(&pause, NULL);
            continue;
        }
        printf("%zu bytes after %" PRIu64 " ns\n", message.size, now_ns() - asked);
        answers++;
        if (count == 0) {
            struct timespec second = {1, 0};
            nanosleep(&second, NULL);
        }
    }
    check(punctual_communicator_close(ping), "close");
    check(punctual_node_close(node), "close");
    check(punctual_bus_close(bus), "close");
    return 0;
}
