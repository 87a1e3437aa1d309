//! Real traffic over loopback. Nothing here asserts how fast; everything that waits gives up loudly.
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::*;
use crate::namespace;

const WATCHDOG: Duration = Duration::from_secs(10);

fn loopback() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn open(options: &UdpOptions) -> UdpSocket {
    UdpSocket::bind(loopback(), options).expect("bind on loopback")
}

fn address(socket: &UdpSocket) -> SocketAddr {
    socket.local_address().expect("a bound socket has an address")
}

/// Calls `step` until it answers; panics when the watchdog bites.
fn until<T>(what: &str, mut step: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = step() {
            return value;
        }
        assert!(started.elapsed() < WATCHDOG, "gave up waiting for {what}");
        std::thread::yield_now();
    }
}

/// Receives one non-empty batch.
fn receive(socket: &UdpSocket, batch: &mut RecvBatch, limit: usize) -> usize {
    until("a datagram", || match socket.recv_batch(batch, limit).expect("receive") {
        0 => None,
        count => Some(count),
    })
}

fn fill(batch: &mut SendBatch, to: SocketAddr, payload: &[u8]) -> bool {
    let Some(bytes) = batch.claim(payload.len()) else { return false };
    bytes.copy_from_slice(payload);
    batch.commit(to);
    true
}

#[test]
fn more_than_a_batch_arrives_in_order_over_both_families() {
    for any in ["127.0.0.1:0", "[::1]:0"] {
        let any: SocketAddr = any.parse().expect("valid");
        let Ok(receiver) = UdpSocket::bind(any, &UdpOptions::default()) else {
            crate::skipped!("{any}: this host has no such loopback address");
            continue;
        };
        let sender = UdpSocket::bind(any, &UdpOptions::default()).expect("bind");
        let (mut outgoing, mut incoming) = (SendBatch::new(7, 64), RecvBatch::new(5, 64));
        let mut expected = 0_u32;
        for number in 0..100_u32 {
            if !fill(&mut outgoing, address(&receiver), &number.to_le_bytes()) {
                assert!(outgoing.is_full());
                assert_eq!(sender.send_batch(&mut outgoing).expect("send"), 7);
                assert!(fill(&mut outgoing, address(&receiver), &number.to_le_bytes()));
            }
            while receiver.recv_batch(&mut incoming, usize::MAX).expect("receive") > 0 {
                expected = check_numbers(&incoming, expected, address(&sender));
            }
        }
        assert_eq!(sender.send_batch(&mut outgoing).expect("send"), 100 % 7);
        while expected < 100 {
            receive(&receiver, &mut incoming, usize::MAX);
            expected = check_numbers(&incoming, expected, address(&sender));
        }
        assert_eq!(receiver.recv_batch(&mut incoming, 1).expect("receive"), 0, "nothing twice");
    }
}

fn check_numbers(batch: &RecvBatch, mut expected: u32, source: SocketAddr) -> u32 {
    for datagram in batch.iter() {
        assert_eq!(datagram.bytes, expected.to_le_bytes());
        assert_eq!(datagram.source.socket_addr(), source);
        assert!(!datagram.truncated);
        assert_eq!(datagram.kernel_receive_ns, None, "not asked for");
        expected += 1;
    }
    expected
}

#[test]
fn a_truncated_datagram_says_so() {
    let (receiver, sender) = (open(&UdpOptions::default()), open(&UdpOptions::default()));
    let mut outgoing = SendBatch::new(2, 100);
    for limit in [1, 2] {
        let mut incoming = RecvBatch::new(2, 10);
        assert!(fill(&mut outgoing, address(&receiver), &[1; 10]));
        assert!(fill(&mut outgoing, address(&receiver), &[2; 11]));
        assert_eq!(sender.send_batch(&mut outgoing).expect("send"), 2);
        let mut seen = Vec::new();
        while seen.len() < 2 {
            receive(&receiver, &mut incoming, limit);
            seen.extend(incoming.iter().map(|datagram| (datagram.bytes.to_vec(), datagram.truncated)));
        }
        assert_eq!(seen, [(vec![1; 10], false), (vec![2; 10], true)]);
    }
}

/// Goal: datagrams that a receiver's buffer cannot hold are counted, exactly.
#[test]
fn the_kernel_counts_every_drop() {
    for segmentation in [false, true] {
        count_drops(&UdpOptions { segmentation, ..UdpOptions::default() });
    }
}

fn count_drops(sending: &UdpOptions) {
    let options = UdpOptions { receive_buffer: Some(4_096), ..UdpOptions::default() };
    let (receiver, sender) = (open(&options), open(sending));
    match receiver.dropped() {
        Ok(dropped) => assert_eq!(dropped, 0),
        Err(error) => return crate::skipped!("this kernel does not count drops: {error}"),
    }
    let mut outgoing = SendBatch::new(16, 1_000);
    for _ in 0..16 {
        for _ in 0..16 {
            assert!(fill(&mut outgoing, address(&receiver), &[0; 1_000]));
        }
        assert_eq!(sender.send_batch(&mut outgoing).expect("loopback takes all"), 16);
    }
    let mut incoming = RecvBatch::new(8, 1_000);
    let mut kept = 0;
    while receiver.recv_batch(&mut incoming, 8).expect("receive") > 0 {
        kept += u32::try_from(incoming.len()).expect("small");
    }
    assert!(kept > 0 && kept < 256, "kept {kept}");
    assert_eq!(receiver.dropped().expect("it said so before"), 256 - kept);
}

/// Goal: merging changes nothing that a receiver can see, for all sizes and targets.
#[test]
fn merged_runs_arrive_as_they_were_sent() {
    let merging = UdpOptions { segmentation: true, ..UdpOptions::default() };
    let roomy = UdpOptions { receive_buffer: Some(1 << 20), ..UdpOptions::default() };
    let (one, two) = (open(&roomy), open(&roomy));
    let sender = open(&merging);
    assert!(sender.enable_transmit_timestamps().is_err());
    let mut outgoing = SendBatch::new(100, 2_000);
    // Runs that end in a shorter one, an empty one, a longer one, another target, or at the limits.
    let sizes = [100, 100, 40, 40, 0, 0, 7, 8, 8, 8, 3, 1_448, 1_448, 1_448, 1_448, 5];
    let mut expected = [Vec::new(), Vec::new()];
    for number in 0..100_usize {
        let size = if number < 64 { sizes[number % sizes.len()] } else { 1_448 };
        let target = usize::from(number % 23 == 22);
        let payload = vec![number as u8; size];
        assert!(fill(&mut outgoing, address([&one, &two][target]), &payload));
        expected[target].push(payload);
    }
    let mut seen = [Vec::new(), Vec::new()];
    let mut incoming = RecvBatch::new(16, 2_000);
    until("all to arrive", || {
        if !outgoing.is_empty() {
            sender.send_batch(&mut outgoing).expect("send");
        }
        for (receiver, seen) in [&one, &two].into_iter().zip(&mut seen) {
            while receiver.recv_batch(&mut incoming, 16).expect("receive") > 0 {
                seen.extend(incoming.iter().map(|datagram| datagram.bytes.to_vec()));
            }
        }
        (seen.iter().map(Vec::len).sum::<usize>() == 100).then_some(())
    });
    assert!(seen == expected, "order, sizes and contents");
    assert_eq!(outgoing.refused(), 0);
    assert!(outgoing.is_merging(), "loopback can cut");
}

/// Goal: a socket that asks for it gets runs as they were sent, one datagram each. A dropped run counts as one, also in the sender's
/// count.
#[test]
fn a_run_arrives_as_one_where_that_is_asked_for() {
    let merging = UdpOptions { segmentation: true, ..UdpOptions::default() };
    let merged = UdpOptions { merged: true, receive_buffer: Some(100_000), ..UdpOptions::default() };
    let (receiver, sender) = (open(&merged), open(&merging));
    let to = address(&receiver);
    let mut outgoing = SendBatch::new(16, 1_000).counting(Some(to.into()), true);
    let mut incoming = RecvBatch::new(4, DATAGRAM_SIZE_MAX);
    let mut send_runs = |runs: u8| {
        for number in 0..16 * runs {
            assert!(fill(&mut outgoing, to, &[number; 1_000]));
            if number % 16 == 15 {
                assert_eq!(sender.send_batch(&mut outgoing).expect("loopback takes all"), 16);
            }
        }
        outgoing.counted()
    };
    assert_eq!(send_runs(1), 1);
    receive(&receiver, &mut incoming, 4);
    let run = incoming.get(0).expect("one").bytes;
    if run.len() == 1_000 {
        return crate::skipped!("this kernel merges nothing (UDP_GRO)");
    }
    assert!(run.chunks(1_000).enumerate().all(|(number, bytes)| *bytes == [number as u8; 1_000]));
    assert_eq!(run.len(), 16_000);
    assert_eq!(send_runs(15), 16);
    let mut kept = 0;
    while receiver.recv_batch(&mut incoming, 4).expect("receive") > 0 {
        kept += incoming.iter().map(|run| run.bytes.len() / 16_000).sum::<usize>();
    }
    match receiver.dropped() {
        Ok(dropped) => assert_eq!((kept + dropped as usize, dropped > 0), (15, true), "{kept}"),
        Err(error) => crate::skipped!("the rest: this kernel does not count drops: {error}"),
    }
}

/// Goal: a socket that has no run as one counts each datagram that it drops, and so does the sender.
#[test]
fn a_run_that_is_cut_counts_by_its_datagrams() {
    let merging = UdpOptions { segmentation: true, ..UdpOptions::default() };
    let unwanted = Some(Unwanted { at: 0, bytes: [7; 8] });
    let (receiver, sender) = (open(&UdpOptions { unwanted, ..UdpOptions::default() }), open(&merging));
    let to = address(&receiver);
    let mut outgoing = SendBatch::new(16, 1_000).counting(Some(to.into()), false);
    for _ in 0..16 {
        assert!(fill(&mut outgoing, to, &[7; 1_000]));
    }
    assert_eq!(sender.send_batch(&mut outgoing).expect("loopback takes all"), 16);
    match receiver.dropped() {
        Ok(dropped) => assert_eq!((outgoing.counted(), dropped), (16, 16)),
        Err(error) => crate::skipped!("this kernel does not count drops: {error}"),
    }
}

/// Goal: a run that the kernel will not cut goes out uncut, in order.
#[test]
fn a_run_beyond_the_mtu_is_sent_singly() {
    let host = std::thread::spawn(|| -> Result<(), SystemError> {
        namespace::unshare_network()?;
        namespace::set_mtu("lo", 1_000)?;
        namespace::bring_up("lo")?;
        let receiver = open(&UdpOptions::default());
        let sender = open(&UdpOptions { segmentation: true, ..UdpOptions::default() });
        let mut outgoing = SendBatch::new(5, 1_400);
        for number in 0..5 {
            assert!(fill(&mut outgoing, address(&receiver), &[number; 1_400]));
        }
        assert_eq!(sender.send_batch(&mut outgoing).expect("the first alone"), 1);
        assert!(!outgoing.is_merging());
        assert_eq!(sender.send_batch(&mut outgoing).expect("the rest"), 4);
        let mut incoming = RecvBatch::new(1, 1_400);
        for number in 0..5 {
            receive(&receiver, &mut incoming, 1);
            assert_eq!(incoming.get(0).map(|datagram| datagram.bytes), Some(&[number; 1_400][..]));
        }
        Ok(())
    });
    if let Err(e) = host.join().expect("the thread ends") {
        assert_eq!(e.kind(), io::ErrorKind::PermissionDenied, "{e}");
        crate::skipped!("{e}");
    }
}

#[test]
fn an_error_costs_the_one_datagram_it_belongs_to() {
    let (receiver, sender) = (open(&UdpOptions::default()), open(&UdpOptions::default()));
    let mut outgoing = SendBatch::new(4, DATAGRAM_SIZE_MAX + 1);
    assert!(fill(&mut outgoing, address(&receiver), b"first"));
    assert!(fill(&mut outgoing, address(&receiver), &[0; DATAGRAM_SIZE_MAX + 1]));
    assert!(fill(&mut outgoing, address(&receiver), b"third"));
    assert_eq!(sender.send_batch(&mut outgoing).expect("the first goes"), 1);
    let error = sender.send_batch(&mut outgoing).expect_err("too long");
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    assert_eq!((outgoing.len(), outgoing.refused()), (1, 1));
    assert_eq!(sender.send_batch(&mut outgoing).expect("the third goes"), 1);
    let mut incoming = RecvBatch::new(4, 16);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        receive(&receiver, &mut incoming, 4);
        seen.extend(incoming.iter().map(|datagram| datagram.bytes.to_vec()));
    }
    assert_eq!(seen, [b"first", b"third"]);
}

#[test]
fn a_refusal_reports_the_earlier_datagram_and_keeps_the_batch() {
    let sender = open(&UdpOptions::default());
    let gone = address(&open(&UdpOptions::default()));
    sender.connect(gone).expect("connect");
    let mut outgoing = SendBatch::new(2, 8);
    // The first ICMP answer may come late: at some point a send reports it.
    let error = until("a refusal", || {
        assert!(outgoing.claim(8).is_some());
        outgoing.commit_connected();
        sender.send_batch(&mut outgoing).err()
    });
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert_eq!((outgoing.len(), outgoing.refused()), (1, 0));
    assert_eq!(sender.send_batch(&mut outgoing).expect("the error was taken"), 1);
    let mut incoming = RecvBatch::new(1, 8);
    let error = until("the next refusal", || sender.recv_batch(&mut incoming, 1).err());
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_full_kernel_leaves_the_batch_intact() {
    let path = std::env::temp_dir().join(format!("punctual-socket-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    // UDP over loopback drops rather than blocks. A local datagram socket whose reader sleeps does block,
    // and the batch cannot tell the difference.
    let reader = std::os::unix::net::UnixDatagram::bind(&path).expect("bind");
    let writer = std::os::unix::net::UnixDatagram::unbound().expect("open");
    writer.connect(&path).expect("connect");
    let socket = UdpSocket { fd: writer.into(), timestamps: false, segmentation: false };
    let mut outgoing = SendBatch::new(64, 1_000);
    let mut sent = 0_u32;
    let mut next = 0_u32;
    let error = until("a full queue", || {
        while let Some(bytes) = outgoing.claim(4) {
            bytes.copy_from_slice(&next.to_le_bytes());
            outgoing.commit_connected();
            next += 1;
        }
        match socket.send_batch(&mut outgoing) {
            Ok(count) => {
                sent += u32::try_from(count).expect("small");
                None
            }
            Err(e) => Some(e),
        }
    });
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(u32::try_from(outgoing.len()).expect("small"), next - sent);
    let mut bytes = [0; 8];
    for expected in 0..next {
        while expected >= sent {
            sent += u32::try_from(socket.send_batch(&mut outgoing).expect("room again")).expect("small");
        }
        assert_eq!(reader.recv(&mut bytes).expect("receive"), 4);
        assert_eq!(bytes[..4], expected.to_le_bytes());
    }
    assert!(outgoing.is_empty());
    let _ = std::fs::remove_file(&path);
}

#[test]
fn both_members_of_a_group_hear_it() {
    let group = Ipv4Addr::new(239, 192, 77, 1);
    let options = UdpOptions { reuse_address: true, ..UdpOptions::default() };
    let first = UdpSocket::bind(SocketAddr::from((group, 0)), &options).expect("bind");
    let to = address(&first);
    let second = UdpSocket::bind(to, &options).expect("bind a second");
    let by_name = MulticastInterface::named("lo").expect("lo exists");
    first.join_multicast(group.into(), MulticastInterface::Address(Ipv4Addr::LOCALHOST)).expect("join");
    second.join_multicast(group.into(), by_name).expect("join");
    let mut outgoing = SendBatch::new(1, 8);
    assert!(fill(&mut outgoing, to, b"all"));
    first.send_batch(&mut outgoing).expect("send");
    for member in [&first, &second] {
        let mut incoming = RecvBatch::new(2, 8);
        receive(member, &mut incoming, 2);
        assert_eq!(incoming.get(0).map(|datagram| datagram.bytes), Some(&b"all"[..]));
    }
    let error = MulticastInterface::named("nowhere0").expect_err("no such interface");
    assert!(error.to_string().contains("nowhere0"), "{error}");
}

#[test]
fn stamps_lie_between_send_and_receive() {
    let options = UdpOptions { timestamps: true, ..UdpOptions::default() };
    let (receiver, sender) = (open(&options), open(&UdpOptions::default()));
    sender.enable_transmit_timestamps().expect("enable");
    let (mut outgoing, mut incoming) = (SendBatch::new(2, 8), RecvBatch::new(2, 8));
    let before = realtime_ns();
    let (mut sent, mut left) = (0_u32, Vec::new());
    // The static key that turns receive stamps on flips late: send until it has. Transmit stamps are read
    // as they come, because those that nobody reads fill the sender's receive buffer.
    let arrived = until("a stamped datagram", || {
        assert!(fill(&mut outgoing, address(&receiver), b"when"));
        sender.send_batch(&mut outgoing).expect("send");
        sent += 1;
        until("its transmit stamp", || {
            sender.read_transmit_timestamps(&mut |id, ns| left.push((id, ns))).expect("error queue");
            (left.len() == sent as usize).then_some(())
        });
        receive(&receiver, &mut incoming, 2);
        incoming.get(0).and_then(|datagram| datagram.kernel_receive_ns)
    });
    let after = realtime_ns();
    assert!(left.iter().map(|(id, _)| *id).eq(0..sent), "{left:?}");
    let last_left = left.last().expect("one was sent").1;
    assert!(before <= last_left && last_left <= arrived && arrived <= after);
}

fn realtime_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    u64::try_from(now.as_nanos()).expect("before 2554")
}

#[test]
fn bare_calls_move_bytes_and_a_blocked_one_gives_up() {
    let (one, two) = (open(&UdpOptions::default()), open(&UdpOptions::default()));
    one.connect(address(&two)).expect("connect");
    two.connect(address(&one)).expect("connect");
    let mut bytes = [0; 8];
    let empty = two.recv_bare(&mut bytes).expect_err("nothing there");
    assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(one.send_bare(b"bare").expect("send"), 4);
    assert_eq!(until("bytes", || two.recv_bare(&mut bytes).ok()), 4);
    assert_eq!(&bytes[..4], b"bare");
    two.set_blocking(true).expect("set");
    two.set_receive_timeout(Some(Duration::from_millis(20))).expect("set");
    let timeout = two.recv_bare_blocking(&mut bytes).expect_err("the watchdog");
    assert_eq!(timeout.kind(), io::ErrorKind::WouldBlock);
    // Batches do not wait even now.
    assert_eq!(two.recv_batch(&mut RecvBatch::new(1, 8), 1).expect("receive"), 0);
}

#[test]
fn errors_name_what_failed() {
    let taken = open(&UdpOptions::default());
    let error = UdpSocket::bind(address(&taken), &UdpOptions::default()).expect_err("taken");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&address(&taken).to_string()), "{error}");
}

#[test]
fn claims_beyond_the_limits_are_refused() {
    let mut batch = SendBatch::new(2, 8);
    assert!(batch.claim(9).is_none());
    assert!(batch.claim(8).is_some() && batch.claim(3).is_some(), "a claim replaces a claim");
    assert!(batch.is_empty());
    for _ in 0..2 {
        assert!(fill(&mut batch, loopback(), b"x"));
    }
    assert!(batch.is_full() && batch.claim(1).is_none());
}

/// Goal: the kernel drops what is unwanted, and nothing else: neither what differs in a byte nor what is too short to say.
#[test]
fn unwanted_datagrams_do_not_arrive() {
    let unwanted = Unwanted { at: 3, bytes: *b"our mark" };
    let socket = open(&UdpOptions { unwanted: Some(unwanted), ..UdpOptions::default() });
    let sender = open(&UdpOptions::default());
    let payloads: [&[u8]; 7] =
        [b"", b"xx", b"12_our mar", b"12_our mark", b"12_our mark and more", b"12_our marK", b"12_Our mark"];
    let wanted = |payload: &&&[u8]| !payload.get(3..).is_some_and(|rest| rest.starts_with(b"our mark"));
    let mut batch = SendBatch::new(payloads.len() + 1, 64);
    for payload in payloads {
        assert!(fill(&mut batch, address(&socket), payload));
    }
    assert!(fill(&mut batch, address(&socket), b"the last"));
    sender.send_batch(&mut batch).expect("send");
    let mut received = RecvBatch::new(16, 64);
    let mut got: Vec<Vec<u8>> = Vec::new();
    while got.last().is_none_or(|last| last != b"the last") {
        let count = receive(&socket, &mut received, 16);
        got.extend((0..count).map(|index| received.get(index).expect("it was received").bytes.to_vec()));
    }
    let expected: Vec<&[u8]> = payloads.iter().filter(wanted).copied().chain([&b"the last"[..]]).collect();
    assert_eq!(got, expected);
}
