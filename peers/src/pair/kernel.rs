//! The kernel's own ways between two processes of a host; all of them sleep.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::{Pair, Temporary, is_whole, path, patiently};
use crate::Outcome;
use crate::meeting::Meeting;

pub(super) struct Datagram {
    socket: UnixDatagram,
    other: PathBuf,
    _own: Temporary,
}

impl Datagram {
    pub(super) fn open(meeting: &Meeting) -> Outcome<Self> {
        let [own, other] = if meeting.here { ["a", "b"] } else { ["b", "a"] }.map(|end| path(meeting, end));
        Ok(Self { socket: UnixDatagram::bind(&own)?, other, _own: Temporary(own) })
    }
}

impl Pair for Datagram {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        self.socket.send(message)?;
        Ok(())
    }

    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        is_whole(self.socket.recv(message)?, message)
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        patiently(|| self.socket.connect(&self.other))
    }
}

pub(super) enum Stream {
    Listening(UnixListener, Option<Temporary>),
    Connected(UnixStream),
}

impl Stream {
    pub(super) fn open(meeting: &Meeting) -> Outcome<Self> {
        let path = path(meeting, "stream");
        if meeting.here {
            return Ok(Self::Listening(UnixListener::bind(&path)?, Some(Temporary(path))));
        }
        Ok(Self::Connected(patiently(|| UnixStream::connect(&path))?))
    }

    fn stream(&mut self) -> Outcome<&mut UnixStream> {
        match self {
            Self::Connected(stream) => Ok(stream),
            Self::Listening(..) => Err("not connected".into()),
        }
    }
}

impl Pair for Stream {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        Ok(self.stream()?.write_all(message)?)
    }

    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        Ok(self.stream()?.read_exact(message)?)
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        if let Self::Listening(listener, path) = self {
            let (stream, _) = listener.accept()?;
            drop(path.take());
            *self = Self::Connected(stream);
        }
        Ok(())
    }
}

/// A pipe each way, with a name so that both processes find it.
pub(super) struct Pipe {
    out: File,
    back: File,
    _files: Vec<Temporary>,
}

impl Pipe {
    pub(super) fn open(meeting: &Meeting) -> Outcome<Self> {
        let [out, back] =
            if meeting.here { ["out", "back"] } else { ["back", "out"] }.map(|end| path(meeting, end));
        let mut files = Vec::new();
        if meeting.here {
            for path in [&back, &out] {
                make_pipe(path)?;
                files.push(Temporary(path.clone()));
            }
        }
        // For both, so that opening waits for nobody.
        let open = |path: &Path| File::options().read(true).write(true).open(path);
        Ok(Self { out: patiently(|| open(&out))?, back: patiently(|| open(&back))?, _files: files })
    }
}

fn make_pipe(path: &Path) -> Outcome<()> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    Ok(mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?)
}

impl Pair for Pipe {
    fn send(&mut self, message: &[u8]) -> Outcome<()> {
        Ok(self.out.write_all(message)?)
    }

    fn receive(&mut self, message: &mut [u8]) -> Outcome<()> {
        Ok(self.back.read_exact(message)?)
    }

    fn wait_for_peer(&mut self) -> Outcome<()> {
        // Bytes in the pipe wait there for the other end.
        Ok(())
    }
}
