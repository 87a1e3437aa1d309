// Aeron with large messages, one end of it: as many as it takes in one, up to 16 MiB, and larger ones in pieces of that size.

import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.FragmentAssembler;
import io.aeron.Image;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.function.BooleanSupplier;

/**
 * {@code Large ROLE LINK FOLDER}: ROLE is {@code here}, which sends, or {@code there}; LINK is {@code ipc} or a UDP port of loopback,
 * with a driver at each end. Says {@code open}, then plays a game for each line {@code SIZE COUNT}, and answers when it began and 0,
 * or when the last message came and how many did; ns since 1970.
 */
public final class Large {
    private static final int STREAM = 1001;
    private static final int LARGEST = 64 << 20;
    private static final int PAGE = 4096;
    private static final long PATIENCE_NS = 20_000_000_000L;
    /** The largest datagram of loopback, in steps of 32. An eighth of the term is the largest message, 16 MiB at the most. */
    private static final String OPTIONS = "|mtu=65504|term-length=128m";
    private static final int SOCKET_BUFFER = 4 << 20;

    private final UnsafeBuffer message = new UnsafeBuffer(ByteBuffer.allocateDirect(LARGEST));
    /** It stays from game to game: the memory in which messages are put together is allocated before any game counts. */
    private final FragmentAssembler whole =
        new FragmentAssembler((buffer, offset, length, header) -> take(buffer, offset, length), LARGEST);
    private final IdleStrategy idle = new BackoffIdleStrategy(100, 10, 1_000, 100_000);
    private ExclusivePublication publication;
    private Image image;
    private int size;
    private int pieceSize;
    private int filled;
    private long came;

    public static void main(String[] arguments) throws Exception {
        final boolean here = arguments[0].equals("here");
        final boolean ipc = arguments[1].equals("ipc");
        final String channel =
            (ipc ? "aeron:ipc?alias=large" : "aeron:udp?endpoint=127.0.0.1:" + arguments[1]) + OPTIONS;
        final String folder = ipc || here ? arguments[2] : arguments[2] + "-there";
        final Large large = new Large();
        try (MediaDriver driver = here || !ipc ? drive(folder) : null; Aeron aeron = join(folder)) {
            large.connect(aeron, channel, here);
            System.out.println("open");
            final BufferedReader games = new BufferedReader(new InputStreamReader(System.in));
            for (String line = games.readLine(); line != null; line = games.readLine()) {
                final String[] words = line.split(" ");
                large.size = Integer.parseInt(words[0]);
                System.out.println(here ? large.send(Integer.parseInt(words[1])) : large.receive(Integer.parseInt(words[1])));
            }
        }
    }

    private static MediaDriver drive(String folder) {
        return MediaDriver.launch(new MediaDriver.Context()
            .aeronDirectoryName(folder)
            .threadingMode(ThreadingMode.SHARED)
            .sharedIdleStrategy(new BackoffIdleStrategy(100, 10, 1_000, 100_000))
            .socketRcvbufLength(SOCKET_BUFFER)
            .socketSndbufLength(SOCKET_BUFFER)
            .initialWindowLength(SOCKET_BUFFER)
            .dirDeleteOnStart(true)
            .dirDeleteOnShutdown(true));
    }

    private static Aeron join(String folder) throws Exception {
        awaitUntil("the media driver", () -> Files.exists(Path.of(folder, "cnc.dat")));
        return Aeron.connect(new Aeron.Context().aeronDirectoryName(folder));
    }

    private void connect(Aeron aeron, String channel, boolean here) throws Exception {
        if (here) {
            publication = aeron.addExclusivePublication(channel, STREAM);
            awaitUntil("a subscriber", () -> publication.isConnected());
        } else {
            final Subscription subscription = aeron.addSubscription(channel, STREAM);
            awaitUntil("a publisher", () -> subscription.imageCount() > 0);
            image = subscription.imageAtIndex(0);
        }
    }

    private static void awaitUntil(String what, BooleanSupplier done) throws Exception {
        final long end = System.nanoTime() + PATIENCE_NS;
        while (!done.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("waited in vain for " + what);
            }
            Thread.sleep(1);
        }
    }

    private static long now() {
        final Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000_000L + now.getNano();
    }

    private static byte pattern(int at) {
        return (byte) (at / PAGE * 7 + 1);
    }

    private String send(int count) {
        for (int at = 0; at < size; at += PAGE) {
            message.putByte(at + 8, pattern(at));
        }
        final int piece = Math.min(size, publication.maxMessageLength());
        final long began = now();
        for (long number = 0; number < count; number++) {
            message.putLong(0, number, ByteOrder.LITTLE_ENDIAN);
            for (int at = 0; at < size; at += piece) {
                offer(at, Math.min(piece, size - at));
            }
        }
        return began + " 0";
    }

    private void offer(int at, int length) {
        final long end = System.nanoTime() + PATIENCE_NS;
        while (publication.offer(message, at, length) < 0) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException("no room");
            }
            idle.idle();
        }
        idle.reset();
    }

    private String receive(int count) {
        came = 0;
        filled = 0;
        long end = System.nanoTime() + PATIENCE_NS;
        while (came < count) {
            final int fragments = image.poll(whole, 64);
            idle.idle(fragments);
            if (fragments > 0) {
                end = System.nanoTime() + PATIENCE_NS;
            } else if (System.nanoTime() > end) {
                throw new IllegalStateException("nothing comes");
            }
        }
        return now() + " " + came;
    }

    /** A message of one piece is looked at where it was put together; of several pieces one is made. */
    private void take(DirectBuffer buffer, int offset, int length) {
        if (length == size) {
            check(buffer, offset);
            return;
        }
        message.putBytes(filled, buffer, offset, length);
        filled += length;
        if (filled == size) {
            filled = 0;
            check(message, 0);
        }
    }

    private void check(DirectBuffer buffer, int offset) {
        boolean right = buffer.getLong(offset, ByteOrder.LITTLE_ENDIAN) == came;
        for (int at = 0; at < size; at += PAGE) {
            right &= buffer.getByte(offset + at + 8) == pattern(at);
        }
        if (!right) {
            throw new IllegalStateException("message " + came + " is not what was sent");
        }
        came++;
    }
}
