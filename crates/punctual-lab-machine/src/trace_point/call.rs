//! System calls by their numbers, those in which a thread may wait.

/// Numbers are the kernel's, which differ between processors.
macro_rules! calls {
    ($($name:ident)*) => {
        &[$((libc::$name, stringify!($name))),*]
    };
}

const EVERYWHERE: &[(libc::c_long, &str)] = calls! {
    SYS_read SYS_readv SYS_pread64 SYS_write SYS_writev SYS_pwrite64 SYS_fsync SYS_fdatasync SYS_openat SYS_close
    SYS_ppoll SYS_pselect6 SYS_epoll_pwait SYS_epoll_pwait2 SYS_futex SYS_nanosleep SYS_clock_nanosleep
    SYS_accept4 SYS_accept SYS_connect SYS_recvfrom SYS_recvmsg SYS_recvmmsg SYS_sendto SYS_sendmsg SYS_sendmmsg
    SYS_wait4 SYS_waitid SYS_rt_sigtimedwait SYS_rt_sigsuspend SYS_restart_syscall SYS_io_uring_enter SYS_io_getevents
    SYS_flock SYS_fcntl SYS_ioctl SYS_mmap SYS_munmap SYS_mprotect SYS_madvise SYS_sched_yield SYS_msync SYS_ftruncate
    SYS_fallocate SYS_clone SYS_clone3 SYS_execve SYS_exit SYS_exit_group SYS_futex_waitv SYS_membarrier
    SYS_mq_timedreceive SYS_msgrcv SYS_semop SYS_semtimedop
};

/// The library that names numbers has not these yet.
const UNNAMED: &[(libc::c_long, &str)] =
    &[(if cfg!(target_arch = "x86_64") { 333 } else { 292 }, "SYS_io_pgetevents"), (455, "SYS_futex_wait")];

#[cfg(target_arch = "x86_64")]
const HERE: &[(libc::c_long, &str)] =
    calls! { SYS_poll SYS_select SYS_epoll_wait SYS_pause SYS_open SYS_fork SYS_vfork SYS_unlink SYS_rename };
#[cfg(not(target_arch = "x86_64"))]
const HERE: &[(libc::c_long, &str)] = &[];

/// Name of a call, as in the manual; `None` if the call is not known here.
pub fn call_name(number: u32) -> Option<&'static str> {
    let mut all = EVERYWHERE.iter().chain(UNNAMED).chain(HERE);
    let name = all.find(|(known, _)| *known == libc::c_long::from(number))?.1;
    name.strip_prefix("SYS_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_their_names() {
        let name = |number: libc::c_long| call_name(u32::try_from(number).expect("a number"));
        assert_eq!(name(libc::SYS_futex), Some("futex"));
        assert_eq!(name(libc::SYS_epoll_pwait), Some("epoll_pwait"));
        assert_eq!(call_name(u32::MAX), None);
        for known in ["mq_timedreceive", "msgrcv", "semop", "semtimedop", "io_pgetevents", "futex_wait"] {
            assert!((0..1000).any(|number| call_name(number) == Some(known)), "{known}");
        }
        assert_eq!(call_name(455), Some("futex_wait"));
    }
}
