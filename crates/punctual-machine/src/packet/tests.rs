//! Two stations on a veth pair, each in a network namespace of its own. Without the privilege the tests say
//! so and end; nothing here asserts how fast, and everything that waits gives up loudly.
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::namespace;

const WATCHDOG: Duration = Duration::from_secs(20);
const FOREIGN: u16 = 0x88B6;

/// Runs `here` and `there` on two threads, in two namespaces joined by `punctual0` and `punctual1`.
/// The interfaces are up, and both threads start after both are.
fn on_two_hosts(
    here: impl FnOnce() + Send + 'static,
    there: impl FnOnce() + Send + 'static,
) -> Result<(), SystemError> {
    let (peer_ready, peer_id) = mpsc::channel();
    let (veth_ready, veth) = mpsc::channel();
    let (peer_up, peer_is_up) = mpsc::channel();
    let far = std::thread::spawn(move || -> Result<(), SystemError> {
        namespace::unshare_network()?;
        let _ = peer_ready.send(namespace::thread_id());
        if veth.recv_timeout(WATCHDOG).is_err() {
            return Ok(());
        }
        namespace::bring_up("punctual1")?;
        let _ = peer_up.send(());
        there();
        Ok(())
    });
    let near = std::thread::spawn(move || -> Result<(), SystemError> {
        namespace::unshare_network()?;
        // The other side reports why it failed.
        let Ok(peer) = peer_id.recv_timeout(WATCHDOG) else { return Ok(()) };
        namespace::create_veth("punctual0", "punctual1", peer)?;
        namespace::bring_up("punctual0")?;
        let _ = veth_ready.send(());
        if peer_is_up.recv_timeout(WATCHDOG).is_ok() {
            here();
        }
        drop(veth_ready);
        Ok(())
    });
    near.join().expect("the near side ends").and(far.join().expect("the far side ends"))
}

/// Checks that the test ran; an unprivileged process says why not.
fn ran(result: Result<(), SystemError>) {
    if let Err(e) = result {
        assert_eq!(e.kind(), io::ErrorKind::PermissionDenied, "{e}");
        crate::skipped!("{e}");
    }
}

fn open(interface: &str, ethertype: u16, frames: usize) -> PacketSocket {
    let options = PacketOptions { frames, send_frames: frames, ..PacketOptions::default() };
    PacketSocket::open(interface, ethertype, &options).expect("open")
}

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

fn send(socket: &mut PacketSocket, payload: &[u8]) {
    until("room in the queue", || {
        let bytes = socket.sender.claim(payload.len())?;
        bytes.copy_from_slice(payload);
        socket.sender.commit(BROADCAST);
        Some(())
    });
    until("the device", || socket.sender.flush().ok());
}

/// Goal: every payload comes back, in order, while the queues wrap ten times.
#[test]
fn queues_wrap_without_loss() {
    const FRAMES: usize = 16;
    const COUNT: u32 = 10 * FRAMES as u32;
    let (opened, is_open) = mpsc::channel();
    let echo = move || {
        let mut socket = open("punctual1", ETHERTYPE_EXPERIMENTAL, FRAMES);
        opened.send(()).expect("the other side waits");
        for _ in 0..COUNT {
            until("a request", || {
                let mac = socket.mac();
                let PacketSocket { receiver: receive, sender: sending, .. } = &mut socket;
                let frame = receive.recv()?;
                let reply = sending.claim(frame.bytes.len()).expect("room for the reply");
                reply.copy_from_slice(frame.bytes);
                assert_ne!(frame.source_mac, mac);
                sending.commit(frame.source_mac);
                receive.release();
                Some(())
            });
            until("the device", || socket.sender.flush().ok());
        }
        assert_eq!(socket.drops().expect("statistics"), 0);
    };
    let request = move || {
        let mut socket = open("punctual0", ETHERTYPE_EXPERIMENTAL, FRAMES);
        assert_eq!(socket.mtu(), 1_500);
        is_open.recv_timeout(WATCHDOG).expect("the other side opens");
        for number in 0..COUNT {
            let mut payload = vec![0; 46 + number as usize * 9];
            payload[..4].copy_from_slice(&number.to_le_bytes());
            send(&mut socket, &payload);
            let mac = socket.mac();
            until("the reply", || {
                let frame = socket.receiver.recv()?;
                assert_eq!(frame.bytes, payload);
                assert_eq!((frame.target_mac, frame.truncated), (mac, false));
                assert!(frame.kernel_ns.is_some());
                socket.receiver.release();
                Some(())
            });
        }
        assert!(socket.receiver.recv().is_none(), "nothing twice");
        assert_eq!(socket.drops().expect("statistics"), 0);
    };
    ran(on_two_hosts(request, echo));
}

#[test]
fn a_foreign_ethertype_never_arrives() {
    let (opened, is_open) = mpsc::channel();
    let (sent, is_sent) = mpsc::channel();
    let receiver = move || {
        let mut socket = open("punctual1", ETHERTYPE_EXPERIMENTAL, 64);
        opened.send(()).expect("the other side waits");
        is_sent.recv_timeout(WATCHDOG).expect("the other side sends");
        let frame =
            until("the frame of our type", || socket.receiver.recv().map(|frame| frame.bytes.to_vec()));
        assert_eq!(frame, [1; 46], "frames sent before it were not ours");
        socket.receiver.release();
        assert!(socket.receiver.recv().is_none());
        assert_eq!(socket.drops().expect("statistics"), 0);
    };
    let sender = move || {
        is_open.recv_timeout(WATCHDOG).expect("the other side opens");
        let mut foreign = open("punctual0", FOREIGN, 64);
        let mut ours = open("punctual0", ETHERTYPE_EXPERIMENTAL, 64);
        for _ in 0..5 {
            send(&mut foreign, &[0; 46]);
        }
        send(&mut ours, &[1; 46]);
        send(&mut foreign, &[2; 46]);
        sent.send(()).expect("the other side waits");
        assert!(ours.receiver.recv().is_none(), "a station does not hear itself");
    };
    ran(on_two_hosts(sender, receiver));
}

/// Goal: frames for an interface upon ours do not come to us: those of a VLAN, or of a station of its own.
#[test]
fn frames_of_an_interface_upon_ours_do_not_arrive() {
    ran(check_upon(&["macvlan", "mode", "private"]));
    ran(check_upon(&["vlan", "id", "5"]));
}

/// The same of interfaces of one kind. A frame sent by one that is upon the sender's is heard by one that is upon the receiver's.
fn check_upon(kind: &'static [&str]) -> Result<(), SystemError> {
    let add = move |below: &str| {
        let kind = [&["link", "add", "link", below, "name", "upon", "type"], kind].concat();
        let added = namespace::run_ip(&kind).and_then(|()| namespace::bring_up("upon"));
        let Err(error) = added else { return true };
        assert!(error.to_string().contains("Unknown device type"), "{error}");
        crate::skipped!("an interface upon another: {error}");
        false
    };
    let (opened, is_open) = mpsc::channel();
    let (sent, is_sent) = mpsc::channel();
    let receiver = move || {
        if !add("punctual1") {
            return;
        }
        let mut upon = open("upon", ETHERTYPE_EXPERIMENTAL, 16);
        let mut below = open("punctual1", ETHERTYPE_EXPERIMENTAL, 16);
        opened.send(upon.mac()).expect("the other side waits");
        is_sent.recv_timeout(WATCHDOG).expect("the other side sends");
        for (socket, what) in [(&mut upon, 5), (&mut below, 1)] {
            let frame = until("a frame", || socket.receiver.recv().map(|frame| frame.bytes.to_vec()));
            assert_eq!(frame, [what; 46]);
            socket.receiver.release();
        }
        assert!(below.receiver.recv().is_none());
    };
    let sender = move || {
        if !add("punctual0") {
            return;
        }
        let Ok(mac) = is_open.recv_timeout(WATCHDOG) else { return };
        for (interface, target, what) in [("upon", mac, 5), ("punctual0", BROADCAST, 1)] {
            let mut socket = open(interface, ETHERTYPE_EXPERIMENTAL, 16);
            socket.sender.claim(46).expect("room").fill(what);
            socket.sender.commit(target);
            until("the device", || socket.sender.flush().ok());
        }
        sent.send(()).expect("the other side waits");
    };
    on_two_hosts(sender, receiver)
}

/// Goal: frames for which the ring has no slot are counted, and those that it has are kept.
#[test]
fn a_full_ring_counts_what_it_drops() {
    let (opened, is_open) = mpsc::channel();
    let (sent, is_sent) = mpsc::channel();
    let receiver = move || {
        let mut socket = open("punctual1", ETHERTYPE_EXPERIMENTAL, 16);
        opened.send(()).expect("the other side waits");
        is_sent.recv_timeout(WATCHDOG).expect("the other side sends");
        until("all to arrive", || (socket.drops().expect("statistics") == 84).then_some(()));
        assert_eq!(socket.drops().expect("statistics"), 84, "the total stays");
        assert!(readable(&socket));
        for number in 0..16 {
            assert_eq!(socket.receiver.recv().map(|frame| frame.bytes[0]), Some(number));
            assert_eq!(socket.receiver.recv().map(|frame| frame.bytes[0]), Some(number), "until released");
            socket.receiver.release();
        }
        assert!(socket.receiver.recv().is_none());
        socket.receiver.release();
        assert!(!readable(&socket));
    };
    let sender = move || {
        is_open.recv_timeout(WATCHDOG).expect("the other side opens");
        let mut socket = open("punctual0", ETHERTYPE_EXPERIMENTAL, 256);
        for number in 0..100 {
            let bytes = socket.sender.claim(46).expect("room");
            bytes.fill(number);
            socket.sender.commit(BROADCAST);
        }
        until("the device", || socket.sender.flush().ok());
        sent.send(()).expect("the other side waits");
    };
    ran(on_two_hosts(sender, receiver));
}

fn readable(socket: &PacketSocket) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("poll") > 0
}

/// Goal: a frame the kernel refuses costs itself alone.
#[test]
fn a_refused_frame_is_counted_and_the_rest_goes() {
    let (opened, is_open) = mpsc::channel();
    let receiver = move || {
        let mut socket = open("punctual1", ETHERTYPE_EXPERIMENTAL, 16);
        opened.send(()).expect("the other side waits");
        for number in [0, 2, 3, 5] {
            let first = until("a frame", || socket.receiver.recv().map(|frame| frame.bytes[0]));
            assert_eq!(first, number);
            socket.receiver.release();
        }
    };
    let sender = move || {
        is_open.recv_timeout(WATCHDOG).expect("the other side opens");
        let mut socket = open("punctual0", ETHERTYPE_EXPERIMENTAL, 8);
        for (number, size) in [(0, 46), (1, 1_500), (2, 46), (3, 600), (4, 1_400), (5, 46)] {
            socket.sender.claim(size).expect("room").fill(number);
            socket.sender.commit(BROADCAST);
        }
        assert!(socket.sender.claim(1_501).is_none(), "longer than the mtu");
        namespace::set_mtu("punctual0", 1_000).expect("shrink the mtu");
        let error = socket.sender.flush().expect_err("two are too long");
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        let queue = &socket.sender;
        assert_eq!((queue.len(), queue.refused()), (0, 2));
    };
    ran(on_two_hosts(sender, receiver));
}

/// Goal: where nobody chose, a frame has room for what the interface carries, and the ring no more memory than the usual one can have.
#[test]
fn frames_are_as_large_as_the_mtu_asks() {
    let options = PacketOptions { frames: FRAMES_MAX, ..PacketOptions::default() };
    for (mtu, frame_size) in [(68, 2_048), (1_500, 2_048), (1_968, 2_048), (1_969, 4_096), (9_000, 16_384)] {
        let layout = layout(&options, mtu).expect("it fits");
        assert_eq!((layout.frame_size, layout.frames * layout.frame_size), (frame_size, RING_SIZE_MAX));
    }
    let fewer = layout(&PacketOptions::default(), 9_000).expect("it fits");
    assert_eq!(fewer.frames, PacketOptions::default().frames);
    layout(&options, FRAME_SIZE_MAX).expect_err("no interface carries as much");
}

#[test]
fn errors_say_what_to_do() {
    let open = |interface: &str, options: &PacketOptions| {
        PacketSocket::open(interface, ETHERTYPE_EXPERIMENTAL, options).expect_err("cannot work").to_string()
    };
    let text = open("nowhere0", &PacketOptions::default());
    if text.contains("CAP_NET_RAW") {
        crate::skipped!("the rest: {text}");
        return;
    }
    assert!(text.contains("nowhere0"), "{text}");
    let text = open("an interface name beyond all limits", &PacketOptions::default());
    assert!(text.contains("beyond all limits"), "{text}");
    let text = open("lo", &PacketOptions { frame_size: Some(2_048), ..PacketOptions::default() });
    assert!(text.contains("mtu") && text.contains("131072"), "{text}");
    for options in [
        PacketOptions { frames: 0, ..PacketOptions::default() },
        PacketOptions { frames: 3, ..PacketOptions::default() },
        PacketOptions { frame_size: Some(1_000), ..PacketOptions::default() },
        PacketOptions { frame_size: Some(usize::MAX), ..PacketOptions::default() },
    ] {
        let text = open("lo", &options);
        assert!(text.contains("power of two"), "{text}");
    }
}
