//! The library for C and C++: installs it, and builds against what was installed as a user does, by pkg-config.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::command::{Run, how};
use crate::step::Outcome;
use crate::workspace;

/// Where the package lies.
const PACKAGE: &str = "crates/punctual-c";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Two examples exchange some messages.
const DEADLINE: Duration = Duration::from_secs(60);

/// Where to install.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Where programs will find it
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    prefix: PathBuf,
    /// A folder in front of that, for makers of packages; by default the variable DESTDIR
    #[arg(long, value_name = "DIR")]
    destdir: Option<PathBuf>,
}

/// Builds and installs, and says what.
pub(crate) fn install(options: &Options) -> Outcome {
    Outcome::of(installed(options).map(|files| files.iter().for_each(|file| say!("{}", file.display()))))
}

/// Versions that a program was built with and that it can have in another's place: before 1.0 the second number.
fn compatible() -> &'static str {
    VERSION.rsplit_once('.').map_or(VERSION, |(compatible, _)| compatible)
}

fn installed(options: &Options) -> Result<Vec<PathBuf>, String> {
    if !options.prefix.is_absolute() {
        return Err(format!(
            "--prefix {}: begins with / where programs will find it",
            options.prefix.display()
        ));
    }
    let soname = format!("libpunctual.so.{}", compatible());
    Run::cargo(&["rustc", "--release", "--quiet", "--package", "punctual-c", "--lib"])
        .args(&["--crate-type", "cdylib,staticlib", "--", "-C"])
        .arg(format!("link-arg=-Wl,-soname,{soname}"))
        .status()?;
    let inside = options.prefix.strip_prefix("/").unwrap_or(&options.prefix);
    let destdir = options.destdir.clone().or_else(|| std::env::var_os("DESTDIR").map(PathBuf::from));
    // An empty one is none, as for all who follow the convention.
    let destdir = destdir.filter(|folder| !folder.as_os_str().is_empty());
    let root = destdir.map_or_else(|| options.prefix.clone(), |root| root.join(inside));
    let (built, package) = (workspace::target("release"), workspace::root().join(PACKAGE));
    let (library, real) = (root.join("lib"), format!("libpunctual.so.{VERSION}"));
    let template = package.join("punctual.pc.in");
    let template =
        fs::read_to_string(&template).map_err(|error| format!("{}: {error}", template.display()))?;
    let settings =
        template.replace("@PREFIX@", &options.prefix.display().to_string()).replace("@VERSION@", VERSION);
    Ok(vec![
        copied(&package.join("include/punctual.h"), &root.join("include/punctual.h"))?,
        copied(&built.join("libpunctual_c.a"), &library.join("libpunctual.a"))?,
        copied(&built.join("libpunctual_c.so"), &library.join(&real))?,
        linked(&real, &library.join(&soname))?,
        linked(&soname, &library.join("libpunctual.so"))?,
        written(&settings, &library.join("pkgconfig/punctual.pc"))?,
    ])
}

/// Describes an error with a file.
fn failed(path: &Path) -> impl Fn(std::io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}

/// Makes room for a file: its folder, and nothing in its place. A program that uses the one before keeps it.
fn cleared(to: &Path) -> Result<(), String> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(failed(folder))?;
    }
    match fs::remove_file(to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(to)(error)),
        _ => Ok(()),
    }
}

fn copied(from: &Path, to: &Path) -> Result<PathBuf, String> {
    cleared(to)?;
    fs::copy(from, to).map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))?;
    Ok(to.to_owned())
}

fn linked(target: &str, link: &Path) -> Result<PathBuf, String> {
    cleared(link)?;
    symlink(target, link).map_err(failed(link))?;
    Ok(link.to_owned())
}

fn written(text: &str, to: &Path) -> Result<PathBuf, String> {
    cleared(to)?;
    fs::write(to, text).map_err(failed(to))?;
    Ok(to.to_owned())
}

/// Installs into a folder of its own, builds the examples against that, and lets them talk.
pub(crate) fn run() -> Outcome {
    let folder = workspace::target("c");
    lacking(&folder)
        .map_or_else(|| Outcome::of(build_examples(&folder).and_then(|()| talk(&folder))), Outcome::Skipped)
}

/// The tool that the examples need and that is not here.
pub(crate) fn lacking(folder: &Path) -> Option<String> {
    let log = folder.join("tools.txt");
    let is_here =
        |tool: &str| matches!(Run::new(tool).arg("--version").all_output_to(&log), Ok((Some(0), _)));
    let tools = [("cc", "build-essential"), ("pkg-config", "pkg-config")];
    let (tool, package) = tools.into_iter().find(|(tool, _)| !is_here(tool))?;
    Some(format!("no {tool} here: `apt-get install {package}`"))
}

/// Builds the examples as users do, against what is installed into a folder below this one.
pub(crate) fn build_examples(folder: &Path) -> Result<(), String> {
    let prefix = folder.join("prefix");
    installed(&Options { prefix: prefix.clone(), destdir: Some("/".into()) })?;
    let settings = prefix.join("lib/pkgconfig");
    let asked = |arguments: &[&str]| {
        let run = Run::new("pkg-config").args(arguments).arg("punctual").env("PKG_CONFIG_PATH", &settings);
        match run.output_to(&folder.join("flags.txt"))? {
            (Some(0), flags) => Ok(flags.split_whitespace().map(str::to_owned).collect::<Vec<_>>()),
            (ended, _) => Err(format!("pkg-config {}", how(ended, DEADLINE))),
        }
    };
    let flags = asked(&["--cflags", "--libs"])?;
    for example in ["ping", "pong"] {
        let source = workspace::root().join(PACKAGE).join(format!("examples/{example}.c"));
        let mut cc = Run::new("cc").args(&["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"]);
        cc = cc.arg(folder.join(example)).arg(source);
        flags.iter().fold(cc, Run::arg).status()?;
    }
    Ok(())
}

fn talk(folder: &Path) -> Result<(), String> {
    let bus = format!("c-step-{}", std::process::id());
    let started = |name: &str| {
        let program = Run::new(folder.join(name)).args(&[&bus, "100"]).within(DEADLINE);
        program.env("LD_LIBRARY_PATH", folder.join("prefix/lib"))
    };
    let (ping, pong) = std::thread::scope(|scope| {
        let pong = scope.spawn(|| started("pong").status());
        let ping = started("ping").output_to(&folder.join("ping.txt"));
        (ping, pong.join().unwrap_or_else(|_| Err("pong: a panic".into())))
    });
    pong?;
    match ping? {
        (Some(0), said) if said.lines().filter(|line| line.contains(" bytes after ")).count() == 100 => {
            say!("C programs are built by pkg-config, and 100 questions were answered");
            Ok(())
        }
        (ended, said) => Err(format!("ping {}: {said}", how(ended, DEADLINE))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_absolute() {
        let wrong = installed(&Options { prefix: "here".into(), destdir: None });
        assert!(wrong.unwrap_err().contains("--prefix here"));
    }

    /// Goal: an error names the place that cannot be written, not the source alone.
    #[test]
    fn a_failed_copy_names_its_target() {
        let folder = workspace::target("xtask").join("no-copy");
        fs::create_dir_all(folder.join("taken/by")).unwrap();
        let source = folder.join("source");
        fs::write(&source, "text").unwrap();
        assert!(copied(&source, &folder.join("taken")).unwrap_err().contains("no-copy/taken"));
        assert!(copied(&folder.join("none"), &folder.join("target")).unwrap_err().contains("none to "));
    }

    #[test]
    fn a_version_says_what_can_replace_it() {
        assert_eq!(compatible().matches('.').count(), 1);
        assert!(VERSION.starts_with(compatible()));
    }
}
