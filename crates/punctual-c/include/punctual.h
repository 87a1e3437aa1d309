/*
 * Punctual: messages between components, processes and hosts in microseconds.
 *
 * C11 and C++17. Linux on x86-64 and 64-bit ARM. How to build with it: docs/c.md.
 *
 * Errors. Each function returns PUNCTUAL_OK or another code of enum punctual_error_code, and writes nothing through its pointers
 * then, unless it says otherwise. The buffer of a receive holds undefined bytes unless that is PUNCTUAL_OK: in memory a writer that
 * waits for nobody may have written over a message while it was copied. punctual_last_error() says what was wrong and what to do.
 * PUNCTUAL_EMPTY and PUNCTUAL_FULL are answers rather than errors, and leave no text.
 *
 * Handles are numbers that the library looks up. One that is closed, was never given, or is all zeros is PUNCTUAL_CLOSED. The number
 * of one that was closed is never given again. At most 4,096 of each kind are open at once.
 *
 * Threads. Buses and nodes may be used by any thread. Every other handle belongs to the thread that first
 * uses it: others get PUNCTUAL_WRONG_THREAD until that thread calls ..._detach() or ends; then the next thread that uses it has it.
 * So one thread can open what another is to use. A signal handler that may interrupt the library calls none of its functions;
 * PUNCTUAL_BUSY is the answer for the handle whose function it interrupted, if that is no bus and no node. No
 * thread may be cancelled, or leave by longjmp(), inside a function. After fork() the child can use none of its parent's handles,
 * and may open its own, unless another thread of its parent was inside any function of the library: then it may only start
 * another program.
 *
 * Pointers. None may be null unless it says so (PUNCTUAL_NULL). A text is UTF-8 and ends with a zero byte. The library reads and
 * writes what a pointer leads to until the function returns, and never later: no buffer has to stay. Data that is sent must not
 * change meanwhile.
 *
 * Structs of options begin with their size, and stand for "the default" where they are null. Make them by their macro ..._INIT:
 * fields that a later version adds are then 0.
 *
 * Times are nanoseconds. A timeout of 0 never waits; PUNCTUAL_FOREVER waits as long as it takes.
 */
#ifndef PUNCTUAL_H
#define PUNCTUAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* PUNCTUAL_OK, or why not. */
typedef int32_t punctual_error;

enum punctual_error_code {
    PUNCTUAL_OK = 0, /* done */
    PUNCTUAL_EMPTY = 1, /* no message is there, or none came in time */
    PUNCTUAL_FULL = 2, /* no room now: try again after the receivers have read */
    PUNCTUAL_UNREACHABLE = 3, /* nobody there by that address */
    PUNCTUAL_TOO_LONG = 4, /* the message is longer than this bus carries */
    PUNCTUAL_TOO_MANY_NODES = 5, /* sent to more nodes than a bus has room for */
    PUNCTUAL_NO_KEY = 6, /* no key to seal with */
    PUNCTUAL_NO_MEMORY = 7, /* no memory for a ring to this target */
    PUNCTUAL_BUFFER_TOO_SMALL = 8, /* the message is larger than the buffer, and is kept */
    PUNCTUAL_NULL = 9, /* a pointer is null that must not be */
    PUNCTUAL_CLOSED = 10, /* the handle is closed, or never was one */
    PUNCTUAL_WRONG_THREAD = 11, /* the handle belongs to another thread */
    PUNCTUAL_BUSY = 12, /* this thread is using the handle already */
    PUNCTUAL_INVALID = 13, /* a name, number or size that cannot be */
    PUNCTUAL_NODE_TAKEN = 14, /* another live node has this name or id */
    PUNCTUAL_BUS_FULL = 15, /* the bus has as many nodes as it can have */
    PUNCTUAL_PORT_TAKEN = 16, /* another communicator of the node has the port */
    PUNCTUAL_TOO_MANY = 17, /* as many are open as can be */
    PUNCTUAL_CANNOT_WAIT = 18, /* this way of waiting cannot wait for this bus */
    PUNCTUAL_NO_STREAMS = 19, /* only buses of memory have publications */
    PUNCTUAL_KEYS = 20, /* the keys cannot be read */
    PUNCTUAL_SYSTEM = 21, /* the machine refused */
    PUNCTUAL_BUG = 22, /* a mistake in the library: close the handle, and report it */
};

/* The name of a code, such as "PUNCTUAL_FULL", and what it means, in a few words. Both stay for ever. Any thread. */
const char *punctual_error_name(punctual_error error);
const char *punctual_error_text(punctual_error error);

/* The last error of this thread, with the name of its object and the remedy. The text stays until the thread's next error. */
const char *punctual_last_error(void);

/* The version of the library, such as "0.1.0". Stays for ever. Any thread. */
const char *punctual_version(void);

/* A timeout that never passes. */
#define PUNCTUAL_FOREVER UINT64_MAX

/* Handles. One that is all zeros names nothing. */
typedef struct punctual_bus {
    uint64_t value;
} punctual_bus;

typedef struct punctual_node {
    uint64_t value;
} punctual_node;

typedef struct punctual_communicator {
    uint64_t value;
} punctual_communicator;

typedef struct punctual_publication {
    uint64_t value;
} punctual_publication;

typedef struct punctual_subscription {
    uint64_t value;
} punctual_subscription;

typedef struct punctual_publisher {
    uint64_t value;
} punctual_publisher;

typedef struct punctual_subscriber {
    uint64_t value;
} punctual_subscriber;

/* In a target: every node of the bus, every port of a node. */
#define PUNCTUAL_EVERY_NODE UINT64_MAX
#define PUNCTUAL_EVERY_PORT UINT32_C(65535)

/* A port of a node; or, of a target, several. All zeros is nobody. */
typedef struct punctual_address {
    uint64_t node; /* a node's id, or PUNCTUAL_EVERY_NODE */
    uint32_t port; /* 0 to 65534, or PUNCTUAL_EVERY_PORT */
    uint32_t reserved; /* 0 */
} punctual_address;

/* Facts about a received message. */
typedef struct punctual_message {
    punctual_address source; /* its sender: the target of an answer */
    punctual_address target; /* its target */
    /* its number in its stream: from its node to this one or to everybody; in memory from its sender. Of a communicator's messages the
       lower 32 bits: 0 comes again after 4294967295 */
    uint64_t sequence;
    uint64_t lost_before; /* messages of the same stream that were lost just before it */
    uint64_t latency_ns; /* from the instant at which it was due or sent until it was delivered; 0 = not known */
    uint64_t kernel_ns; /* when the kernel received it, CLOCK_REALTIME; 0 = not known */
    size_t size; /* its size, bytes */
    uint32_t sealed_in; /* the group whose key sealed it, if is_sealed */
    uint32_t is_sealed; /* 1 or 0 */
} punctual_message;

/* Ways of waiting. What each costs on a machine: `punctual survey`. */
enum punctual_wake {
    PUNCTUAL_WAKE_ADAPTIVE = 0, /* spins while that is worth it, then sleeps */
    PUNCTUAL_WAKE_SPIN = 1, /* never sleeps: the fastest, and one processor is gone */
    PUNCTUAL_WAKE_BACKOFF = 2, /* spins for a while, then sleeps */
    PUNCTUAL_WAKE_FUTEX = 3, /* sleeps; memory only */
    PUNCTUAL_WAKE_EVENTFD = 4, /* sleeps in poll */
    PUNCTUAL_WAKE_EPOLL = 5, /* sleeps in epoll */
    PUNCTUAL_WAKE_SIGNAL = 6, /* sleeps until SIGIO, which it takes; UDP and Ethernet only */
};

/* Behaviour in memory when a reader is slower than a writer. */
enum punctual_when_full {
    PUNCTUAL_AS_THE_BUS = 0, /* of publications: as their bus says */
    PUNCTUAL_OVERRUN = 1, /* the writer waits for nobody; the reader is told how many messages it lost */
    PUNCTUAL_HOLD_BACK = 2, /* the writer is told PUNCTUAL_FULL until every live reader has read */
};

/* ---- Buses: what a node is opened on. Any thread. ------------------------------------------------------------------------ */

/* Nodes inside this process. A name has 1 to 32 letters, digits, '-' and '_'; one that cannot be is refused when a node opens. */
punctual_error punctual_bus_loopback(const char *name, punctual_bus *bus);

/* Processes of one user on this host, over shared memory. */
punctual_error punctual_bus_shared(const char *name, punctual_bus *bus);

/* The same for all users in a group, by its number. */
punctual_error punctual_bus_shared_with_group(const char *name, uint32_t group, punctual_bus *bus);

/* UDP among hosts that share a multicast group, such as "239.1.1.1:7400"; `interface` is the address of the one to use. */
punctual_error punctual_bus_multicast(const char *group, const char *interface, punctual_bus *bus);

/* UDP among hosts that know each other's addresses: our own, and those of `count` others. Of none `peers` may be null. */
punctual_error punctual_bus_peers(const char *local, const char *const *peers, size_t count, punctual_bus *bus);

/* Raw Ethernet on an interface, such as "eth0". Needs CAP_NET_RAW. */
punctual_error punctual_bus_ethernet(const char *interface, punctual_bus *bus);

/* On a bus of memory that is not sealed: bytes of the ring that a communicator has for each of its targets (a power of two, 4 KiB to
 * 1 GiB; 1 MiB by default), and PUNCTUAL_OVERRUN (the default) or PUNCTUAL_HOLD_BACK. A bus in this process (loopback) always holds
 * back, regardless of `when_full`, unless a publication says otherwise. For nodes that are opened from now on. */
punctual_error punctual_bus_set_ring(punctual_bus bus, size_t ring_size, uint32_t when_full);

/* For nodes that are opened from now on: only frames count that a holder of one of the file's keys has sealed. The file must be this
 * user's, and closed to others (docs/sealing.md has its format). `name` may be null, unless hosts know the bus by different
 * addresses. PUNCTUAL_KEYS if there are no keys. */
punctual_error punctual_bus_seal(punctual_bus bus, const char *keys_file, const char *name);

/* Forgets what was to be opened. Nodes that were opened on it stay. */
punctual_error punctual_bus_close(punctual_bus bus);

/* ---- Nodes: one process's presence on a bus. Any thread. ----------------------------------------------------------------- */

typedef struct punctual_node_options {
    size_t struct_size; /* sizeof(punctual_node_options) */
    uint64_t id; /* 0 = the one that belongs to its name */
    const char *capture; /* a file for every frame (pcapng); null = none */
    size_t message_size_max; /* bytes, 64 MiB at most: larger than a frame is cut (docs/large.md); 0 = what goes in one frame */
} punctual_node_options;

/* clang-format off */
#define PUNCTUAL_NODE_OPTIONS_INIT { sizeof(punctual_node_options), 0, NULL, 0 }
/* clang-format on */

/* Joins a bus under a name that no other live node on it has. The clock is calibrated and memory touched when this returns; a ring to a
 * target is made by the first message to it.
 * `options` may be null. PUNCTUAL_INVALID, PUNCTUAL_NODE_TAKEN, PUNCTUAL_BUS_FULL, PUNCTUAL_SYSTEM. */
punctual_error punctual_node_open(
    punctual_bus bus, const char *name, const punctual_node_options *options, punctual_node *node);

/* The id that belongs to a name, which is the same on every host: for targets. */
punctual_error punctual_node_id_of_name(const char *name, uint64_t *id);

/* The node's own id. */
punctual_error punctual_node_id(punctual_node node, uint64_t *id);

/* Largest message that its communicators send, bytes: what its options asked for, or what goes in one frame if that is more. It bounds
 * no receive: on a bus of memory a peer's ring may carry more. Take message->size after PUNCTUAL_BUFFER_TOO_SMALL. */
punctual_error punctual_node_message_size_max(punctual_node node, size_t *size_max);

/* Outcome of every message, as of now. The sums that hold whenever nothing is on its way:
 * copies = delivered + waiting + no_such_port + inbox_full + unread + copies_refused; and of each peer, what it sent to this node and
 * to everybody = arrived + lost (punctual_node_peers). What each counter is: docs/glossary.md#counters. */
typedef struct punctual_ledger {
    uint64_t sent; /* messages taken from this node's communicators */
    uint64_t arrived; /* frames of other nodes, each once */
    uint64_t copies; /* one for each port that is meant */
    uint64_t delivered; /* copies that the application has */
    uint64_t waiting; /* copies in inboxes, or kept for a larger buffer */
    uint64_t no_such_port; /* copies for a port that is not here */
    uint64_t inbox_full; /* copies for which an inbox had no room */
    uint64_t unread; /* copies that were there when their communicator closed */
    uint64_t lost_overrun; /* frames written over before they were read */
    uint64_t lost_buffer_full; /* frames that the kernel dropped, for want of room or with a wrong checksum of UDP */
    uint64_t lost_bad_frame; /* frames that arrived damaged */
    uint64_t lost_medium; /* frames that the medium lost */
    uint64_t lost_peer_died; /* frames that their sender died over */
    uint64_t duplicates; /* frames that arrived again, or once and too late */
    uint64_t bad_frames; /* bytes that were no frame */
    uint64_t buffer_drops; /* drops that the kernel reports, a run of datagrams as one */
    uint64_t overruns; /* times a ring was written over before it was read */
    uint64_t corrupt_peers; /* peers whose memory held what no honest peer writes */
    uint64_t send_full; /* times a message was not taken for want of room */
    uint64_t refused; /* frames that the medium refused after they were taken */
    uint64_t missed_wakeups; /* sleeps over something for which nobody rang */
    uint64_t joined; /* nodes that joined */
    uint64_t left; /* nodes that left or died */
    uint64_t died; /* nodes that died */
    uint64_t seal_missing; /* frames without a seal on a sealed bus */
    uint64_t seal_unexpected; /* frames with one on a bus that is not sealed */
    uint64_t seal_unknown_key; /* frames sealed with a key that is not here */
    uint64_t seal_bad_tag; /* frames altered, or sealed without the key */
    uint64_t seal_replayed; /* genuine frames that were taken before */
    uint64_t seal_stale; /* genuine frames from before, or from the future */
    uint64_t lost_refused; /* frames that were not believed */
    uint64_t restarts; /* streams that went on after a gap too large to count */
    uint64_t large_sent; /* messages that were cut into fragments */
    uint64_t large_delivered; /* messages that were put together */
    uint64_t large_lost; /* messages of which fragments came, and not all */
    uint64_t fragments_refused; /* fragments that were not taken */
    uint64_t copies_refused; /* copies of the node's own communicators that were not believed */
} punctual_ledger;

/* `struct_size` is sizeof *ledger, so that a program and a library of different versions notice. */
punctual_error punctual_node_ledger(punctual_node node, punctual_ledger *ledger, size_t struct_size);

/* A node's account of the frames that one life of one peer sent to it and to everybody. */
typedef struct punctual_peer {
    uint64_t node; /* the peer's id */
    uint64_t arrived; /* frames that arrived, each once */
    uint64_t lost; /* frames that never will */
    uint64_t missing; /* frames that did not arrive, but still may */
    uint32_t incarnation; /* which life of it */
    uint32_t present; /* 1 while it is there, 0 since */
} punctual_peer;

/* The accounts of all peers. As many as there is room for are written; `count` says how many there are. Of no room `peers` may be
 * null. */
punctual_error punctual_node_peers(punctual_node node, punctual_peer *peers, size_t capacity, size_t *count);

/* Frames sent so far to one node, or to PUNCTUAL_EVERY_NODE: what the receivers' accounts must sum to. */
punctual_error punctual_node_sent_to(punctual_node node, uint64_t target, uint64_t *count);

/* Does what has to be done from time to time. Needed only if no communicator of the node waits or is armed for seconds. */
punctual_error punctual_node_housekeep(punctual_node node);

/* Closes the handle. What was opened with the node goes on; with the last of that it leaves the bus. A
 * process that ends without closing is dead to its peers, which count that. */
punctual_error punctual_node_close(punctual_node node);

/* ---- Communicators: endpoints at ports, on every bus. One thread at a time. ---------------------------------------------- */

typedef struct punctual_communicator_options {
    size_t struct_size; /* sizeof(punctual_communicator_options) */
    uint32_t wake; /* PUNCTUAL_WAKE_... */
    uint32_t stamps; /* 1: its messages carry stamps, so that receivers know how long they took; 0: not */
    size_t inbox_size; /* on UDP and Ethernet, bytes, a power of two; 0 = room for four of the largest frames, 128 KiB or more */
} punctual_communicator_options;

/* clang-format off */
#define PUNCTUAL_COMMUNICATOR_OPTIONS_INIT { sizeof(punctual_communicator_options), PUNCTUAL_WAKE_ADAPTIVE, 0, 0 }
/* clang-format on */

/* A communicator at a port, 0 to 65534, of a node. `options` may be null. Any thread; it belongs to the one that first uses it.
 * PUNCTUAL_PORT_TAKEN, PUNCTUAL_TOO_MANY, PUNCTUAL_CANNOT_WAIT, PUNCTUAL_INVALID, PUNCTUAL_SYSTEM. */
punctual_error punctual_communicator_bind(punctual_node node, uint32_t port,
    const punctual_communicator_options *options, punctual_communicator *communicator);

/* Its own address: the target of answers. */
punctual_error punctual_communicator_address(punctual_communicator communicator, punctual_address *address);

/* Takes the message, or says why not; never waits for room. On UDP and Ethernet it waits while another thread of the node sends.
 * What was taken is delivered or counted. Of 0 bytes `data` may be null. What is larger than a ring, or a receiver's buffer, is for
 * punctual_communicator_send.
 * PUNCTUAL_FULL, PUNCTUAL_UNREACHABLE, PUNCTUAL_TOO_LONG, PUNCTUAL_TOO_MANY_NODES, PUNCTUAL_NO_KEY, PUNCTUAL_NO_MEMORY: it was not
 * sent. */
punctual_error punctual_communicator_try_send(
    punctual_communicator communicator, punctual_address target, const void *data, size_t size);

/* The same; waits for room, and for a target that is not there yet, for at most `timeout_ns`; with a message that is cut, for as long
 * at each of its frames, and over a kernel's medium until its one receiver has it, or tells nothing new for so long. */
punctual_error punctual_communicator_send(punctual_communicator communicator, punctual_address target,
    const void *data, size_t size, uint64_t timeout_ns);

/* Takes the message without handing it to the medium yet: ..._flush, or any later send, does that for all that were queued. What is
 * larger than a frame goes at once, as by ..._try_send. */
punctual_error punctual_communicator_queue(
    punctual_communicator communicator, punctual_address target, const void *data, size_t size);

/* Hands everything that was queued to the medium. */
punctual_error punctual_communicator_flush(punctual_communicator communicator);

/* The oldest message, copied into `buffer`, which has room for `capacity` bytes; waits for one for at most `timeout_ns`.
 * PUNCTUAL_EMPTY: none came. PUNCTUAL_BUFFER_TOO_SMALL: `message->size` says how large it is, and the next receive has it,
 * unless in memory its writer, which waits for nobody, has written over it meanwhile: then it is counted as lost. Of 0 bytes
 * `buffer` may be null. */
punctual_error punctual_communicator_receive(punctual_communicator communicator, void *buffer, size_t capacity,
    uint64_t timeout_ns, punctual_message *message);

/* For an event loop of one's own: what becomes readable when a message comes, once it is armed. It stays the library's: watch it, and
 * neither read nor close it. It is there until the communicator closes. */
punctual_error punctual_communicator_descriptor(punctual_communicator communicator, int *descriptor);

/* From now on the descriptor becomes readable when a message comes. `armed` is 0, and nothing is armed, if there may already be one.
 * Receive with a timeout of 0 until PUNCTUAL_EMPTY, arm, wait; any receive disarms. Wait for some seconds at most: in memory a sender
 * that is killed just as it wakes wakes nobody, and arming does what punctual_node_housekeep does. */
punctual_error punctual_communicator_arm(punctual_communicator communicator, int *armed);

/* Gives it up: it belongs to whichever thread uses it next. */
punctual_error punctual_communicator_detach(punctual_communicator communicator);

/* Closes it; what is there and was not received is counted as unread. */
punctual_error punctual_communicator_close(punctual_communicator communicator);

/* ---- Publications and subscriptions: in memory, a ring for one target, and its readers. One thread at a time. ----------- */

typedef struct punctual_publication_options {
    size_t struct_size; /* sizeof(punctual_publication_options) */
    size_t ring_size; /* bytes, a power of two, 4 KiB to 1 GiB; 0 = 256 KiB. A message is at most a quarter of it less 16 bytes (40
                       * on a sealed bus), and less than 16 MiB */
    uint32_t when_full; /* PUNCTUAL_AS_THE_BUS, PUNCTUAL_OVERRUN or PUNCTUAL_HOLD_BACK */
    uint32_t source; /* the port that its messages say they come from; nobody need be bound there */
    uint32_t stamps; /* 1: its messages say when they were sent; 0: not */
    uint32_t reserved; /* 0 */
} punctual_publication_options;

/* clang-format off */
#define PUNCTUAL_PUBLICATION_OPTIONS_INIT { sizeof(punctual_publication_options), 0, PUNCTUAL_AS_THE_BUS, 0, 0, 0 }
/* clang-format on */

/* A publication of a node for one target. `options` may be null. Any thread; it belongs to the one that first uses it.
 * PUNCTUAL_NO_STREAMS, PUNCTUAL_TOO_MANY, PUNCTUAL_INVALID, PUNCTUAL_SYSTEM. */
punctual_error punctual_publication_open(punctual_node node, punctual_address target,
    const punctual_publication_options *options, punctual_publication *publication);

/* Sends a copy of the message; waits for room, and for a reader, for at most `timeout_ns`. Of 0 bytes `data` may be null.
 * PUNCTUAL_FULL, PUNCTUAL_UNREACHABLE (nobody reads), PUNCTUAL_TOO_LONG, PUNCTUAL_NO_KEY: it was not sent. */
punctual_error punctual_publication_offer(
    punctual_publication publication, const void *data, size_t size, uint64_t timeout_ns);

/* Gives it up: it belongs to whichever thread uses it next. */
punctual_error punctual_publication_detach(punctual_publication publication);

/* Closes it. Subscriptions read it to its end. */
punctual_error punctual_publication_close(punctual_publication publication);

/* The reader of all publications that are for a port of a node, and of what communicators send there. `wake` is one of
 * PUNCTUAL_WAKE_..., but not PUNCTUAL_WAKE_SIGNAL. Any thread; it belongs to the one that first uses it.
 * PUNCTUAL_NO_STREAMS, PUNCTUAL_TOO_MANY, PUNCTUAL_CANNOT_WAIT, PUNCTUAL_INVALID, PUNCTUAL_SYSTEM. */
punctual_error punctual_subscription_open(
    punctual_node node, uint32_t port, uint32_t wake, punctual_subscription *subscription);

/* The oldest message of one of its publications, copied into `buffer`; as punctual_communicator_receive. */
punctual_error punctual_subscription_receive(punctual_subscription subscription, void *buffer, size_t capacity,
    uint64_t timeout_ns, punctual_message *message);

/* For an event loop of one's own: as punctual_communicator_descriptor and punctual_communicator_arm. */
punctual_error punctual_subscription_descriptor(punctual_subscription subscription, int *descriptor);
punctual_error punctual_subscription_arm(punctual_subscription subscription, int *armed);

/* Gives it up: it belongs to whichever thread uses it next. */
punctual_error punctual_subscription_detach(punctual_subscription subscription);

/* Closes it. */
punctual_error punctual_subscription_close(punctual_subscription subscription);

/* ---- Interest: subscribers say how often they want values, publishers serve all (docs/interest.md). One thread at a time. - */

/* Representation of the numbers of a value: little-endian, one after the other, as arrays of C have them here. */
enum punctual_format {
    PUNCTUAL_FORMAT_BYTES = 0, /* bytes that are no numbers */
    PUNCTUAL_FORMAT_I32 = 1,
    PUNCTUAL_FORMAT_I64 = 2,
    PUNCTUAL_FORMAT_F32 = 3,
    PUNCTUAL_FORMAT_F64 = 4,
};

/* A topic. Both ends must say the same; a subscriber with another type of the same topic is refused. */
typedef struct punctual_topic {
    size_t struct_size; /* sizeof(punctual_topic) */
    const char *name; /* such as "speed"; null = `number` says which topic it is */
    const char *unit; /* of SI, without prefixes: "m/s", "kg m^2 s^-3", "N", "1"; null = "1", of bytes "bytes" */
    uint32_t number; /* which topic it is, if it has no name */
    uint32_t format; /* PUNCTUAL_FORMAT_... */
    uint32_t count; /* numbers of a value, 1 to 65535 */
    uint32_t reserved; /* 0 */
} punctual_topic;

/* One number of double precision; set the rest. */
/* clang-format off */
#define PUNCTUAL_TOPIC_INIT { sizeof(punctual_topic), NULL, NULL, 0, PUNCTUAL_FORMAT_F64, 1, 0 }
/* clang-format on */

typedef struct punctual_interest_options {
    size_t struct_size; /* sizeof(punctual_interest_options) */
    uint32_t wake; /* PUNCTUAL_WAKE_... */
    uint32_t stamps; /* of a publisher, 1: its subscribers know how late each value was; 0: not */
    uint32_t reach; /* the port of every node to which interests and advertisements go, or PUNCTUAL_EVERY_PORT */
    uint32_t reserved; /* 0 */
} punctual_interest_options;

/* clang-format off */
#define PUNCTUAL_INTEREST_OPTIONS_INIT { sizeof(punctual_interest_options), PUNCTUAL_WAKE_ADAPTIVE, 0, PUNCTUAL_EVERY_PORT, 0 }
/* clang-format on */

/* The number of the topic of a name. Any thread. */
punctual_error punctual_topic_number(const char *name, uint32_t *number);

/* An instant for which a value is wanted. */
typedef struct punctual_due {
    uint64_t offset_us; /* which one, microseconds since the publisher's schedule began */
    uint64_t due_ns; /* the same on CLOCK_MONOTONIC */
    uint32_t at_once; /* 1: it is for a newcomer, between the instants of the schedule; 0: not */
    uint32_t reserved;
} punctual_due;

/* Outcomes of interests, and of a publisher's messages. */
typedef struct punctual_published {
    uint64_t interests; /* that are served now */
    uint64_t accepted; /* interests that were new */
    uint64_t renewed; /* interests that were known */
    uint64_t withdrawn; /* interests that were withdrawn */
    uint64_t expired; /* interests that were not repeated in time */
    uint64_t refused; /* interests that were refused: of another type, too many, too often */
    uint64_t unanswered; /* newcomers and refusals without a place to wait; newcomers beyond the values of a second */
    uint64_t sent; /* messages that the node took */
    uint64_t full; /* messages that were not sent for want of room: the next value is due soon */
    uint64_t unreachable; /* messages that were not sent because nobody is there */
    uint64_t unsendable; /* messages that were not sent for want of a key, of memory, or of room for one more node */
    uint64_t foreign; /* messages that came and are none of this protocol */
} punctual_published;

/* A publisher of a topic, with a communicator of its own at a port of a node. `options` may be null. Any thread; it belongs to the
 * one that first uses it. PUNCTUAL_INVALID (also of a topic that cannot be), PUNCTUAL_TOO_LONG (a value is larger than a frame), and
 * what punctual_communicator_bind says. */
punctual_error punctual_publisher_open(punctual_node node, uint32_t port, const punctual_topic *topic,
    const punctual_interest_options *options, punctual_publisher *publisher);

/* Waits for at most `timeout_ns` until a value is wanted, and takes care of interests meanwhile: call it again and again. What was
 * due before and was not published is passed over. PUNCTUAL_EMPTY: nothing is due yet. */
punctual_error punctual_publisher_next_due(punctual_publisher publisher, uint64_t timeout_ns, punctual_due *due);

/* Sends the value for the instant that was given last, to all subscribers that want it. Values that cannot be sent are counted.
 * PUNCTUAL_INVALID: nothing is due, or `size` is not that of the topic's values; then the instant can still be served. */
punctual_error punctual_publisher_publish(punctual_publisher publisher, const void *value, size_t size);

/* Its address. */
punctual_error punctual_publisher_address(punctual_publisher publisher, punctual_address *address);

/* `struct_size` is sizeof *counts. */
punctual_error punctual_publisher_counts(
    punctual_publisher publisher, punctual_published *counts, size_t struct_size);

/* For an event loop of one's own: what becomes readable when there may be something to do, once it is armed; as
 * punctual_communicator_descriptor. */
punctual_error punctual_publisher_descriptor(punctual_publisher publisher, int *descriptor);

/* Arms the descriptor. `armed` is 0, and nothing is armed, if there may already be something to do. Ask ..._next_due with a timeout
 * of 0 until PUNCTUAL_EMPTY, arm, and wait for at most `time_left_ns`, which is PUNCTUAL_FOREVER if nothing is due of itself. */
punctual_error punctual_publisher_arm(punctual_publisher publisher, int *armed, uint64_t *time_left_ns);

/* Gives it up: it belongs to whichever thread uses it next. */
punctual_error punctual_publisher_detach(punctual_publisher publisher);

/* Closes it, and its communicator. */
punctual_error punctual_publisher_close(punctual_publisher publisher);

/* Facts about a received value. */
typedef struct punctual_response {
    punctual_address source; /* its publisher */
    uint64_t offset_us; /* for which instant, microseconds since its publisher's schedule began */
    uint64_t missed_before; /* instants before it for which no value came from this publisher */
    uint64_t late_ns; /* how long after its instant it was here; 0 = not known: its publisher has no stamps, or another clock */
    size_t size; /* its size, bytes */
    uint32_t at_once; /* 1: it was sent at once to a newcomer, between the instants; 0: not */
    uint32_t reserved;
} punctual_response;

/* Outcomes of responses, and of a subscriber's messages. */
typedef struct punctual_subscribed {
    uint64_t taken; /* values that were taken */
    uint64_t for_others; /* values for instants that are none of its period */
    uint64_t stale; /* values that were doubled or overtaken */
    uint64_t missed; /* instants between two values for which none came */
    uint64_t too_many_publishers; /* values of publishers beyond those of which it keeps an account */
    uint64_t displaced; /* accounts of publishers that made room for others */
    uint64_t refused; /* refusals by publishers */
    uint64_t announced; /* how often the interest was announced */
    uint64_t sent; /* messages that the node took */
    uint64_t full; /* messages that were not sent for want of room */
    uint64_t unreachable; /* messages that were not sent because nobody is there */
    uint64_t unsendable; /* messages that were not sent for want of a key, of memory, or of room for one more node */
    uint64_t foreign; /* messages that came and are none of this protocol */
} punctual_subscribed;

/* A subscriber that wants a value of a topic every `period_ns`, 1 microsecond to 71 minutes, with a communicator of its own at a port
 * of a node. Publishers usually refuse less than 100 microseconds. `options` may be null. Its interest is announced by the first call
 * that receives. Any thread; it belongs to the one that first uses it. As punctual_publisher_open. */
punctual_error punctual_subscriber_open(punctual_node node, uint32_t port, const punctual_topic *topic,
    uint64_t period_ns, const punctual_interest_options *options, punctual_subscriber *subscriber);

/* The next value, copied into `buffer`, which has room for `capacity` bytes; waits for it for at most `timeout_ns`, and repeats the
 * interest meanwhile: publishers forget a subscriber that does not call for 3.5 seconds, until its next call. PUNCTUAL_EMPTY: none came.
 * PUNCTUAL_BUFFER_TOO_SMALL: nothing was taken; `response->size` says how large values are. */
punctual_error punctual_subscriber_receive(punctual_subscriber subscriber, void *buffer, size_t capacity,
    uint64_t timeout_ns, punctual_response *response);

/* Its address. */
punctual_error punctual_subscriber_address(punctual_subscriber subscriber, punctual_address *address);

/* `struct_size` is sizeof *counts. */
punctual_error punctual_subscriber_counts(
    punctual_subscriber subscriber, punctual_subscribed *counts, size_t struct_size);

/* For an event loop of one's own: as punctual_publisher_descriptor and punctual_publisher_arm, with ..._receive. */
punctual_error punctual_subscriber_descriptor(punctual_subscriber subscriber, int *descriptor);
punctual_error punctual_subscriber_arm(punctual_subscriber subscriber, int *armed, uint64_t *time_left_ns);

/* Gives it up: it belongs to whichever thread uses it next. */
punctual_error punctual_subscriber_detach(punctual_subscriber subscriber);

/* Withdraws its interest, and closes it and its communicator. */
punctual_error punctual_subscriber_close(punctual_subscriber subscriber);

#ifdef __cplusplus
}
#endif

#endif
