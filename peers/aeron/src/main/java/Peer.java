// Aeron IPC, both ends: ping-pong and a stream, under the rules that all of `punctual-peers` plays by.

import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.FragmentHandler;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.SleepingMillisIdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.function.BooleanSupplier;

/**
 * {@code Peer ROLE MODE SIZE CPU FOLDER RESULT}, where ROLE is {@code here} (runs the media driver, counts, writes RESULT) or
 * {@code there}, and MODE {@code pingpong} or {@code stream}. Says {@code ready}, then takes a turn for every line
 * {@code WARMUP MESSAGES} of its input, and says {@code done}.
 *
 * <p>RESULT is a file of 64-bit little-endian numbers, nanoseconds: what two looks at the clock cost, then every latency
 * (ping-pong) or the time that all messages took (stream).
 */
public final class Peer {
    private static final String CHANNEL = "aeron:ipc?mtu=16k|term-length=" + System.getProperty("term", "1m");
    private static final int OUT = 1001;
    private static final int BACK = 1002;
    private static final long PATIENCE_NS = 20_000_000_000L;
    /** Looks at the ring between two looks at the clock: nobody waits for ever. */
    private static final int LOOKS = 1 << 20;
    /** The whole of every so many messages of a stream is compared; number and last byte of each. */
    private static final int WHOLE_EVERY = 1024;

    private final int size;
    private final UnsafeBuffer out;
    private final UnsafeBuffer in;
    private final byte[] pattern;
    private final FragmentHandler copy;
    private final FragmentHandler count;
    private ExclusivePublication publication;
    private Image image;
    private long received;
    private long wrong;

    private Peer(int size) {
        this.size = size;
        out = new UnsafeBuffer(ByteBuffer.allocateDirect(size));
        in = new UnsafeBuffer(ByteBuffer.allocateDirect(size));
        pattern = new byte[size];
        for (int i = 0; i < size; i++) {
            pattern[i] = (byte) (i * 7);
        }
        copy = (buffer, offset, length, header) -> buffer.getBytes(offset, in, 0, length);
        count = this::take;
    }

    public static void main(String[] arguments) throws Exception {
        final boolean here = arguments[0].equals("here");
        final boolean stream = arguments[1].equals("stream");
        final Peer peer = new Peer(Integer.parseInt(arguments[2]));
        final String folder = arguments[4];
        final BufferedReader turns = new BufferedReader(new InputStreamReader(System.in));
        try (MediaDriver driver = here ? drive(folder) : null; Aeron aeron = join(folder)) {
            peer.connect(aeron, here);
            pin(arguments[3]);
            System.out.println("ready");
            for (String line = turns.readLine(); line != null; line = turns.readLine()) {
                final String[] words = line.split(" ");
                final int warmup = Integer.parseInt(words[0]);
                final int messages = Integer.parseInt(words[1]);
                if (here) {
                    store(Path.of(arguments[5]), stream ? peer.write(warmup, messages) : peer.ask(warmup, messages));
                } else if (stream) {
                    peer.read(warmup);
                    peer.read(messages);
                } else {
                    peer.answer(warmup + messages);
                }
                System.out.println("done");
            }
        }
    }

    /** One thread that wakes a thousand times a second: both processors are taken by spinning threads. */
    private static MediaDriver drive(String folder) {
        return MediaDriver.launch(new MediaDriver.Context()
            .aeronDirectoryName(folder)
            .threadingMode(ThreadingMode.SHARED)
            .sharedIdleStrategy(new SleepingMillisIdleStrategy(1))
            .termBufferSparseFile(false)
            .dirDeleteOnStart(true)
            .dirDeleteOnShutdown(true));
    }

    private static Aeron join(String folder) {
        awaitUntil("the media driver", () -> Files.exists(Path.of(folder, "cnc.dat")));
        return Aeron.connect(new Aeron.Context().aeronDirectoryName(folder).preTouchMappedMemory(true));
    }

    private void connect(Aeron aeron, boolean here) {
        final Subscription subscription = aeron.addSubscription(CHANNEL, here ? BACK : OUT);
        publication = aeron.addExclusivePublication(CHANNEL, here ? OUT : BACK);
        awaitUntil("the other end", () -> subscription.imageCount() > 0 && publication.isConnected());
        image = subscription.imageAtIndex(0);
    }

    /** Only the thread that measures is pinned: compiler, collector and driver go where there is room. */
    private static void pin(String cpu) throws Exception {
        final String thread = Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName().toString();
        final Process taskset = new ProcessBuilder("taskset", "-pc", cpu, thread)
            .redirectOutput(ProcessBuilder.Redirect.DISCARD).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        if (taskset.waitFor() != 0) {
            throw new IllegalStateException("cannot pin to processor " + cpu);
        }
    }

    private static void awaitUntil(String what, BooleanSupplier done) {
        final long end = System.nanoTime() + PATIENCE_NS;
        while (!done.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("waited in vain for " + what);
            }
            Thread.onSpinWait();
        }
    }

    private void send(DirectBuffer message) {
        int looks = 0;
        while (publication.offer(message, 0, size) < 0) {
            looks = look(looks);
        }
    }

    private void receive(FragmentHandler handler, int limit) {
        int looks = 0;
        while (image.poll(handler, limit) == 0) {
            looks = look(looks);
        }
    }

    private int look(int looks) {
        Thread.onSpinWait();
        if (looks < LOOKS * 64) {
            return looks + 1;
        }
        throw new IllegalStateException("no answer");
    }

    private long[] ask(int warmup, int messages) {
        final long[] result = new long[1 + messages];
        for (int number = 0; number < warmup + messages; number++) {
            final byte fill = (byte) (number % 200);
            out.setMemory(0, size, fill);
            final long start = System.nanoTime();
            send(out);
            receive(copy, 1);
            final long latency = System.nanoTime() - start;
            if (number >= warmup) {
                result[1 + number - warmup] = latency;
            }
            if (in.getByte(size - 1) != fill) {
                throw new IllegalStateException("the wrong answer");
            }
        }
        result[0] = clockCost();
        return result;
    }

    private void answer(int messages) {
        for (int number = 0; number < messages; number++) {
            receive(copy, 1);
            // The message is sent from the place where it was copied to, as the other kinds' ends do: a copy in, a copy out.
            send(in);
        }
    }

    private long[] write(int warmup, int messages) {
        out.putBytes(0, pattern);
        writeOnce(warmup);
        final long start = System.nanoTime();
        writeOnce(messages);
        final long duration = System.nanoTime() - start;
        // Measured afterwards: the stream's time must not have it.
        return new long[] {clockCost(), duration};
    }

    /** Numbers messages from 0 on, and waits until the reader says that it has them all. */
    private void writeOnce(int messages) {
        for (long number = 0; number < messages; number++) {
            out.putLong(0, number, ByteOrder.LITTLE_ENDIAN);
            send(out);
        }
        receive(copy, 1);
        final long had = in.getLong(0, ByteOrder.LITTLE_ENDIAN);
        if (had != messages) {
            throw new IllegalStateException("the reader had " + had + " right messages of " + messages);
        }
    }

    private void read(int messages) {
        received = 0;
        wrong = 0;
        while (received < messages) {
            receive(count, 64);
        }
        out.putLong(0, received - wrong, ByteOrder.LITTLE_ENDIAN);
        send(out);
    }

    private void take(DirectBuffer buffer, int offset, int length, io.aeron.logbuffer.Header header) {
        buffer.getBytes(offset, in, 0, length);
        final boolean right = length == size && in.getLong(0, ByteOrder.LITTLE_ENDIAN) == received
            && in.getByte(size - 1) == pattern[size - 1];
        if (!right || (received % WHOLE_EVERY == 0 && !isWhole())) {
            wrong++;
        }
        received++;
    }

    private boolean isWhole() {
        for (int at = Long.BYTES; at < size; at++) {
            if (in.getByte(at) != pattern[at]) {
                return false;
            }
        }
        return true;
    }

    /** What is in every latency, and in nobody's message: nanoseconds from one look at the clock to the next. */
    private static long clockCost() {
        final long[] steps = new long[10_000];
        long last = System.nanoTime();
        for (int at = 0; at < steps.length; at++) {
            final long now = System.nanoTime();
            steps[at] = now - last;
            last = now;
        }
        Arrays.sort(steps);
        return steps[steps.length / 2];
    }

    private static void store(Path path, long[] numbers) throws Exception {
        final ByteBuffer bytes = ByteBuffer.allocate(numbers.length * Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
        bytes.asLongBuffer().put(numbers);
        try (FileChannel file = FileChannel.open(path, StandardOpenOption.CREATE,
            StandardOpenOption.WRITE, StandardOpenOption.TRUNCATE_EXISTING)) {
            while (bytes.hasRemaining()) {
                file.write(bytes);
            }
        }
    }
}
