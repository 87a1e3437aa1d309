// JGroups as a peer of `punctual run broadcast`: one member of a group whose messages SEQUENCER puts into one order.

import com.sun.management.OperatingSystemMXBean;
import org.jgroups.BytesMessage;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.Receiver;
import org.jgroups.View;
import org.jgroups.protocols.FRAG2;
import org.jgroups.protocols.TP;
import org.jgroups.protocols.UDP;
import org.jgroups.protocols.pbcast.GMS;
import org.jgroups.protocols.pbcast.NAKACK2;
import org.jgroups.util.UUID;

import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.FileDescriptor;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.logging.LogManager;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Options come as {@code --name value}. It joins, sends what warms up, and says {@code {"Ok":{"frame":N}}}. Asked
 * {@code {"Go":{"at_ns":N}}}, it sends its share from that instant on, delivers until it has everything, and says {@code {"Ok":{…}}},
 * behind which bytes follow: a row of five words for each of the first messages, and a hash of each of the first that it sent. What
 * fails is {@code {"Err":"…"}}. It ends with its input.
 */
public final class Member implements Receiver {
    private static final int ROWS_MAX = 50_000;
    private static final int PREFIX = 16;
    private static final int POOL_SIZE = 1 << 20;
    private static final long PATIENCE_NS = 20_000_000_000L;
    private static final long FACTOR = 0x9E3779B97F4A7C15L;
    /** Numbers of messages that warm up, and of the last one. */
    private static final long WARM = -1;
    private static final long WARM_END = -2;
    private static final VarHandle WORDS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

    private final Map<String, String> options;
    private final int place;
    private final int members;
    private final int senders;
    private final long each;
    private final int size;
    private final long periodNs;
    private final byte[] pool;
    private final ByteBuffer rows = ByteBuffer.allocate(ROWS_MAX * 40).order(ByteOrder.LITTLE_ENDIAN);
    private final ByteBuffer hashes = ByteBuffer.allocate(ROWS_MAX * 8).order(ByteOrder.LITTLE_ENDIAN);
    private final long[] content = new long[2];
    private final long[] own = new long[2];
    private JChannel channel;
    private boolean measures;
    private int present;
    private int views;
    private int warmEnds;
    private long order;
    private long delivered;
    private long bytes;
    private long lastNs;

    private Member(Map<String, String> options) {
        this.options = options;
        place = (int) number("place");
        members = (int) number("members");
        senders = (int) number("senders");
        each = number("each");
        size = (int) number("message");
        periodNs = number("period-ns");
        pool = new byte[POOL_SIZE + size];
        for (int at = 0; at < pool.length; at++) {
            pool[at] = (byte) mix(number("seed") * FACTOR + at);
        }
    }

    public static void main(String[] arguments) {
        // Output of JGroups goes elsewhere: answers have the output to themselves.
        final PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        LogManager.getLogManager().reset();
        try {
            final Map<String, String> options = new HashMap<>();
            for (int at = 0; at + 1 < arguments.length; at += 2) {
                options.put(arguments[at], arguments[at + 1]);
            }
            final Member member = new Member(options);
            final long frame = member.join();
            member.warmUp();
            answers.println("{\"Ok\":{\"frame\":" + frame + "}}");
            answers.flush();
            final BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                final Matcher go = Pattern.compile("\"at_ns\":(\\d+)").matcher(line);
                if (!go.find()) {
                    throw new IllegalStateException("neither Go nor an instant");
                }
                answers.println(member.measure(Long.parseLong(go.group(1))));
                answers.write(member.rows.array(), 0, member.rows.position());
                answers.write(member.hashes.array(), 0, member.hashes.position());
                answers.flush();
            }
            // It ends without leaving: the others end with it.
            Runtime.getRuntime().halt(0);
        } catch (Exception error) {
            answers.println("{\"Err\":\"JGroups: " + error.toString().replaceAll("[\"\\\\\\p{Cntrl}]", " ") + "\"}");
            answers.flush();
            Runtime.getRuntime().halt(1);
        }
    }

    private long number(String name) {
        return Long.parseUnsignedLong(options.getOrDefault("--" + name, "0"));
    }

    /** The stack that JGroups ships for total order, at this address, with other sizes and timers where they are given. */
    private long join() throws Exception {
        channel = new JChannel("sequencer.xml");
        channel.addAddressGenerator(() -> new UUID(0, place + 1));
        final UDP udp = channel.getProtocolStack().findProtocol(UDP.class);
        udp.setBindAddress(InetAddress.getByName(options.get("--address")));
        udp.getDiagnosticsHandler().setEnabled(false);
        final GMS membership = channel.getProtocolStack().findProtocol(GMS.class);
        membership.setJoinTimeout(1_000).printLocalAddress(false);
        final TP transport = channel.getProtocolStack().getTransport();
        if (number("datagram") > 0) {
            transport.getBundler().setMaxSize((int) number("datagram"));
            final FRAG2 fragments = channel.getProtocolStack().findProtocol(FRAG2.class);
            fragments.setFragSize((int) number("fragment"));
        }
        if (number("retransmit-ms") > 0) {
            final NAKACK2 repairs = channel.getProtocolStack().findProtocol(NAKACK2.class);
            repairs.setXmitInterval(number("retransmit-ms"));
        }
        channel.setReceiver(this);
        // The first one founds the group, and orders.
        Thread.sleep(place == 0 ? 0 : 500);
        channel.connect("punctual");
        final long start = System.nanoTime();
        synchronized (this) {
            while (present < members) {
                wait(10);
                if (System.nanoTime() - start > PATIENCE_NS) {
                    throw new IllegalStateException(present + " of " + members + " members met");
                }
            }
        }
        return transport.getBundler().getMaxSize();
    }

    /** The Java machine compiles what it sees often. */
    private void warmUp() throws Exception {
        final long end = System.nanoTime() + number("warmup-ms") * 1_000_000;
        if (place < senders) {
            while (System.nanoTime() < end) {
                channel.send(new BytesMessage(null, message(WARM)));
            }
            channel.send(new BytesMessage(null, message(WARM_END)));
        }
        synchronized (this) {
            while (warmEnds < senders) {
                wait(10);
                if (System.nanoTime() - end > PATIENCE_NS) {
                    throw new IllegalStateException("nothing comes while warming up");
                }
            }
            measures = true;
        }
    }

    private String measure(long startNs) throws Exception {
        final OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        final long cpuNs = process.getProcessCpuTime();
        final int viewsBefore = views;
        until(startNs);
        for (long next = 0; place < senders && next < each; next++) {
            if (periodNs > 0) {
                until(startNs + next * periodNs + place * periodNs / senders);
            }
            final byte[] payload = message(next);
            channel.send(new BytesMessage(null, payload));
            final long hash = hash(place, payload, 0, size);
            add(own, hash);
            if (next < ROWS_MAX) {
                hashes.putLong(hash);
            }
        }
        waitForAll();
        final long spentNs = process.getProcessCpuTime() - cpuNs;
        return String.format(
                "{\"Ok\":{\"ended_ns\":%d,\"bytes\":%d,\"content\":[%s,%d],\"order\":[%s,0],\"sent\":[%s,%d],\"cpu_ns\":%d,"
                        + "\"views\":%d,\"rows\":%d,\"hashes\":%d}}",
                lastNs, bytes, Long.toUnsignedString(content[0]), content[1], Long.toUnsignedString(order),
                Long.toUnsignedString(own[0]), own[1], spentNs, views - viewsBefore, rows.position() / 40, hashes.position() / 8);
    }

    private synchronized void waitForAll() throws InterruptedException {
        final long all = senders * each;
        long seen = delivered;
        long since = System.nanoTime();
        while (delivered < all) {
            wait(10);
            final long now = System.nanoTime();
            if (delivered != seen) {
                seen = delivered;
                since = now;
            } else if (now - since > PATIENCE_NS + periodNs) { // Until the next is due, nothing can come.
                throw new IllegalStateException("nothing comes after " + delivered + " of " + all + " messages");
            }
        }
    }

    private static void until(long ns) {
        for (long rest = ns - System.nanoTime(); rest > 0; rest = ns - System.nanoTime()) {
            LockSupport.parkNanos(rest);
        }
    }

    /** An array of its own: JGroups holds it until all have it. */
    private byte[] message(long number) {
        final byte[] payload = new byte[size];
        System.arraycopy(pool, (int) Long.remainderUnsigned(number * 7_919, POOL_SIZE), payload, 0, size);
        WORDS.set(payload, 0, number);
        WORDS.set(payload, 8, System.nanoTime());
        return payload;
    }

    @Override
    public synchronized void viewAccepted(View view) {
        present = view.size();
        views++;
        notifyAll();
    }

    @Override
    public synchronized void receive(Message message) {
        final long atNs = System.nanoTime();
        final byte[] payload = message.getArray();
        final int from = message.getOffset();
        final int length = message.getLength();
        final long number = length >= PREFIX ? (long) WORDS.get(payload, from) : 0;
        if (!measures) {
            warmEnds += number == WARM_END ? 1 : 0;
            // As much of this is done while warming up as afterwards.
            hash(0, payload, from, length);
            return;
        }
        final long sender = ((UUID) message.getSrc()).getLeastSignificantBits() - 1;
        final long hash = hash(sender, payload, from, length);
        add(content, hash);
        order = order * FACTOR + hash;
        if (rows.hasRemaining()) {
            final long sentNs = length >= PREFIX ? (long) WORDS.get(payload, from + 8) : 0;
            rows.putLong(sender).putLong(number).putLong(hash).putLong(sentNs).putLong(atNs);
        }
        bytes += length;
        lastNs = System.nanoTime();
        if (++delivered == senders * each) {
            notifyAll();
        }
    }

    /** Adds to two words. */
    private static void add(long[] sum, long hash) {
        sum[0] += hash;
        sum[1] += Long.compareUnsigned(sum[0], hash) < 0 ? 1 : 0;
    }

    private static long mix(long word) {
        word = (word ^ (word >>> 32)) * FACTOR;
        word = (word ^ (word >>> 29)) * 0xBF58476D1CE4E5B9L;
        return word ^ (word >>> 32);
    }

    /** As Corosync's peer has it: four lanes, each a bijection of its state for each word. */
    private static long hash(long sender, byte[] payload, int from, int length) {
        long a = sender;
        long b = ~sender;
        long c = sender * FACTOR;
        long d = length;
        final int end = from + length;
        int at = from;
        for (; at + 32 <= end; at += 32) {
            a = (a ^ (long) WORDS.get(payload, at)) * FACTOR;
            b = (b ^ (long) WORDS.get(payload, at + 8)) * FACTOR;
            c = (c ^ (long) WORDS.get(payload, at + 16)) * FACTOR;
            d = (d ^ (long) WORDS.get(payload, at + 24)) * FACTOR;
        }
        for (; at < end; at++) {
            d = (d ^ (payload[at] & 0xff)) * FACTOR;
        }
        return mix(mix(mix(mix(mix(a) ^ mix(b + 1)) ^ mix(c + 2)) ^ mix(d + 3)));
    }
}
