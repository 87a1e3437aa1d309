//! Ctrl-C while another process is waited for that does not hear it, in a process of its own: the flag that it raises stays.

use std::process::Command;
use std::sync::Once;
use std::time::{Duration, Instant};

use punctual::{Clock, Ticks, Wake};
use punctual_lab::endpoint::{Endpoint, EndpointPlan, Received, Stack};
use punctual_lab::load::responder::respond;
use punctual_lab::run::Worker;
use punctual_machine::signal::{catch_all_interrupts, interrupted};

/// A test that hangs is ended, with all tests of this program.
const PATIENCE: Duration = Duration::from_secs(120);

fn interrupt_this_process() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        catch_all_interrupts().expect("a handler");
        let me = std::process::id().to_string();
        assert!(
            Command::new("sh")
                .args(["-c", "kill \"$@\"", "kill", "-INT", &me])
                .status()
                .is_ok_and(|status| status.success())
        );
        while !interrupted() {
            std::thread::yield_now();
        }
        std::thread::spawn(|| {
            std::thread::sleep(PATIENCE);
            let _said = std::io::Write::write_all(&mut std::io::stderr(), b"a test hangs\n");
            std::process::abort();
        });
    });
}

/// Goal: a program that ignores Ctrl-C is waited for as long as was said, and no longer.
#[test]
fn the_wait_for_a_program_that_ignores_an_interrupt_ends() {
    interrupt_this_process();
    let folder = tempfile::tempdir().expect("a folder");
    let ready = folder.path().join("ready");
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' INT; : > \"$1\"; exec sleep 60", "sh"]).arg(&ready);
    let mut worker = Worker::run(&mut command).expect("a shell");
    while !ready.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let heard = worker.recv_within::<()>(Duration::from_millis(300));
    assert!(heard.is_err_and(|reason| reason.contains("said nothing")));
    worker.kill();
}

/// Nothing comes here, and the time passes.
struct Silent;

impl Endpoint for Silent {
    fn send(&mut self, _message: &[u8], _due: Ticks) -> bool {
        true
    }

    fn receive(&mut self, _buffer: &mut [u8], deadline: Ticks) -> Option<Received> {
        let clock = Clock::get();
        std::thread::sleep(clock.duration(deadline.since(clock.now())));
        None
    }
}

/// Goal: a responder whose client's last message was lost ends soon after an interrupt, and tells no time of processors that it spent
/// in waiting.
#[test]
fn an_interrupted_responder_ends_without_its_client() {
    interrupt_this_process();
    let begun = Instant::now();
    let (facts, _) = respond(&mut Silent, &EndpointPlan::new(None, Stack::Bare, Wake::Spin, 64));
    assert_eq!((facts.cpu_ns, facts.answered), (0, 0));
    assert!(begun.elapsed() > Duration::from_millis(900), "a client that is slow has a second");
}
