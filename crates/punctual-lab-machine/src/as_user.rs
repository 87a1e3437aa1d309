//! Files as another user: root's work for a program of a user may touch only files that the user may touch.

use std::io;

use punctual_machine::SystemError;

/// Runs `work` in a thread of its own whose files are those of another user, and of no other group than that.
///
/// # Errors
/// This process may not act for that user.
pub fn as_user<T: Send>(user: u32, group: u32, work: impl FnOnce() -> T + Send) -> Result<T, SystemError> {
    let failed = |error| SystemError::new("act for", format!("user {user}"), error);
    if user == punctual_machine::process::user() {
        return Ok(work());
    }
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().spawn_scoped(scope, || become_user(user, group).map(|()| work()));
        let joined = thread.map_err(failed)?.join();
        joined.unwrap_or_else(|_| Err(io::Error::other("its thread failed"))).map_err(failed)
    })
}

/// For the calling thread, until it ends.
fn become_user(user: u32, group: u32) -> io::Result<()> {
    // SAFETY: these calls, made past the C library, change the rights of this thread alone, and touch no memory.
    let found = unsafe {
        if libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::syscall(libc::SYS_setfsgid, group);
        libc::syscall(libc::SYS_setfsuid, user);
        // A number that is no user changes nothing, and both say who it was before.
        (libc::syscall(libc::SYS_setfsuid, u32::MAX), libc::syscall(libc::SYS_setfsgid, u32::MAX))
    };
    if found == (user.into(), group.into()) { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    /// A user other than the one that runs this.
    fn other() -> u32 {
        const NOBODY: u32 = 65534;
        if punctual_machine::process::user() == NOBODY { 1 } else { NOBODY }
    }

    /// Goal: files made for a user are that user's, and files that the user may not touch are not touched.
    #[test]
    fn files_are_made_with_the_rights_of_the_user() {
        let (other, place) = (other(), tempfile::tempdir().expect("room"));
        let mode =
            |mode| std::fs::set_permissions(place.path(), PermissionsExt::from_mode(mode)).expect("ours");
        let make = |name: &str| std::fs::write(place.path().join(name), "x");
        mode(0o777);
        match as_user(other, other, || make("theirs")) {
            Ok(made) => made.expect("everybody may write there"),
            Err(error) => {
                punctual_machine::skipped!("{error}");
                return;
            }
        }
        let found = std::fs::metadata(place.path().join("theirs")).expect("a file");
        assert_eq!((found.uid(), found.gid()), (other, other));
        mode(0o755);
        let refused = as_user(other, other, || make("ours")).expect("it may act").expect_err("not theirs");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        make("ours").expect("this thread is as before");
    }
}
