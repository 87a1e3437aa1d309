// Corosync as a peer of `punctual run broadcast`: one member of a closed process group (CPG), beside a daemon that runs already.
//
// Options come as `--name value`. It joins, sends what warms up, and says {"Ok":{"frame":N}}. Asked {"Go":{"at_ns":N}}, it sends its
// share from that instant of CLOCK_MONOTONIC on, delivers until it has everything, and says {"Ok":{…}}, behind which bytes follow: a
// row of five words for each of the first messages, and a hash of each of the first that it sent. What fails is {"Err":"…"}. It ends
// with its input.

#define _GNU_SOURCE
#include <corosync/cpg.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

// As the laboratory's own members have them.
enum { ROWS_MAX = 50000, PREFIX = 16, POOL_SIZE = 1 << 20, SENDERS_MAX = 64 };
static const int64_t PATIENCE_NS = 20000000000;
static const int64_t TRY_AGAIN_NS = 200000;
static const int64_t WAIT_MAX_NS = 50000000;
// Numbers of messages that warm up, and of the last one.
static const uint64_t WARM = UINT64_MAX, WARM_END = UINT64_MAX - 1;

static struct {
    uint64_t place, members, senders, each, message, seed, warmup_ms, period_ns, daemon, frame;
} plan;

static const struct {
    const char *name;
    uint64_t *value;
} OPTIONS[] = {
    {"--place", &plan.place},         {"--members", &plan.members},     {"--senders", &plan.senders}, {"--each", &plan.each},
    {"--message", &plan.message},     {"--seed", &plan.seed},           {"--daemon", &plan.daemon},   {"--frame", &plan.frame},
    {"--warmup-ms", &plan.warmup_ms}, {"--period-ns", &plan.period_ns},
};

typedef struct {
    uint64_t sender, number, hash, sent_ns, at_ns;
} row_t;

static cpg_handle_t group;
static struct cpg_name name = {.length = 8, .value = "punctual"};
static bool is_measuring;
static uint64_t present, views, warm_ends, delivered, bytes, sent, row_count, hash_count;
static unsigned __int128 content, own;
static uint64_t order;
static row_t *rows;
static uint64_t *hashes;
static unsigned char *pool, *message;

static uint64_t now_of(clockid_t clock) {
    struct timespec at;
    if (clock_gettime(clock, &at) != 0) return 0;
    return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

static uint64_t now_ns(void) { return now_of(CLOCK_MONOTONIC); }

static void fail(const char *what, const char *why) {
    printf("{\"Err\":\"%s: %s\"}\n", what, why);
    fflush(stdout);
    exit(1);
}

static void check(const char *what, cs_error_t error) {
    if (error != CS_OK) fail(what, cs_strerror(error));
}

static uint64_t word_at(const unsigned char *at) {
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

static uint64_t mix(uint64_t word) {
    word = (word ^ (word >> 32)) * 0x9E3779B97F4A7C15;
    word = (word ^ (word >> 29)) * 0xBF58476D1CE4E5B9;
    return word ^ (word >> 32);
}

// Four lanes, each a bijection of its state for each word: what differs in one word always differs. JGroups' peer has the same.
static uint64_t hash_of(uint64_t sender, const unsigned char *payload, size_t size) {
    const uint64_t factor = 0x9E3779B97F4A7C15;
    uint64_t lanes[4] = {sender, ~sender, sender * factor, size};
    size_t at = 0;
    for (; at + 32 <= size; at += 32)
        for (int lane = 0; lane < 4; lane++) lanes[lane] = (lanes[lane] ^ word_at(payload + at + 8 * lane)) * factor;
    for (; at < size; at++) lanes[at & 3] = (lanes[at & 3] ^ payload[at]) * factor;
    uint64_t hash = 0;
    for (int lane = 0; lane < 4; lane++) hash = mix(hash ^ mix(lanes[lane] + lane));
    return hash;
}

static void deliver(cpg_handle_t handle, const struct cpg_name *to, uint32_t node, uint32_t process, void *payload, size_t size) {
    (void)handle, (void)to, (void)process;
    const uint64_t at_ns = now_ns();
    const uint64_t number = size >= PREFIX ? word_at(payload) : 0;
    if (!is_measuring) {
        if (number == WARM_END) warm_ends++;
        return;
    }
    const uint64_t sender = node - 1;
    const uint64_t hash = hash_of(sender, payload, size);
    content += hash;
    order = order * 0x9E3779B97F4A7C15 + hash;
    if (row_count < ROWS_MAX) {
        const uint64_t sent_ns = size >= PREFIX ? word_at((unsigned char *)payload + 8) : 0;
        rows[row_count++] = (row_t){sender, number, hash, sent_ns, at_ns};
    }
    delivered++;
    bytes += size;
}

static void change(cpg_handle_t handle, const struct cpg_name *of, const struct cpg_address *members, size_t count,
                   const struct cpg_address *left, size_t left_count, const struct cpg_address *joined, size_t joined_count) {
    (void)handle, (void)of, (void)members, (void)left, (void)left_count, (void)joined, (void)joined_count;
    present = count;
    views++;
}

static cpg_model_v1_data_t callbacks;

static bool try_send(uint64_t number) {
    const size_t offset = (number * 7919) % POOL_SIZE;
    memcpy(message, pool + offset, plan.message);
    memcpy(message, &number, 8);
    const uint64_t at_ns = now_ns();
    memcpy(message + 8, &at_ns, 8);
    const struct iovec part = {message, plan.message};
    const cs_error_t error = cpg_mcast_joined(group, CPG_TYPE_AGREED, &part, 1);
    if (error == CS_ERR_TRY_AGAIN) return false;
    check("cpg_mcast_joined", error);
    return true;
}

// Waits at most so long for something to deliver, and delivers what is there.
static void take(int64_t wait_ns) {
    int fd;
    check("cpg_fd_get", cpg_fd_get(group, &fd));
    struct pollfd looked_at = {.fd = fd, .events = POLLIN};
    const struct timespec wait = {wait_ns / 1000000000, wait_ns % 1000000000};
    if (ppoll(&looked_at, 1, &wait, NULL) < 0 && errno != EINTR) fail("ppoll", strerror(errno));
    const cs_error_t error = cpg_dispatch(group, CS_DISPATCH_ALL);
    if (error != CS_ERR_TRY_AGAIN) check("cpg_dispatch", error);
}

// As many messages as are due and are taken; how long to deliver until there may be more.
static int64_t send_due(uint64_t start_ns) {
    while (plan.place < plan.senders && sent < plan.each) {
        if (plan.period_ns > 0) {
            const uint64_t due_ns = start_ns + sent * plan.period_ns + plan.place * plan.period_ns / plan.senders;
            const int64_t rest_ns = (int64_t)(due_ns - now_ns());
            if (rest_ns > 0) return rest_ns < WAIT_MAX_NS ? rest_ns : WAIT_MAX_NS;
        }
        if (!try_send(sent)) return TRY_AGAIN_NS;
        const uint64_t hash = hash_of(plan.place, message, plan.message);
        own += hash;
        if (hash_count < ROWS_MAX) hashes[hash_count++] = hash;
        sent++;
        if (plan.period_ns == 0) return 0;
    }
    return WAIT_MAX_NS;
}

static void join(void) {
    const uint64_t start_ns = now_ns();
    callbacks.cpg_deliver_fn = deliver;
    callbacks.cpg_confchg_fn = change;
    cs_error_t error;
    // The daemon may not listen yet.
    while ((error = cpg_model_initialize(&group, CPG_MODEL_V1, (cpg_model_data_t *)&callbacks, NULL)) != CS_OK) {
        if (now_ns() - start_ns > (uint64_t)PATIENCE_NS) check("cpg_model_initialize", error);
        usleep(20000);
    }
    while ((error = cpg_join(group, &name)) == CS_ERR_TRY_AGAIN && now_ns() - start_ns < (uint64_t)PATIENCE_NS) usleep(20000);
    check("cpg_join", error);
    while (present < plan.members) {
        if (now_ns() - start_ns > (uint64_t)PATIENCE_NS) fail("cpg_join", "not all members met");
        take(5000000);
    }
}

static void warm_up(void) {
    const uint64_t start_ns = now_ns(), end_ns = start_ns + plan.warmup_ms * 1000000;
    bool has_ended = plan.place >= plan.senders;
    while (!has_ended || warm_ends < plan.senders) {
        if (now_ns() - start_ns > (uint64_t)PATIENCE_NS) fail("warming up", "nothing comes");
        if (!has_ended && now_ns() < end_ns)
            try_send(WARM);
        else if (!has_ended)
            has_ended = try_send(WARM_END);
        take(has_ended ? 5000000 : 0);
    }
}

static void measure(uint64_t start_ns) {
    const uint64_t all = plan.senders * plan.each;
    const uint64_t views_before = views;
    clockid_t daemon;
    if (clock_getcpuclockid((pid_t)plan.daemon, &daemon) != 0) fail("clock_getcpuclockid", "no such daemon");
    const uint64_t cpu_ns = now_of(daemon) + now_of(CLOCK_PROCESS_CPUTIME_ID);
    int64_t rest_ns;
    while ((rest_ns = (int64_t)(start_ns - now_ns())) > 0) take(rest_ns);
    uint64_t last_ns = now_ns();
    while (delivered < all) {
        const uint64_t before = delivered + sent;
        take(send_due(start_ns));
        if (before != delivered + sent) {
            last_ns = now_ns();
        } else if (now_ns() - last_ns > (uint64_t)PATIENCE_NS + plan.period_ns) {  // Until the next is due, nothing can come.
            char words[96];
            snprintf(words, sizeof words, "nothing comes after %" PRIu64 " of %" PRIu64 " messages", delivered, all);
            fail("the group", words);
        }
    }
    const uint64_t ended_ns = now_ns();
    const uint64_t spent_ns = now_of(daemon) + now_of(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
    printf("{\"Ok\":{\"ended_ns\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"content\":[%" PRIu64 ",%" PRIu64 "],\"order\":[%" PRIu64
           ",0],\"sent\":[%" PRIu64 ",%" PRIu64 "],\"cpu_ns\":%" PRIu64 ",\"views\":%" PRIu64 ",\"rows\":%" PRIu64
           ",\"hashes\":%" PRIu64 "}}\n",
           ended_ns, bytes, (uint64_t)content, (uint64_t)(content >> 64), order, (uint64_t)own, (uint64_t)(own >> 64), spent_ns,
           views - views_before, row_count, hash_count);
    fwrite(rows, sizeof *rows, row_count, stdout);
    fwrite(hashes, sizeof *hashes, hash_count, stdout);
    fflush(stdout);
}

static void read_options(int count, char **options) {
    for (int at = 1; at + 1 < count; at += 2)
        for (size_t known = 0; known < sizeof OPTIONS / sizeof *OPTIONS; known++)
            if (strcmp(options[at], OPTIONS[known].name) == 0) *OPTIONS[known].value = strtoull(options[at + 1], NULL, 10);
    if (plan.message < PREFIX || plan.members == 0 || plan.senders == 0) fail("options", "--members, --senders, --message are needed");
}

static void allocate(void) {
    rows = calloc(ROWS_MAX, sizeof *rows);
    hashes = calloc(ROWS_MAX, sizeof *hashes);
    pool = malloc(POOL_SIZE + plan.message);
    message = malloc(plan.message);
    if (!rows || !hashes || !pool || !message) fail("malloc", "no memory");
    for (size_t at = 0; at < POOL_SIZE + plan.message; at++) pool[at] = (unsigned char)mix(plan.seed * 0x9E3779B97F4A7C15 + at);
}

int main(int count, char **options) {
    read_options(count, options);
    allocate();
    join();
    warm_up();
    printf("{\"Ok\":{\"frame\":%" PRIu64 "}}\n", plan.frame);
    fflush(stdout);
    is_measuring = true;
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        const char *at = strstr(line, "\"at_ns\":");
        if (!at) fail("asked", "neither Go nor an instant");
        measure(strtoull(at + 8, NULL, 10));
    }
    // Waits for nobody: the daemon ends behind this.
    cpg_finalize(group);
    return 0;
}
