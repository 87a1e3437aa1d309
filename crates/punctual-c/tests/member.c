/* A member of a bus of shared memory that others share, under load: member ROLE NAME BUS RING_SIZE. Roles:
 *   victim  sends numbers to everybody until it is killed; their upper half is its pid
 *   steady  sends and receives until somebody says `stop`, hears `report` with what was sent to it, and prints what it counted */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <punctual.h>

#define SECOND_NS UINT64_C(1000000000)
#define PORT 1

static void check(punctual_error error, const char *what) {
    if (error != PUNCTUAL_OK) {
        fprintf(stderr, "member: %s: %s: %s\n", what, punctual_error_name(error), punctual_last_error());
        exit(1);
    }
}

static punctual_node node;
static punctual_communicator member;
static uint64_t torn, received;

/* The number of bytes of a message with that number: every word of it is the number. */
static size_t size_of(uint64_t number) {
    return 8 * (size_t)(1 + number % 40);
}

static punctual_error send_number(uint64_t number) {
    const punctual_address everybody = {PUNCTUAL_EVERY_NODE, PORT, 0};
    uint64_t words[40];
    for (size_t at = 0; at < size_of(number) / 8; at++) words[at] = number;
    return punctual_communicator_try_send(member, everybody, words, size_of(number));
}

static int is_word(const char *bytes, const punctual_message *message, const char *word) {
    return message->size >= strlen(word) && memcmp(bytes, word, strlen(word)) == 0;
}

/* Receives one message, if one comes in time. 1: its sender says stop; 2: report, with what was sent to us. */
static int take(uint64_t timeout_ns, uint64_t *sent, punctual_address *source) {
    static char bytes[4096];
    punctual_message message;
    punctual_error error = punctual_communicator_receive(member, bytes, sizeof bytes, timeout_ns, &message);
    if (error == PUNCTUAL_EMPTY) return -1;
    check(error, "receive");
    received++;
    *source = message.source;
    if (is_word(bytes, &message, "stop")) return 1;
    if (is_word(bytes, &message, "report ")) {
        bytes[message.size] = 0;
        *sent = strtoull(bytes + 7, NULL, 10);
        return 2;
    }
    uint64_t words[40];
    memcpy(words, bytes, message.size < sizeof words ? message.size : sizeof words);
    int is_whole = message.size >= 8 && message.size == size_of(words[0]);
    for (size_t at = 0; is_whole && at < message.size / 8; at++) is_whole = words[at] == words[0];
    torn += !is_whole;
    return 0;
}

static size_t peers_of(punctual_peer *peers, size_t capacity) {
    size_t count;
    check(punctual_node_peers(node, peers, capacity, &count), "peers");
    return count < capacity ? count : capacity;
}

/* Receives until all that this peer sent is accounted for. */
static void settle(uint64_t peer, uint64_t sent) {
    punctual_peer peers[64];
    punctual_address source;
    uint64_t unused, sum = 0;
    for (int round = 0; round < 10000 && sum != sent; round++) {
        while (take(1000000, &unused, &source) >= 0) {}
        check(punctual_node_housekeep(node), "housekeep");
        for (size_t at = 0, count = peers_of(peers, 64); at < count; at++)
            if (peers[at].node == peer && peers[at].present) sum = peers[at].arrived + peers[at].lost;
    }
}

static void report(uint64_t peer) {
    punctual_peer peers[64];
    punctual_ledger ledger;
    uint64_t to_all, to_peer;
    check(punctual_node_ledger(node, &ledger, sizeof ledger), "ledger");
    check(punctual_node_sent_to(node, PUNCTUAL_EVERY_NODE, &to_all), "sent");
    check(punctual_node_sent_to(node, peer, &to_peer), "sent");
    printf("sent %" PRIu64 "\n", to_all + to_peer);
    printf("received %" PRIu64 "\ntorn %" PRIu64 "\n", received, torn);
    printf("delivered %" PRIu64 "\ndied %" PRIu64 "\ncorrupt %" PRIu64 "\nbad %" PRIu64 "\n", ledger.delivered,
        ledger.died, ledger.corrupt_peers, ledger.bad_frames);
    printf("unbalanced %d\n", ledger.copies != ledger.delivered + ledger.waiting + ledger.no_such_port +
            ledger.inbox_full + ledger.unread);
    for (size_t at = 0, count = peers_of(peers, 64); at < count; at++)
        printf("peer %016" PRIx64 " %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %u\n", peers[at].node,
            peers[at].incarnation, peers[at].arrived, peers[at].lost, peers[at].missing, peers[at].present);
    fflush(stdout);
}

static void be_steady(void) {
    punctual_address asker = {0, 0, 0};
    uint64_t number = 0, sent = 0;
    for (int said = 0; said != 1;) {
        punctual_error error = send_number(number);
        if (error == PUNCTUAL_OK) number++;
        else if (error != PUNCTUAL_FULL && error != PUNCTUAL_UNREACHABLE) check(error, "send");
        said = take(number % 64 == 0 ? 100000 : 0, &sent, &asker);
    }
    check(punctual_communicator_send(member, asker, "stopped", 7, 10 * SECOND_NS), "stopped");
    while (take(SECOND_NS, &sent, &asker) != 2) {}
    settle(asker.node, sent);
    check(punctual_communicator_send(member, asker, "reported", 8, 10 * SECOND_NS), "reported");
    report(asker.node);
    /* Its rings stay until the asker has read what is in them. */
    while (take(SECOND_NS, &sent, &asker) != 1) {}
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    punctual_bus bus;
    check(punctual_bus_shared(argv[3], &bus), "bus");
    check(punctual_bus_set_ring(bus, (size_t)atol(argv[4]), PUNCTUAL_OVERRUN), "ring");
    check(punctual_node_open(bus, argv[2], NULL, &node), "node");
    check(punctual_communicator_bind(node, PORT, NULL, &member), "port");
    if (strcmp(argv[1], "steady") == 0) {
        be_steady();
    } else {
        /* Its numbers say which life they are of. */
        for (uint64_t number = (uint64_t)getpid() << 32;;) {
            punctual_error error = send_number(number);
            if (error == PUNCTUAL_OK) number++;
            else if (error != PUNCTUAL_FULL && error != PUNCTUAL_UNREACHABLE) check(error, "send");
            uint64_t unused;
            punctual_address source;
            take(0, &unused, &source);
        }
    }
    check(punctual_communicator_close(member), "close");
    check(punctual_node_close(node), "close");
    check(punctual_bus_close(bus), "close");
    return 0;
}
