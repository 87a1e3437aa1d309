//! Once open, sockets and batches allocate nothing: a counting allocator proves it.
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use punctual_machine::packet::{BROADCAST, ETHERTYPE_EXPERIMENTAL, PacketOptions, PacketSocket};
use punctual_machine::socket::{RecvBatch, SendBatch, UdpOptions, UdpSocket};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting does not allocate, because
// the cell is initialised at compile time and has no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(run: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    run();
    COUNT.get() - before
}

#[test]
fn datagrams_move_without_allocation() {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    for segmentation in [false, true] {
        let options = UdpOptions { segmentation, timestamps: true, ..UdpOptions::default() };
        let (one, two) =
            (UdpSocket::bind(any, &options).expect("bind"), UdpSocket::bind(any, &options).expect("bind"));
        let to = two.local_address().expect("bound");
        let (mut outgoing, mut incoming) = (SendBatch::new(8, 100), RecvBatch::new(8, 100));
        let started = Instant::now();
        let count = allocations(|| {
            for _ in 0..100 {
                while outgoing.claim(100).is_some() {
                    outgoing.commit(to);
                }
                while !outgoing.is_empty() {
                    assert!(one.send_batch(&mut outgoing).is_ok());
                }
                let mut seen = 0;
                while seen < 8 {
                    assert!(two.recv_batch(&mut incoming, 8).is_ok());
                    seen += incoming.iter().filter(|datagram| datagram.bytes.len() == 100).count();
                    assert!(started.elapsed() < Duration::from_secs(20), "gave up");
                }
            }
        });
        assert_eq!(count, 0);
    }
}

#[test]
fn frames_are_sent_without_allocation() {
    let options = PacketOptions::default();
    let mut socket = match PacketSocket::open("lo", ETHERTYPE_EXPERIMENTAL, &options) {
        Ok(socket) => socket,
        Err(e) => return punctual_machine::skipped!("{e}"),
    };
    let count = allocations(|| {
        for _ in 0..100 {
            for _ in 0..4 {
                assert!(socket.sender.claim(64).is_some());
                socket.sender.commit(BROADCAST);
            }
            assert!(socket.sender.flush().is_ok());
            while socket.receiver.recv().is_some() {
                socket.receiver.release();
            }
        }
    });
    assert_eq!(count, 0);
}
