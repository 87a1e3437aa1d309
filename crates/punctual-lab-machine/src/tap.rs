//! An Ethernet interface whose wire ends in this process: frames that the kernel sends by it are read here, and frames written here
//! arrive.
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;

use punctual_machine::SystemError;

const PATH: &str = "/dev/net/tun";

/// Such an interface. It goes when this is dropped.
#[derive(Debug)]
pub struct Tap(File);

impl Tap {
    /// Makes it in the calling thread's network namespace: down, without an address. It may be read and written from any.
    ///
    /// # Errors
    /// Needs CAP_NET_ADMIN, and a kernel with TUN; the name must be free, and of 15 bytes at most.
    pub fn create(name: &str) -> Result<Self, SystemError> {
        let file = OpenOptions::new().read(true).write(true).open(PATH);
        let file = file.map_err(|error| SystemError::new("open", PATH, error))?;
        // SAFETY: an ifreq is bytes, integers and a raw pointer, for which all zero is a valid value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // One byte stays zero: the kernel wants an ended string.
        if name.is_empty() || name.len() >= request.ifr_name.len() {
            return Err(SystemError::new("create", name, io::Error::from_raw_os_error(libc::EINVAL)));
        }
        for (target, source) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *target = source as libc::c_char;
        }
        // Frames as they are: no header of the kernel's before them, so it does what it would leave to hardware.
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the request reads and writes one ifreq, which is borrowed mutably for the whole call.
        let answer = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if answer < 0 {
            return Err(SystemError::last("create", name));
        }
        Ok(Self(file))
    }

    /// Waits for the next frame that the kernel sends, and returns its size. Bytes that do not fit are cut off.
    ///
    /// # Errors
    /// While the interface is down.
    pub fn read(&self, frame: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(frame)
    }

    /// Lets a frame arrive.
    ///
    /// # Errors
    /// While the interface is down.
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        (&self.0).write(frame).map(|_whole_or_not_at_all| ())
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Arc;

    use punctual_machine::namespace::{add_address, bring_up, unshare_network};

    use super::*;

    /// Goal: messages between two namespaces go by the wire that this process is, and arrive unchanged.
    #[test]
    fn two_namespaces_talk_by_a_wire_in_this_process() {
        let ends = ["10.79.1.1", "10.79.1.2"].map(|own| {
            let made = std::thread::spawn(move || -> Result<_, SystemError> {
                unshare_network()?;
                let tap = Tap::create("wire")?;
                add_address("wire", &format!("{own}/24"))?;
                bring_up("wire")?;
                let socket = UdpSocket::bind((own, 9)).expect("the address is ours");
                socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
                Ok((Arc::new(tap), socket))
            });
            made.join().expect("the thread ends")
        });
        let [Ok((tap, socket)), Ok((other_tap, other))] = ends else {
            for error in ends.into_iter().filter_map(Result::err) {
                let is_refused =
                    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound);
                assert!(is_refused, "{error}");
                punctual_machine::skipped!("{error}");
            }
            return;
        };
        for (from, to) in
            [(&tap, &other_tap), (&other_tap, &tap)].map(|(a, b)| (Arc::clone(a), Arc::clone(b)))
        {
            std::thread::spawn(move || {
                let mut frame = [0; 2_048];
                while let Ok(size) = from.read(&mut frame) {
                    let _down = to.write(&frame[..size]);
                }
            });
        }
        let mut heard = [0; 2_048];
        for size in [1, 100, 1_400] {
            let said: Vec<u8> = (0..size).map(|at| at as u8).collect();
            socket.send_to(&said, ("10.79.1.2", 9)).expect("sent");
            let (size, from) = other.recv_from(&mut heard).expect("it comes");
            assert_eq!((&heard[..size], from.ip().to_string().as_str()), (&*said, "10.79.1.1"));
            other.send_to(&heard[..size], from).expect("sent");
            let size = socket.recv(&mut heard).expect("it comes back");
            assert_eq!(heard[..size], *said);
        }
    }
}
