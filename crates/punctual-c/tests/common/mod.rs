//! Parts that the suites share: compilers, the library beside this program, other processes, a watchdog.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longer than anything takes that does not hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Warnings are errors, in every program.
const WARNINGS: &[&str] = &["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"];

// Every suite uses a part of this file.
const _: () = {
    let _ =
        (watchdog, unique, free_ports, Compiler::sanitizing, Compiler::linked_statically, ended, PATIENCE);
    let _ = (
        folder,
        Process::start,
        Process::end,
        Process::kill,
        Process::id,
        Process::has_ended,
        crate_file,
        C,
        CXX,
    );
};

/// Ends the process if a test hangs.
pub(crate) fn watchdog(seconds: u64) -> mpsc::Sender<()> {
    let (alive, ended) = mpsc::channel::<()>();
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    std::thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(seconds)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{test}: nothing for {seconds} s: hangs");
            std::process::exit(101);
        }
    });
    alive
}

/// A bus name that no other test has.
pub(crate) fn unique(name: &str) -> String {
    format!("{name}-{:x}", punctual_machine::process::random() & 0xFFFF_FFFF)
}

/// Two ports of this host that are free, below those that the kernel assigns on request.
pub(crate) fn free_ports() -> [SocketAddr; 2] {
    let candidate =
        || SocketAddr::from(([127, 0, 0, 1], (10_000 + punctual_machine::process::random() % 22_768) as u16));
    let free = || std::iter::repeat_with(candidate).find(|address| UdpSocket::bind(address).is_ok()).unwrap();
    let first = free();
    loop {
        let second = free();
        if second != first {
            return [first, second];
        }
    }
}

/// A file of this package.
pub(crate) fn crate_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A folder for what a test compiles.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().expect("room for a folder")
}

/// Where cargo put the libraries: beside this program, or one above.
pub(crate) fn library(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a program");
    let found =
        program.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("no {name} near {}", program.display()))
}

/// A compiler, and what it is told besides.
#[derive(Clone, Copy)]
pub(crate) struct Compiler {
    pub(crate) program: &'static str,
    pub(crate) language: &'static [&'static str],
    sanitizer: bool,
    linked_statically: bool,
}

/// C, and C++.
pub(crate) const C: Compiler =
    Compiler { program: "cc", language: &["-std=gnu11"], sanitizer: false, linked_statically: false };
pub(crate) const CXX: Compiler = Compiler {
    program: "c++",
    language: &["-std=gnu++17", "-xc++"],
    sanitizer: false,
    linked_statically: false,
};

impl Compiler {
    /// With the address sanitizer.
    pub(crate) fn sanitizing(self) -> Self {
        Self { sanitizer: true, ..self }
    }

    /// With the static library.
    pub(crate) fn linked_statically(self) -> Self {
        Self { linked_statically: true, ..self }
    }

    /// Returns true if it is there, with all that it is to do; otherwise the lack is reported.
    pub(crate) fn is_here(self) -> bool {
        let there =
            Command::new(self.program).arg("--version").output().is_ok_and(|ended| ended.status.success());
        if !there {
            punctual_machine::skipped!("no {} here (apt-get install build-essential)", self.program);
            return false;
        }
        if self.sanitizer {
            let place = folder();
            let source = place.path().join("empty.c");
            std::fs::write(&source, "int main(void) { return 0; }\n").expect("room");
            let program = place.path().join("empty");
            let built = Command::new(self.program)
                .arg("-fsanitize=address")
                .arg(&source)
                .arg("-o")
                .arg(&program)
                .output();
            let runs = || Command::new(&program).output().is_ok_and(|ended| ended.status.success());
            if !(built.is_ok_and(|ended| ended.status.success()) && runs()) {
                punctual_machine::skipped!(
                    "{} has no address sanitizer here (apt-get install libasan)",
                    self.program
                );
                return false;
            }
        }
        true
    }

    /// Compiles and links a program. Its path.
    #[track_caller]
    pub(crate) fn build(self, place: &Path, source: &Path) -> PathBuf {
        let program = place.join(source.file_stem().expect("a name"));
        let mut command = Command::new(self.program);
        command.args(self.language).args(WARNINGS).args(["-O1", "-g", "-pthread"]);
        if self.sanitizer {
            command.args(["-fsanitize=address", "-fno-omit-frame-pointer"]);
        }
        command.arg("-I").arg(crate_file("include")).arg(source).arg("-o").arg(&program).args(["-x", "none"]);
        if self.linked_statically {
            command.arg(library("libpunctual_c.a")).args(["-lgcc_s", "-lutil", "-lrt", "-lm", "-ldl"]);
        } else {
            let library = library("libpunctual_c.so");
            let folder = library.parent().expect("a folder");
            command.arg(&library).arg(format!("-Wl,-rpath,{}", folder.display()));
        }
        let ended = command.output().expect("it is here");
        assert!(ended.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&ended.stderr));
        program
    }
}

/// Output of a program that has to end well.
#[track_caller]
pub(crate) fn ended(command: &mut Command) -> String {
    let ended = command.stdin(Stdio::null()).output().expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{command:?}: {}\n{out}\n{err}", ended.status);
    out.into_owned()
}

/// Another process, which ends with us.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts"))
    }

    /// Its pid.
    pub(crate) fn id(&self) -> u64 {
        self.0.id().into()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("it is ours").is_some()
    }

    /// By SIGKILL.
    pub(crate) fn kill(mut self) {
        self.0.kill().expect("it lives");
        self.0.wait().expect("it was ours");
    }

    /// Its output, when it has ended by itself, and well.
    #[track_caller]
    pub(crate) fn end(mut self) -> String {
        let give_up = Instant::now() + PATIENCE;
        while self.0.try_wait().expect("it is ours").is_none() {
            assert!(Instant::now() < give_up, "it goes on and on");
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut printed = String::new();
        let out = self.0.stdout.as_mut().expect("a pipe");
        std::io::Read::read_to_string(out, &mut printed).expect("text");
        let status = self.0.wait().expect("it was ours");
        assert!(status.success(), "{status}: {printed}");
        printed
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _reaped_already = self.0.wait();
    }
}
