/* Publishers and subscribers: subscribers get values of a topic, between C and other languages; wrong use is an error.
 *
 * interest                       wrong use, in this process
 * interest publish BUS           a publisher of "speed" on a bus of shared memory, until it is served no more
 * interest subscribe BUS COUNT   a subscriber to it */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <punctual.h>

#include "expect.h"

#define SECOND_NS UINT64_C(1000000000)
#define PERIOD_NS UINT64_C(2000000)

static punctual_bus bus;
static punctual_node here, there;
static punctual_publisher publisher;
static punctual_subscriber subscriber;

static punctual_topic speed(void) {
    punctual_topic topic = PUNCTUAL_TOPIC_INIT;
    topic.name = "speed";
    topic.unit = "m/s";
    topic.format = PUNCTUAL_FORMAT_F32;
    topic.count = 2;
    return topic;
}

static void open_all(const char *name) {
    punctual_topic topic = speed();
    punctual_interest_options options = PUNCTUAL_INTEREST_OPTIONS_INIT;
    options.stamps = 1;
    EXPECT(PUNCTUAL_OK, punctual_bus_loopback(name, &bus));
    EXPECT(PUNCTUAL_OK, punctual_node_open(bus, "here", NULL, &here));
    EXPECT(PUNCTUAL_OK, punctual_node_open(bus, "there", NULL, &there));
    EXPECT(PUNCTUAL_OK, punctual_publisher_open(here, 1, &topic, &options, &publisher));
    EXPECT(PUNCTUAL_OK, punctual_subscriber_open(there, 7, &topic, PERIOD_NS, NULL, &subscriber));
}

static void close_all(void) {
    EXPECT(PUNCTUAL_OK, punctual_subscriber_close(subscriber));
    EXPECT(PUNCTUAL_OK, punctual_publisher_close(publisher));
    EXPECT(PUNCTUAL_OK, punctual_node_close(here));
    EXPECT(PUNCTUAL_OK, punctual_node_close(there));
    EXPECT(PUNCTUAL_OK, punctual_bus_close(bus));
}

/* The next value is wanted, published and received. */
static void exchange(void) {
    punctual_response response;
    punctual_due due;
    float sent[2], value[2] = {0, 0};
    punctual_error received = PUNCTUAL_EMPTY;
    /* Where the machine was away between two steps the interest may have ended: then it is said again. */
    for (int tries = 0; received == PUNCTUAL_EMPTY && tries < 100; tries++) {
        /* Says what it wants, and takes what is under way. */
        while (punctual_subscriber_receive(subscriber, value, sizeof value, 0, &response) == PUNCTUAL_OK) continue;
        EXPECT(PUNCTUAL_OK, punctual_publisher_next_due(publisher, 10 * SECOND_NS, &due));
        sent[0] = 13.5F;
        sent[1] = (float)due.offset_us;
        EXPECT(PUNCTUAL_OK, punctual_publisher_publish(publisher, sent, sizeof sent));
        memset(sent, 0, sizeof sent);
        received = punctual_subscriber_receive(subscriber, value, sizeof value, SECOND_NS / 10, &response);
    }
    EXPECT(PUNCTUAL_OK, received);
    CHECK(value[0] == 13.5F && value[1] == (float)due.offset_us && response.size == sizeof value);
    CHECK(response.offset_us == due.offset_us && response.at_once == due.at_once && response.source.port == 1);
    CHECK(due.at_once ? response.late_ns == 0 : response.late_ns > 0);
}

static void values(void) {
    open_all("interest-values");
    punctual_published published;
    punctual_subscribed subscribed;
    for (int times = 0; times < 20; times++) exchange();
    EXPECT(PUNCTUAL_OK, punctual_publisher_counts(publisher, &published, sizeof published));
    CHECK(published.interests == 1 && published.accepted >= 1 && published.foreign == 0 && published.sent >= 20);
    EXPECT(PUNCTUAL_OK, punctual_subscriber_counts(subscriber, &subscribed, sizeof subscribed));
    CHECK(subscribed.taken >= 20 && subscribed.announced > 0 && subscribed.refused == 0 && subscribed.stale == 0);
    EXPECT(PUNCTUAL_INVALID, punctual_publisher_counts(publisher, &published, sizeof published - 8));
    EXPECT(PUNCTUAL_INVALID, punctual_subscriber_counts(subscriber, &subscribed, 0));

    /* A subscriber that closes withdraws at once. */
    punctual_due due;
    EXPECT(PUNCTUAL_OK, punctual_subscriber_close(subscriber));
    while (punctual_publisher_next_due(publisher, 0, &due) == PUNCTUAL_OK) continue;
    EXPECT(PUNCTUAL_EMPTY, punctual_publisher_next_due(publisher, 3 * PERIOD_NS, &due));
    EXPECT(PUNCTUAL_OK, punctual_publisher_counts(publisher, &published, sizeof published));
    CHECK(published.interests == 0 && published.withdrawn == 1);

    /* Another type of the same topic is refused. */
    punctual_topic other = speed();
    punctual_response response;
    float value[2];
    other.unit = "m";
    EXPECT(PUNCTUAL_OK, punctual_subscriber_open(there, 7, &other, PERIOD_NS, NULL, &subscriber));
    do {
        EXPECT(PUNCTUAL_EMPTY, punctual_subscriber_receive(subscriber, value, sizeof value, PERIOD_NS, &response));
        EXPECT(PUNCTUAL_EMPTY, punctual_publisher_next_due(publisher, PERIOD_NS, &due));
        EXPECT(PUNCTUAL_OK, punctual_subscriber_counts(subscriber, &subscribed, sizeof subscribed));
    } while (subscribed.refused == 0);
    close_all();
}

static void loops(void) {
    open_all("interest-loops");
    punctual_response response;
    punctual_due due;
    float value[2] = {1, 2};
    int armed = 0, tries = 0;
    uint64_t left;
    struct pollfd wait = {0, POLLIN, 0};
    EXPECT(PUNCTUAL_OK, punctual_publisher_descriptor(publisher, &wait.fd));
    while (punctual_publisher_next_due(publisher, 0, &due) == PUNCTUAL_OK) continue;
    EXPECT(PUNCTUAL_OK, punctual_publisher_arm(publisher, &armed, &left));
    CHECK(armed == 1 && left == PUNCTUAL_FOREVER && poll(&wait, 1, 0) == 0);
    /* An interest wakes the publisher. */
    EXPECT(PUNCTUAL_EMPTY, punctual_subscriber_receive(subscriber, value, sizeof value, 0, &response));
    CHECK(poll(&wait, 1, 10000) == 1);
    EXPECT(PUNCTUAL_OK, punctual_publisher_next_due(publisher, SECOND_NS, &due));
    /* A value wakes the subscriber. */
    EXPECT(PUNCTUAL_OK, punctual_subscriber_descriptor(subscriber, &wait.fd));
    do {
        while (punctual_subscriber_receive(subscriber, value, sizeof value, 0, &response) == PUNCTUAL_OK) continue;
        EXPECT(PUNCTUAL_OK, punctual_subscriber_arm(subscriber, &armed, &left));
    } while (!armed && ++tries < 1000);
    CHECK(armed == 1 && left <= SECOND_NS);
    EXPECT(PUNCTUAL_OK, punctual_publisher_publish(publisher, value, sizeof value));
    CHECK(poll(&wait, 1, 10000) == 1);
    EXPECT(PUNCTUAL_OK, punctual_subscriber_receive(subscriber, value, sizeof value, 0, &response));
    close_all();
}

static void refuse(uint64_t number) {
    punctual_node no_node = {number};
    punctual_publisher no_publisher = {number}, new_publisher;
    punctual_subscriber no_subscriber = {number}, new_subscriber;
    punctual_topic topic = speed();
    punctual_published published;
    punctual_subscribed subscribed;
    punctual_address address;
    punctual_response response;
    punctual_due due;
    float value[2] = {0, 0};
    uint64_t left;
    int word;
    EXPECT(PUNCTUAL_CLOSED, punctual_publisher_open(no_node, 9, &topic, NULL, &new_publisher));
    EXPECT(PUNCTUAL_CLOSED, punctual_publisher_next_due(no_publisher, PUNCTUAL_FOREVER, &due));
    EXPECT(PUNCTUAL_CLOSED, punctual_publisher_publish(no_publisher, value, sizeof value));
    EXPECT(PUNCTUAL_CLOSED, punctual_publisher_address(no_publisher, &address));
    EXPECT(PUNCTUAL_CLOSED, punctual_publisher_counts(no_publisher, &published, sizeof published));
    EXPECT(PUNCTUAL_CLOSED, punctual_publisher_descriptor(no_publisher, &word));
    EXPECT(PUNCTUAL_CLOSED, punctual_publisher_arm(no_publisher, &word, &left));
    EXPECT(PUNCTUAL_CLOSED, punctual_publisher_detach(no_publisher));
    EXPECT(PUNCTUAL_CLOSED, punctual_publisher_close(no_publisher));
    EXPECT(PUNCTUAL_CLOSED, punctual_subscriber_open(no_node, 9, &topic, PERIOD_NS, NULL, &new_subscriber));
    EXPECT(PUNCTUAL_CLOSED,
        punctual_subscriber_receive(no_subscriber, value, sizeof value, PUNCTUAL_FOREVER, &response));
    EXPECT(PUNCTUAL_CLOSED, punctual_subscriber_address(no_subscriber, &address));
    EXPECT(PUNCTUAL_CLOSED, punctual_subscriber_counts(no_subscriber, &subscribed, sizeof subscribed));
    EXPECT(PUNCTUAL_CLOSED, punctual_subscriber_descriptor(no_subscriber, &word));
    EXPECT(PUNCTUAL_CLOSED, punctual_subscriber_arm(no_subscriber, &word, &left));
    EXPECT(PUNCTUAL_CLOSED, punctual_subscriber_detach(no_subscriber));
    EXPECT(PUNCTUAL_CLOSED, punctual_subscriber_close(no_subscriber));
}

static void topics(void) {
    punctual_publisher other;
    punctual_subscriber wants;
    punctual_topic topic;
    punctual_interest_options options = PUNCTUAL_INTEREST_OPTIONS_INIT;
    uint32_t number;
    static const char *const no_units[] = {"km", "m//s", "", "m^200", "\xff"};
    for (int at = 0; at < 5; at++) {
        topic = speed();
        topic.unit = no_units[at];
        EXPECT(PUNCTUAL_INVALID, punctual_publisher_open(here, 9, &topic, NULL, &other));
    }
    for (uint32_t at = 0; at < 6; at++) {
        topic = speed();
        if (at == 0) topic.format = 5;
        if (at == 1) topic.format = PUNCTUAL_FORMAT_BYTES;
        if (at == 2) topic.count = 0;
        if (at == 3) topic.count = 65536;
        if (at == 4) topic.unit = "bytes";
        if (at == 5) topic.struct_size = 8;
        EXPECT(PUNCTUAL_INVALID, punctual_publisher_open(here, 9, &topic, NULL, &other));
        EXPECT(PUNCTUAL_INVALID, punctual_subscriber_open(here, 9, &topic, PERIOD_NS, NULL, &wants));
    }
    topic = speed();
    topic.format = PUNCTUAL_FORMAT_F64;
    topic.count = 65535;
    EXPECT(PUNCTUAL_TOO_LONG, punctual_publisher_open(here, 9, &topic, NULL, &other));
    topic = speed();
    EXPECT(PUNCTUAL_INVALID, punctual_subscriber_open(here, 9, &topic, 0, NULL, &wants));
    EXPECT(PUNCTUAL_INVALID, punctual_subscriber_open(here, 9, &topic, 7200 * SECOND_NS, NULL, &wants));
    EXPECT(PUNCTUAL_INVALID, punctual_publisher_open(here, 65535, &topic, NULL, &other));
    EXPECT(PUNCTUAL_PORT_TAKEN, punctual_publisher_open(here, 1, &topic, NULL, &other));
    options.reach = 70000;
    EXPECT(PUNCTUAL_INVALID, punctual_publisher_open(here, 9, &topic, &options, &other));
    options.reach = PUNCTUAL_EVERY_PORT;
    options.wake = 99;
    EXPECT(PUNCTUAL_INVALID, punctual_publisher_open(here, 9, &topic, &options, &other));
    EXPECT(PUNCTUAL_OK, punctual_topic_number("speed", &number));
    CHECK(number != 0);
    EXPECT(PUNCTUAL_NULL, punctual_topic_number(NULL, &number));
    EXPECT(PUNCTUAL_NULL, punctual_topic_number("speed", NULL));
    EXPECT(PUNCTUAL_NULL, punctual_publisher_open(here, 9, NULL, NULL, &other));
    EXPECT(PUNCTUAL_NULL, punctual_publisher_open(here, 9, &topic, NULL, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_subscriber_open(here, 9, NULL, PERIOD_NS, NULL, &wants));
    EXPECT(PUNCTUAL_NULL, punctual_subscriber_open(here, 9, &topic, PERIOD_NS, NULL, NULL));
    /* None of these has the port. */
    EXPECT(PUNCTUAL_OK, punctual_publisher_open(here, 9, &topic, NULL, &other));
    EXPECT(PUNCTUAL_OK, punctual_publisher_close(other));
}

static void sizes(void) {
    punctual_response response;
    punctual_due due;
    char value[16] = "before";
    EXPECT(PUNCTUAL_INVALID, punctual_publisher_publish(publisher, value, 8)); /* nothing is due */
    CHECK(strstr(punctual_last_error(), "next_due") != NULL);
    EXPECT(PUNCTUAL_BUFFER_TOO_SMALL, punctual_subscriber_receive(subscriber, value, 7, SECOND_NS, &response));
    CHECK(response.size == 8 && strcmp(value, "before") == 0);
    EXPECT(PUNCTUAL_EMPTY, punctual_subscriber_receive(subscriber, value, 8, 0, &response));
    EXPECT(PUNCTUAL_OK, punctual_publisher_next_due(publisher, 10 * SECOND_NS, &due));
    size_t wrong[] = {0, 7, 9, 16, SIZE_MAX};
    for (int at = 0; at < 5; at++) EXPECT(PUNCTUAL_INVALID, punctual_publisher_publish(publisher, value, wrong[at]));
    EXPECT(PUNCTUAL_NULL, punctual_publisher_publish(publisher, NULL, 8));
    /* The instant can still be served, once, from a buffer that is freed at once. */
    float *once = (float *)malloc(8);
    once[0] = 1.5F, once[1] = 2.5F;
    EXPECT(PUNCTUAL_OK, punctual_publisher_publish(publisher, once, 8));
    memset(once, 0, 8);
    free(once);
    EXPECT(PUNCTUAL_INVALID, punctual_publisher_publish(publisher, value, 8));
    float *exact = (float *)malloc(8);
    EXPECT(PUNCTUAL_OK, punctual_subscriber_receive(subscriber, exact, 8, 10 * SECOND_NS, &response));
    CHECK(exact[0] == 1.5F && exact[1] == 2.5F);
    free(exact);
    EXPECT(PUNCTUAL_NULL, punctual_subscriber_receive(subscriber, NULL, 8, 0, &response));
    EXPECT(PUNCTUAL_NULL, punctual_subscriber_receive(subscriber, value, 8, 0, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_publisher_next_due(publisher, 0, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_publisher_address(publisher, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_publisher_counts(publisher, NULL, sizeof(punctual_published)));
    EXPECT(PUNCTUAL_NULL, punctual_subscriber_counts(subscriber, NULL, sizeof(punctual_subscribed)));
    EXPECT(PUNCTUAL_NULL, punctual_publisher_arm(publisher, NULL, NULL));
    EXPECT(PUNCTUAL_NULL, punctual_subscriber_descriptor(subscriber, NULL));
}

static void *as_stranger(void *unused) {
    punctual_response response;
    punctual_due due;
    float value[2] = {0, 0};
    (void)unused;
    EXPECT(PUNCTUAL_WRONG_THREAD, punctual_publisher_next_due(publisher, PUNCTUAL_FOREVER, &due));
    EXPECT(PUNCTUAL_WRONG_THREAD, punctual_publisher_publish(publisher, value, sizeof value));
    EXPECT(PUNCTUAL_WRONG_THREAD, punctual_publisher_detach(publisher));
    EXPECT(PUNCTUAL_WRONG_THREAD, punctual_publisher_close(publisher));
    EXPECT(PUNCTUAL_WRONG_THREAD,
        punctual_subscriber_receive(subscriber, value, sizeof value, PUNCTUAL_FOREVER, &response));
    EXPECT(PUNCTUAL_WRONG_THREAD, punctual_subscriber_close(subscriber));
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

static void misuse(void) {
    open_all("interest-misuse");
    uint64_t numbers[] = {0, 1, UINT64_MAX, bus.value, here.value ^ 0x100, publisher.value ^ 0x800, subscriber.value + 4096};
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++) refuse(numbers[at]);
    topics();
    sizes();
    exchange();
    run(as_stranger);
    EXPECT(PUNCTUAL_OK, punctual_publisher_detach(publisher));
    EXPECT(PUNCTUAL_OK, punctual_subscriber_detach(subscriber));
    run(as_owner); /* and it ends without detaching */
    exchange();
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        as_stranger(NULL);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    exchange();
    punctual_publisher closed = publisher;
    punctual_subscriber closed_too = subscriber;
    close_all();
    refuse(closed.value);
    refuse(closed_too.value);
}

static void publish(const char *name) {
    punctual_topic topic = speed();
    punctual_published counts;
    punctual_due due;
    EXPECT(PUNCTUAL_OK, punctual_bus_shared(name, &bus));
    EXPECT(PUNCTUAL_OK, punctual_node_open(bus, "c", NULL, &here));
    EXPECT(PUNCTUAL_OK, punctual_publisher_open(here, 1, &topic, NULL, &publisher));
    do {
        if (punctual_publisher_next_due(publisher, SECOND_NS / 10, &due) == PUNCTUAL_OK) {
            float value[2] = {13.5F, (float)due.offset_us};
            EXPECT(PUNCTUAL_OK, punctual_publisher_publish(publisher, value, sizeof value));
        }
        EXPECT(PUNCTUAL_OK, punctual_publisher_counts(publisher, &counts, sizeof counts));
    } while (counts.withdrawn == 0);
}

static void subscribe(const char *name, int count) {
    punctual_topic topic = speed();
    punctual_response response;
    float value[2];
    EXPECT(PUNCTUAL_OK, punctual_bus_shared(name, &bus));
    EXPECT(PUNCTUAL_OK, punctual_node_open(bus, "c", NULL, &there));
    EXPECT(PUNCTUAL_OK, punctual_subscriber_open(there, 7, &topic, PERIOD_NS, NULL, &subscriber));
    for (int received = 0; received < count; received++) {
        EXPECT(PUNCTUAL_OK, punctual_subscriber_receive(subscriber, value, sizeof value, 20 * SECOND_NS, &response));
        CHECK(value[0] == 13.5F && value[1] == (float)response.offset_us);
    }
    EXPECT(PUNCTUAL_OK, punctual_subscriber_close(subscriber));
}

int main(int count, char **arguments) {
    if (count > 2 && strcmp(arguments[1], "publish") == 0) {
        publish(arguments[2]);
    } else if (count > 3 && strcmp(arguments[1], "subscribe") == 0) {
        subscribe(arguments[2], atoi(arguments[3]));
    } else {
        values();
        loops();
        misuse();
    }
    puts("served");
    return 0;
}
