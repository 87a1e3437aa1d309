/* Wrong use is an error: closed and made-up handles, wrong threads, null pointers, wrong sizes, freed buffers, signals, forks. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <punctual.h>

#include "expect.h"

#define SECOND_NS UINT64_C(1000000000)

static punctual_bus bus;
static punctual_node here, there;
static punctual_communicator sender, receiver;
static punctual_address receivers, senders;

/* Two nodes, and a communicator at each. */
static void open_all(const char *name) {
    EXPECT(PUNCTUAL_OK, punctual_bus_loopback(name, &bus));
    EXPECT(PUNCTUAL_OK, punctual_node_open(bus, "here", NULL, &here));
    EXPECT(PUNCTUAL_OK, punctual_node_open(bus, "there", NULL, &there));
    EXPECT(PUNCTUAL_OK, punctual_communicator_bind(here, 1, NULL, &sender));
    EXPECT(PUNCTUAL_OK, punctual_communicator_bind(there, 7, NULL, &receiver));
    EXPECT(PUNCTUAL_OK, punctual_communicator_address(sender, &senders));
    EXPECT(PUNCTUAL_OK, punctual_communicator_address(receiver, &receivers));
}

static void close_all(void) {
    EXPECT(PUNCTUAL_OK, punctual_communicator_close(sender));
    EXPECT(PUNCTUAL_OK, punctual_communicator_close(receiver));
    EXPECT(PUNCTUAL_OK, punctual_node_close(here));
    EXPECT(PUNCTUAL_OK, punctual_node_close(there));
    EXPECT(PUNCTUAL_OK, punctual_bus_close(bus));
}

/* A message goes there, and is whole. */
static void exchange(void) {
    char buffer[8] = {0};
    punctual_message message;
    EXPECT(PUNCTUAL_OK, punctual_communicator_send(sender, receivers, "hello", 5, SECOND_NS));
    EXPECT(PUNCTUAL_OK, punctual_communicator_receive(receiver, buffer, sizeof buffer, SECOND_NS, &message));
    CHECK(message.size == 5 && memcmp(buffer, "hello", 5) == 0 && message.source.node == senders.node);
    CHECK(message.source.port == 1 && message.target.port == 7 && message.target.node == receivers.node);
}

/* Every function that takes a handle, with one that names nothing. */
static void refuse(uint64_t number) {
    punctual_bus no_bus = {number};
    punctual_node no_node = {number}, node;
    punctual_communicator no_communicator = {number}, communicator;
    punctual_publication no_publication = {number}, publication;
    punctual_subscription no_subscription = {number}, subscription;
    punctual_address address;
    punctual_message message;
    punctual_ledger ledger;
    char buffer[8];
    uint64_t count;
    size_t size;
    int word;
    EXPECT(PUNCTUAL_CLOSED, punctual_bus_set_ring(no_bus, 4096, PUNCTUAL_OVERRUN));
    EXPECT(PUNCTUAL_CLOSED, punctual_bus_seal(no_bus, "keys", NULL));
    EXPECT(PUNCTUAL_CLOSED, punctual_bus_close(no_bus));
    EXPECT(PUNCTUAL_CLOSED, punctual_node_open(no_bus, "node", NULL, &node));
    EXPECT(PUNCTUAL_CLOSED, punctual_node_id(no_node, &count));
    EXPECT(PUNCTUAL_CLOSED, punctual_node_message_size_max(no_node, &size));
    EXPECT(PUNCTUAL_CLOSED, punctual_node_ledger(no_node, &ledger, sizeof ledger));
    EXPECT(PUNCTUAL_CLOSED, punctual_node_peers(no_node, NULL, 0, &size));
    EXPECT(PUNCTUAL_CLOSED, punctual_node_sent_to(no_node, PUNCTUAL_EVERY_NODE, &count));
    EXPECT(PUNCTUAL_CLOSED, punctual_node_housekeep(no_node));
    EXPECT(PUNCTUAL_CLOSED, punctual_node_close(no_node));
    EXPECT(PUNCTUAL_CLOSED, punctual_communicator_bind(no_node, 9, NULL, &communicator));
    EXPECT(PUNCTUAL_CLOSED, punctual_communicator_address(no_communicator, &address));
    EXPECT(PUNCTUAL_CLOSED, punctual_communicator_try_send(no_communicator, receivers, "a", 1));
    EXPECT(PUNCTUAL_CLOSED, punctual_communicator_send(no_communicator, receivers, "a", 1, 0));
    EXPECT(PUNCTUAL_CLOSED, punctual_communicator_queue(no_communicator, receivers, "a", 1));
    EXPECT(PUNCTUAL_CLOSED, punctual_communicator_flush(no_communicator));
    EXPECT(PUNCTUAL_CLOSED,
        punctual_communicator_receive(no_communicator, buffer, sizeof buffer, PUNCTUAL_FOREVER, &message));
    EXPECT(PUNCTUAL_CLOSED, punctual_communicator_descriptor(no_communicator, &word));
    EXPECT(PUNCTUAL_CLOSED, punctual_communicator_arm(no_communicator, &word));
    EXPECT(PUNCTUAL_CLOSED, punctual_communicator_detach(no_communicator));
    EXPECT(PUNCTUAL_CLOSED, punctual_communicator_close(no_communicator));
    EXPECT(PUNCTUAL_CLOSED, punctual_publication_open(no_node, receivers, NULL, &publication));
    EXPECT(PUNCTUAL_CLOSED, punctual_publication_offer(no_publication, "a", 1, PUNCTUAL_FOREVER));
    EXPECT(PUNCTUAL_CLOSED, punctual_publication_detach(no_publication));
    EXPECT(PUNCTUAL_CLOSED, punctual_publication_close(no_publication));
    EXPECT(PUNCTUAL_CLOSED, punctual_subscription_open(no_node, 9, PUNCTUAL_WAKE_ADAPTIVE, &subscription));
    EXPECT(PUNCTUAL_CLOSED,
        punctual_subscription_receive(no_subscription, buffer, sizeof buffer, PUNCTUAL_FOREVER, &message));
    EXPECT(PUNCTUAL_CLOSED, punctual_subscription_descriptor(no_subscription, &word));
    EXPECT(PUNCTUAL_CLOSED, punctual_subscription_arm(no_subscription, &word));
    EXPECT(PUNCTUAL_CLOSED, punctual_subscription_detach(no_subscription));
    EXPECT(PUNCTUAL_CLOSED, punctual_subscription_close(no_subscription));
}

static void handles(void) {
    open_all("misuse-handles");
    uint64_t numbers[] = {0, 1, UINT64_MAX, UINT64_C(0xFFFFFFFF00000000), UINT64_C(0x7FFF000000030000),
        (uint64_t)(uintptr_t)&bus, sender.value ^ 0x800, sender.value ^ UINT64_C(1) << 63, sender.value + 4096,
        here.value ^ UINT64_C(1) << 40};
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++) refuse(numbers[at]);
    /* One kind's is not another's. */
    punctual_communicator as_communicator = {here.value};
    punctual_node as_node = {sender.value};
    EXPECT(PUNCTUAL_CLOSED, punctual_communicator_flush(as_communicator));
    EXPECT(PUNCTUAL_CLOSED, punctual_node_housekeep(as_node));
    exchange();

    /* Closed stays closed, also when another has its place. */
    punctual_communicator closed;
    EXPECT(PUNCTUAL_OK, punctual_communicator_bind(here, 2, NULL, &closed));
    EXPECT(PUNCTUAL_OK, punctual_communicator_close(closed));
    refuse(closed.value);
    punctual_communicator next;
    EXPECT(PUNCTUAL_OK, punctual_communicator_bind(here, 2, NULL, &next));
    CHECK(next.value != closed.value);
    refuse(closed.value);
    EXPECT(PUNCTUAL_OK, punctual_communicator_close(next));
    EXPECT(PUNCTUAL_CLOSED, punctual_communicator_close(next));

    /* With its node's handle closed a communicator goes on. */
    EXPECT(PUNCTUAL_OK, punctual_node_close(here));
    EXPECT(PUNCTUAL_CLOSED, punctual_node_close(here));
    EXPECT(PUNCTUAL_CLOSED, punctual_communicator_bind(here, 3, NULL, &next));
    exchange();
    EXPECT(PUNCTUAL_NODE_TAKEN, punctual_node_open(bus, "here", NULL, &here));
    EXPECT(PUNCTUAL_OK, punctual_communicator_close(sender));
    EXPECT(PUNCTUAL_OK, punctual_node_open(bus, "here", NULL, &here));
    EXPECT(PUNCTUAL_OK, punctual_communicator_bind(here, 1, NULL, &sender));
    exchange();
    close_all();
    refuse(sender.value);
    refuse(here.value);
    refuse(bus.value);
}

static void pointers(void) {
    open_all("misuse-pointers");
    punctual_message message;
    char buffer[8];
    size_t size;
    const char *list[] = {"127.0.0.1:1", NULL};
    EXPECT(PUNCTUAL_NULL, punctual_bus_loopback(NULL, &bus));
    EXPECT(PUNCTUAL_NULL, punctual_bus_loopback("name", NULL));
    EXPECT(PUNCTUAL_NULL, punctual_bus_shared(NULL, &bus));
    EXPECT(PUNCTUAL_NULL, punctual_bus_shared_with_group(NULL, 0, &bus));
    EXPECT(PUNCTUAL_NULL, punctual_bus_multicast(NULL, "127.0.0.1", &bus));
    EXPECT(PUNCTUAL_NULL, punctual_bus_multicast("239.1.1.1:1", NULL, &bus));
    EXPECT(PUNCTUAL_NULL, punctual_bus_peers("127.0.0.1:1", NULL, 1, &bus));
    EXPECT(PUNCTUAL_NULL, punctual_bus_peers("127.0.0.1:1", list, 2, &bus));
    EXPECT(PUNCTUAL_NULL, punctual_bus_ethernet(NULL, &bus));
    EXPECT(PUNCTUAL_NULL, punctual_bus_seal(bus, NULL, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_node_open(bus, NULL, NULL, &here));
    EXPECT(PUNCTUAL_NULL, punctual_node_open(bus, "name", NULL, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_node_id_of_name(NULL, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_node_id(here, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_node_message_size_max(here, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_node_ledger(here, NULL, sizeof(punctual_ledger)));
    EXPECT(PUNCTUAL_NULL, punctual_node_peers(here, NULL, 1, &size));
    EXPECT(PUNCTUAL_NULL, punctual_node_peers(here, NULL, 0, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_node_sent_to(here, PUNCTUAL_EVERY_NODE, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_communicator_bind(here, 9, NULL, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_communicator_address(sender, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_communicator_try_send(sender, receivers, NULL, 1));
    EXPECT(PUNCTUAL_NULL, punctual_communicator_send(sender, receivers, NULL, 1, 0));
    EXPECT(PUNCTUAL_NULL, punctual_communicator_queue(sender, receivers, NULL, 1));
    EXPECT(PUNCTUAL_NULL, punctual_communicator_receive(receiver, NULL, 1, 0, &message));
    EXPECT(PUNCTUAL_NULL, punctual_communicator_receive(receiver, buffer, sizeof buffer, 0, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_communicator_descriptor(receiver, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_communicator_arm(receiver, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_publication_open(here, receivers, NULL, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_subscription_open(here, 9, PUNCTUAL_WAKE_ADAPTIVE, NULL));
    CHECK(strstr(punctual_last_error(), "subscription") != NULL);
    /* A result that lies between two places. */
    char places[2 * sizeof message];
    punctual_message *between = (punctual_message *)(void *)(places + (1 - ((uintptr_t)places & 1)));
    EXPECT(PUNCTUAL_INVALID, punctual_communicator_receive(receiver, buffer, sizeof buffer, 0, between));
    /* Nothing can be null, and is a message too. */
    EXPECT(PUNCTUAL_OK, punctual_communicator_try_send(sender, receivers, NULL, 0));
    EXPECT(PUNCTUAL_OK, punctual_communicator_receive(receiver, NULL, 0, SECOND_NS, &message));
    CHECK(message.size == 0);
    exchange();
    close_all();
}

static void sizes(void) {
    open_all("misuse-sizes");
    punctual_message message;
    char buffer[8] = "before";
    size_t size_max;
    /* A message that does not fit is kept, in its order. */
    EXPECT(PUNCTUAL_OK, punctual_communicator_send(sender, receivers, "0123456789", 10, SECOND_NS));
    EXPECT(PUNCTUAL_OK, punctual_communicator_send(sender, receivers, "second", 6, SECOND_NS));
    for (int again = 0; again < 3; again++) {
        EXPECT(PUNCTUAL_BUFFER_TOO_SMALL,
            punctual_communicator_receive(receiver, buffer, sizeof buffer, SECOND_NS, &message));
        CHECK(message.size == 10 && strcmp(buffer, "before") == 0);
        CHECK(strstr(punctual_last_error(), "10 bytes") != NULL);
    }
    int armed = 1;
    EXPECT(PUNCTUAL_OK, punctual_communicator_arm(receiver, &armed));
    CHECK(!armed);
    char *exact = (char *)malloc(10);
    EXPECT(PUNCTUAL_OK, punctual_communicator_receive(receiver, exact, 10, 0, &message));
    CHECK(message.size == 10 && memcmp(exact, "0123456789", 10) == 0);
    free(exact);
    EXPECT(PUNCTUAL_OK, punctual_communicator_receive(receiver, buffer, sizeof buffer, 0, &message));
    CHECK(message.size == 6 && memcmp(buffer, "second", 6) == 0);
    EXPECT(PUNCTUAL_EMPTY, punctual_communicator_receive(receiver, buffer, sizeof buffer, 0, &message));

    EXPECT(PUNCTUAL_OK, punctual_node_message_size_max(here, &size_max));
    char *long_one = (char *)calloc(1, size_max + 1);
    EXPECT(PUNCTUAL_TOO_LONG, punctual_communicator_try_send(sender, receivers, long_one, size_max + 1));
    EXPECT(PUNCTUAL_TOO_LONG, punctual_communicator_send(sender, receivers, long_one, size_max + 1, PUNCTUAL_FOREVER));
    EXPECT(PUNCTUAL_INVALID, punctual_communicator_try_send(sender, receivers, long_one, SIZE_MAX));
    EXPECT(PUNCTUAL_INVALID, punctual_communicator_receive(receiver, long_one, SIZE_MAX, 0, &message));
    /* No buffer is looked at once a function has returned: what is freed then is whole where it arrives. */
    memset(long_one, 'x', size_max);
    EXPECT(PUNCTUAL_OK, punctual_communicator_try_send(sender, receivers, long_one, size_max));
    memset(long_one, 0, size_max);
    free(long_one);
    char *received = (char *)malloc(size_max);
    EXPECT(PUNCTUAL_OK, punctual_communicator_receive(receiver, received, size_max, SECOND_NS, &message));
    CHECK(message.size == size_max && received[0] == 'x' && received[size_max - 1] == 'x');
    free(received);

    punctual_ledger ledger;
    EXPECT(PUNCTUAL_INVALID, punctual_node_ledger(here, &ledger, sizeof ledger - 8));
    EXPECT(PUNCTUAL_OK, punctual_node_ledger(here, &ledger, sizeof ledger));
    CHECK(ledger.sent == 3);
    exchange();

    /* Messages larger than a frame are for nodes that asked for them: their size is the limit then, and others take no part of it. */
    punctual_node_options options = PUNCTUAL_NODE_OPTIONS_INIT;
    punctual_node asked;
    punctual_communicator asker;
    options.message_size_max = 2 * size_max;
    EXPECT(PUNCTUAL_OK, punctual_node_open(bus, "asked", &options, &asked));
    EXPECT(PUNCTUAL_OK, punctual_communicator_bind(asked, 1, NULL, &asker));
    EXPECT(PUNCTUAL_OK, punctual_node_message_size_max(asked, &size_max));
    CHECK(size_max == options.message_size_max);
    long_one = (char *)calloc(1, size_max + 1);
    EXPECT(PUNCTUAL_TOO_LONG, punctual_communicator_try_send(asker, receivers, long_one, size_max + 1));
    EXPECT(PUNCTUAL_TOO_LONG, punctual_communicator_send(asker, receivers, long_one, size_max + 1, SECOND_NS));
    EXPECT(PUNCTUAL_TOO_LONG, punctual_communicator_queue(asker, receivers, long_one, size_max + 1));
    CHECK(strstr(punctual_last_error(), "message_size_max") != NULL);
    EXPECT(PUNCTUAL_NULL, punctual_communicator_send(asker, receivers, NULL, size_max, SECOND_NS));
    EXPECT(PUNCTUAL_OK, punctual_communicator_try_send(asker, receivers, long_one, size_max));
    EXPECT(PUNCTUAL_EMPTY, punctual_communicator_receive(receiver, long_one, size_max, 0, &message));
    free(long_one);
    EXPECT(PUNCTUAL_OK, punctual_node_ledger(there, &ledger, sizeof ledger));
    CHECK(ledger.fragments_refused >= 3 && ledger.large_delivered == 0);
    EXPECT(PUNCTUAL_OK, punctual_communicator_close(asker));
    EXPECT(PUNCTUAL_OK, punctual_node_close(asked));
    exchange();
    close_all();
}

/* No byte beside a buffer changes, at any size and place. */
static void places(void) {
    open_all("misuse-places");
    static char sent[600], room[800];
    punctual_message message;
    for (size_t size = 0; size < sizeof sent; size += size < 200 ? 1 : 37) {
        for (size_t at = 100; at < 110; at += 3) {
            memset(sent, (int)(size % 100 + 1), size);
            memset(room, 0, sizeof room);
            EXPECT(PUNCTUAL_OK, punctual_communicator_send(sender, receivers, sent, size, SECOND_NS));
            if (size > 0)
                EXPECT(PUNCTUAL_BUFFER_TOO_SMALL,
                    punctual_communicator_receive(receiver, room + at, size - 1, SECOND_NS, &message));
            for (size_t byte = 0; byte < sizeof room; byte++) CHECK(room[byte] == 0);
            EXPECT(PUNCTUAL_OK, punctual_communicator_receive(receiver, room + at, size, SECOND_NS, &message));
            CHECK(message.size == size && message.source.port == 1);
            for (size_t byte = 0; byte < sizeof room; byte++)
                CHECK(room[byte] == (byte >= at && byte < at + size ? (char)(size % 100 + 1) : 0));
        }
    }
    close_all();
}

static void numbers(void) {
    open_all("misuse-numbers");
    punctual_bus other;
    punctual_node node;
    punctual_communicator communicator;
    punctual_publication publication;
    punctual_subscription subscription;
    punctual_address wrong[] = {{0, 7, 0}, {receivers.node, 65536, 0}, {receivers.node, UINT32_MAX, 0}};
    for (int at = 0; at < 3; at++) {
        EXPECT(PUNCTUAL_INVALID, punctual_communicator_try_send(sender, wrong[at], "a", 1));
        EXPECT(PUNCTUAL_INVALID, punctual_publication_open(here, wrong[at], NULL, &publication));
    }
    punctual_address nobody = {receivers.node ^ 1, 7, 0};
    EXPECT(PUNCTUAL_UNREACHABLE, punctual_communicator_try_send(sender, nobody, "a", 1));
    EXPECT(PUNCTUAL_INVALID, punctual_communicator_bind(here, PUNCTUAL_EVERY_PORT, NULL, &communicator));
    EXPECT(PUNCTUAL_INVALID, punctual_communicator_bind(here, 70000, NULL, &communicator));
    EXPECT(PUNCTUAL_PORT_TAKEN, punctual_communicator_bind(here, 1, NULL, &communicator));
    EXPECT(PUNCTUAL_INVALID, punctual_subscription_open(here, 9, 99, &subscription));
    EXPECT(PUNCTUAL_CANNOT_WAIT, punctual_subscription_open(here, 9, PUNCTUAL_WAKE_SIGNAL, &subscription));
    EXPECT(PUNCTUAL_INVALID, punctual_node_open(bus, "no name", NULL, &node));
    EXPECT(PUNCTUAL_INVALID, punctual_node_open(bus, "\xff\xfe", NULL, &node));
    EXPECT(PUNCTUAL_NODE_TAKEN, punctual_node_open(bus, "here", NULL, &node));
    CHECK(strstr(punctual_last_error(), "another name") != NULL);
    EXPECT(PUNCTUAL_INVALID, punctual_bus_multicast("here", "127.0.0.1", &other));
    EXPECT(PUNCTUAL_INVALID, punctual_bus_multicast("239.1.1.1:7", "eth0", &other));
    EXPECT(PUNCTUAL_INVALID, punctual_bus_peers("127.0.0.1", NULL, 0, &other));
    EXPECT(PUNCTUAL_INVALID, punctual_bus_set_ring(bus, 4096, PUNCTUAL_AS_THE_BUS));
    EXPECT(PUNCTUAL_KEYS, punctual_bus_seal(bus, "/nowhere/keys", NULL));

    punctual_node_options for_node = PUNCTUAL_NODE_OPTIONS_INIT;
    for_node.struct_size = 1;
    EXPECT(PUNCTUAL_INVALID, punctual_node_open(bus, "other", &for_node, &node));
    for_node.struct_size = sizeof for_node;
    for_node.id = UINT64_MAX;
    EXPECT(PUNCTUAL_INVALID, punctual_node_open(bus, "other", &for_node, &node));
    for_node.id = 0;
    size_t beyond[] = {(64 << 20) + 1, SIZE_MAX / 2, SIZE_MAX};
    for (int at = 0; at < 3; at++) {
        for_node.message_size_max = beyond[at];
        EXPECT(PUNCTUAL_INVALID, punctual_node_open(bus, "other", &for_node, &node));
        CHECK(strstr(punctual_last_error(), "at most 67108864") != NULL);
    }
    punctual_communicator_options for_communicator = PUNCTUAL_COMMUNICATOR_OPTIONS_INIT;
    for_communicator.wake = 99;
    EXPECT(PUNCTUAL_INVALID, punctual_communicator_bind(here, 9, &for_communicator, &communicator));
    for_communicator.wake = PUNCTUAL_WAKE_SIGNAL;
    EXPECT(PUNCTUAL_CANNOT_WAIT, punctual_communicator_bind(here, 9, &for_communicator, &communicator));
    for_communicator.wake = PUNCTUAL_WAKE_FUTEX;
    for_communicator.stamps = 2;
    EXPECT(PUNCTUAL_INVALID, punctual_communicator_bind(here, 9, &for_communicator, &communicator));
    punctual_publication_options for_publication = PUNCTUAL_PUBLICATION_OPTIONS_INIT;
    for_publication.ring_size = 5000;
    EXPECT(PUNCTUAL_INVALID, punctual_publication_open(here, receivers, &for_publication, &publication));
    for_publication.ring_size = 0;
    for_publication.when_full = 3;
    EXPECT(PUNCTUAL_INVALID, punctual_publication_open(here, receivers, &for_publication, &publication));

    /* As many as can be, and one more. */
    static punctual_bus many[4097];
    size_t open = 0;
    while (open < 4097 && punctual_bus_loopback("one-of-many", &many[open]) == PUNCTUAL_OK) open++;
    CHECK(open == 4095); /* and `bus` */
    EXPECT(PUNCTUAL_TOO_MANY, punctual_bus_loopback("one-too-many", &other));
    while (open-- > 0) EXPECT(PUNCTUAL_OK, punctual_bus_close(many[open]));
    exchange();
    close_all();
}

static void *as_stranger(void *unused) {
    punctual_message message;
    punctual_address address;
    char buffer[8];
    int word;
    (void)unused;
    EXPECT(PUNCTUAL_WRONG_THREAD, punctual_communicator_try_send(sender, receivers, "a", 1));
    EXPECT(PUNCTUAL_WRONG_THREAD, punctual_communicator_send(sender, receivers, "a", 1, PUNCTUAL_FOREVER));
    EXPECT(PUNCTUAL_WRONG_THREAD, punctual_communicator_queue(sender, receivers, "a", 1));
    EXPECT(PUNCTUAL_WRONG_THREAD, punctual_communicator_flush(sender));
    EXPECT(PUNCTUAL_WRONG_THREAD,
        punctual_communicator_receive(receiver, buffer, sizeof buffer, PUNCTUAL_FOREVER, &message));
    EXPECT(PUNCTUAL_WRONG_THREAD, punctual_communicator_address(sender, &address));
    EXPECT(PUNCTUAL_WRONG_THREAD, punctual_communicator_descriptor(sender, &word));
    EXPECT(PUNCTUAL_WRONG_THREAD, punctual_communicator_arm(sender, &word));
    EXPECT(PUNCTUAL_WRONG_THREAD, punctual_communicator_detach(sender));
    EXPECT(PUNCTUAL_WRONG_THREAD, punctual_communicator_close(sender));
    CHECK(strstr(punctual_last_error(), "belongs to the thread") != NULL);
    EXPECT(PUNCTUAL_OK, punctual_node_housekeep(here)); /* nodes are everybody's */
    return NULL;
}

static void *as_owner(void *unused) {
    (void)unused;
    exchange();
    return NULL;
}

static void run(void *(*body)(void *)) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static void exchange_at_end(void *unused) {
    (void)unused;
    exchange();
}

static pthread_key_t at_end;

/* It uses them, and once more when all that it had was given up: as C++ destroys what is thread_local. */
static void *as_late_owner(void *unused) {
    (void)unused;
    CHECK(pthread_setspecific(at_end, &at_end) == 0);
    exchange();
    return NULL;
}

static void threads(void) {
    open_all("misuse-threads");
    run(as_stranger);
    exchange();
    EXPECT(PUNCTUAL_OK, punctual_communicator_detach(sender));
    EXPECT(PUNCTUAL_OK, punctual_communicator_detach(receiver));
    run(as_owner); /* and it ends without detaching */
    exchange();
    EXPECT(PUNCTUAL_OK, punctual_communicator_detach(sender));
    EXPECT(PUNCTUAL_OK, punctual_communicator_detach(receiver));
    CHECK(pthread_key_create(&at_end, exchange_at_end) == 0);
    run(as_late_owner);
    exchange();
    run(as_stranger);
    close_all();
}

static punctual_error in_handler;

static void handle_alarm(int signal) {
    punctual_message message;
    char buffer[8];
    (void)signal;
    in_handler = punctual_communicator_receive(receiver, buffer, sizeof buffer, PUNCTUAL_FOREVER, &message);
}

static void signals(void) {
    open_all("misuse-signals");
    punctual_message message;
    char buffer[8];
    struct itimerval soon;
    memset(&soon, 0, sizeof soon);
    soon.it_value.tv_usec = 50000;
    signal(SIGALRM, handle_alarm);
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
    EXPECT(PUNCTUAL_EMPTY, punctual_communicator_receive(receiver, buffer, sizeof buffer, SECOND_NS / 5, &message));
    CHECK(in_handler == PUNCTUAL_BUSY);
    exchange();
    close_all();
}

static void forks(void) {
    open_all("misuse-forks");
    punctual_communicator unused;
    EXPECT(PUNCTUAL_OK, punctual_communicator_bind(here, 5, NULL, &unused));
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        EXPECT(PUNCTUAL_WRONG_THREAD, punctual_communicator_try_send(sender, receivers, "a", 1));
        EXPECT(PUNCTUAL_WRONG_THREAD, punctual_communicator_close(sender));
        EXPECT(PUNCTUAL_WRONG_THREAD, punctual_communicator_flush(unused));
        EXPECT(PUNCTUAL_WRONG_THREAD, punctual_node_housekeep(here));
        EXPECT(PUNCTUAL_WRONG_THREAD, punctual_node_close(here));
        open_all("misuse-of-child");
        exchange();
        close_all();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    exchange();
    EXPECT(PUNCTUAL_OK, punctual_communicator_close(unused));
    close_all();
}

/* Descriptors for event loops become readable when they should, and only then. */
static void loops(void) {
    open_all("misuse-loops");
    struct pollfd wait = {0, POLLIN, 0};
    punctual_message message;
    char buffer[8];
    int armed = 0;
    EXPECT(PUNCTUAL_OK, punctual_communicator_descriptor(receiver, &wait.fd));
    EXPECT(PUNCTUAL_EMPTY, punctual_communicator_receive(receiver, buffer, sizeof buffer, 0, &message));
    EXPECT(PUNCTUAL_OK, punctual_communicator_arm(receiver, &armed));
    CHECK(armed == 1 && poll(&wait, 1, 0) == 0);
    EXPECT(PUNCTUAL_OK, punctual_communicator_try_send(sender, receivers, "wake up", 7));
    CHECK(poll(&wait, 1, 10000) == 1);
    EXPECT(PUNCTUAL_OK, punctual_communicator_receive(receiver, buffer, sizeof buffer, 0, &message));
    CHECK(message.size == 7);
    EXPECT(PUNCTUAL_OK, punctual_communicator_queue(sender, receivers, "one", 3));
    EXPECT(PUNCTUAL_OK, punctual_communicator_queue(sender, receivers, "two", 3));
    EXPECT(PUNCTUAL_OK, punctual_communicator_flush(sender));
    for (int queued = 0; queued < 2; queued++)
        EXPECT(PUNCTUAL_OK, punctual_communicator_receive(receiver, buffer, sizeof buffer, SECOND_NS, &message));
    close_all();
}

/* A sealed bus hears nodes with the key, and no others. */
static void seals(void) {
    char path[] = "/tmp/punctual-keys-XXXXXX";
    static const char key[] = "7 1 000102030405060708090a0b0c0d0e0f\n";
    int file = mkstemp(path);
    CHECK(file >= 0 && write(file, key, sizeof key - 1) == (ssize_t)(sizeof key - 1) && fchmod(file, 0644) == 0);
    EXPECT(PUNCTUAL_OK, punctual_bus_loopback("misuse-seals", &bus));
    EXPECT(PUNCTUAL_KEYS, punctual_bus_seal(bus, path, NULL));
    CHECK(strstr(punctual_last_error(), "chmod 600") != NULL && strstr(punctual_last_error(), "0001") == NULL);
    CHECK(fchmod(file, 0600) == 0);
    EXPECT(PUNCTUAL_OK, punctual_bus_seal(bus, path, NULL));
    EXPECT(PUNCTUAL_INVALID, punctual_bus_set_ring(bus, 4096, PUNCTUAL_OVERRUN));
    CHECK(close(file) == 0 && unlink(path) == 0);
    EXPECT(PUNCTUAL_OK, punctual_node_open(bus, "here", NULL, &here));
    EXPECT(PUNCTUAL_OK, punctual_node_open(bus, "there", NULL, &there));
    EXPECT(PUNCTUAL_OK, punctual_communicator_bind(here, 1, NULL, &sender));
    EXPECT(PUNCTUAL_OK, punctual_communicator_bind(there, 7, NULL, &receiver));
    EXPECT(PUNCTUAL_OK, punctual_communicator_address(sender, &senders));
    EXPECT(PUNCTUAL_OK, punctual_communicator_address(receiver, &receivers));
    exchange();
    punctual_message message;
    EXPECT(PUNCTUAL_OK, punctual_communicator_try_send(sender, receivers, NULL, 0));
    EXPECT(PUNCTUAL_OK, punctual_communicator_receive(receiver, NULL, 0, SECOND_NS, &message));
    CHECK(message.is_sealed == 1 && message.sealed_in == 7);
    close_all();
}

/* In memory a peer's ring may carry more than its receiver could send: the size that is told is enough. */
static void larger_rings(void) {
    open_all("misuse-larger-rings");
    const size_t size = 512 << 10;
    punctual_publication publication;
    punctual_message message;
    size_t size_max;
    EXPECT(PUNCTUAL_OK, punctual_node_message_size_max(there, &size_max));
    CHECK(size_max < size);
    punctual_publication_options options = PUNCTUAL_PUBLICATION_OPTIONS_INIT;
    options.ring_size = 4 << 20;
    EXPECT(PUNCTUAL_OK, punctual_publication_open(here, receivers, &options, &publication));
    char *sent = (char *)malloc(size), *received = (char *)malloc(size_max);
    memset(sent, 'x', size);
    EXPECT(PUNCTUAL_OK, punctual_publication_offer(publication, sent, size, SECOND_NS));
    EXPECT(PUNCTUAL_OK, punctual_publication_offer(publication, "second", 6, SECOND_NS));
    for (int again = 0; again < 2; again++) {
        EXPECT(PUNCTUAL_BUFFER_TOO_SMALL,
            punctual_communicator_receive(receiver, received, size_max, SECOND_NS, &message));
        CHECK(message.size == size);
    }
    received = (char *)realloc(received, message.size);
    EXPECT(PUNCTUAL_OK, punctual_communicator_receive(receiver, received, message.size, SECOND_NS, &message));
    CHECK(message.size == size && memcmp(received, sent, size) == 0);
    EXPECT(PUNCTUAL_OK, punctual_communicator_receive(receiver, received, size, SECOND_NS, &message));
    CHECK(message.size == 6 && memcmp(received, "second", 6) == 0);
    free(received);
    free(sent);
    EXPECT(PUNCTUAL_OK, punctual_publication_close(publication));
    close_all();
}

static void streams(void) {
    open_all("misuse-streams");
    punctual_bus udp;
    punctual_node over_udp;
    punctual_publication publication;
    punctual_subscription subscription;
    punctual_message message;
    char buffer[4];
    punctual_address target = {receivers.node, 8, 0};
    EXPECT(PUNCTUAL_OK, punctual_bus_peers("127.0.0.1:0", NULL, 0, &udp));
    EXPECT(PUNCTUAL_OK, punctual_node_open(udp, "over-udp", NULL, &over_udp));
    EXPECT(PUNCTUAL_NO_STREAMS, punctual_publication_open(over_udp, target, NULL, &publication));
    EXPECT(PUNCTUAL_NO_STREAMS, punctual_subscription_open(over_udp, 8, PUNCTUAL_WAKE_ADAPTIVE, &subscription));
    EXPECT(PUNCTUAL_OK, punctual_node_close(over_udp));
    EXPECT(PUNCTUAL_OK, punctual_bus_close(udp));

    punctual_publication_options options = PUNCTUAL_PUBLICATION_OPTIONS_INIT;
    options.ring_size = 4096;
    options.when_full = PUNCTUAL_HOLD_BACK;
    options.stamps = 1;
    options.source = 33;
    EXPECT(PUNCTUAL_OK, punctual_publication_open(here, target, &options, &publication));
    EXPECT(PUNCTUAL_UNREACHABLE, punctual_publication_offer(publication, "a", 1, 0));
    EXPECT(PUNCTUAL_OK, punctual_subscription_open(there, 8, PUNCTUAL_WAKE_FUTEX, &subscription));
    EXPECT(PUNCTUAL_OK, punctual_publication_offer(publication, "hello", 5, SECOND_NS));
    EXPECT(PUNCTUAL_BUFFER_TOO_SMALL,
        punctual_subscription_receive(subscription, buffer, sizeof buffer, SECOND_NS, &message));
    CHECK(message.size == 5);
    char larger[5];
    EXPECT(PUNCTUAL_OK, punctual_subscription_receive(subscription, larger, sizeof larger, 0, &message));
    CHECK(memcmp(larger, "hello", 5) == 0 && message.source.port == 33 && message.target.port == 8);
    CHECK(message.latency_ns > 0);
    EXPECT(PUNCTUAL_EMPTY, punctual_subscription_receive(subscription, larger, sizeof larger, 1000, &message));
    punctual_error filled = PUNCTUAL_OK;
    for (int sent = 0; sent < 4096 && filled == PUNCTUAL_OK; sent++)
        filled = punctual_publication_offer(publication, "hello", 5, 0);
    CHECK(filled == PUNCTUAL_FULL);
    EXPECT(PUNCTUAL_FULL, punctual_publication_offer(publication, "hello", 5, 1000000));
    EXPECT(PUNCTUAL_TOO_LONG, punctual_publication_offer(publication, buffer, 4096, 0));
    CHECK(strstr(punctual_last_error(), "ring") != NULL);
    EXPECT(PUNCTUAL_OK, punctual_subscription_close(subscription));
    EXPECT(PUNCTUAL_CLOSED, punctual_subscription_close(subscription));
    EXPECT(PUNCTUAL_OK, punctual_publication_close(publication));
    EXPECT(PUNCTUAL_CLOSED, punctual_publication_offer(publication, "a", 1, 0));
    close_all();
}

int main(void) {
    handles();
    pointers();
    sizes();
    places();
    numbers();
    threads();
    signals();
    forks();
    loops();
    seals();
    larger_rings();
    streams();
    puts("refused");
    return 0;
}
