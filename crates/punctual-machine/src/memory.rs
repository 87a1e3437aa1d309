//! Memory that processes share.
//!
//! Rules, cited by the SAFETY comments:
//! 1. A mapping lives as long as its `Mapping`; references into it borrow the `Mapping`.
//! 2. Everything in shared memory is read and written through atomics, or copied by the processor
//!    outside of the compiler's sight: a peer may write at any instant, and nothing here assumes that it does not.
//! 3. Only types for which every bit pattern is a value may stand in shared memory ([`SharedObject`]).
//! 4. A mapping that was opened for reading is never stored to: the processor would refuse (SIGSEGV).
//! 5. Only the process that made a mapping takes it away. A child may not have it (`MADV_DONTFORK`), or something else there.

use std::ffi::{CStr, OsStr};
use std::fs::{File, OpenOptions};
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::SystemError;
use crate::life::LifeLock;
pub use crate::memory_traits::SharedObject;
use crate::own_file::FileIdentity;
use crate::process::Maker;

/// Largest file that is mapped, bytes: the largest ring, and a megabyte for what stands before it.
pub const FILE_SIZE_MAX: usize = (1 << 30) + (1 << 20);

/// File system type of a tmpfs.
const TMPFS: u64 = 0x0102_1994;

/// The granularity of mappings, bytes.
const PAGE_SIZE: usize = 4096;

/// Contents that a new file is filled with, a part at a time.
static ZEROES: [u8; 1 << 16] = [0; 1 << 16];

/// Purpose of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only looking.
    Read,
    /// Looking and storing.
    ReadWrite,
}

/// A range of shared memory.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    size: usize,
    maker: Maker,
    /// Addresses in it that writers of rings have to themselves.
    written: Mutex<Vec<Range<usize>>>,
}

// SAFETY: a `Mapping` is an address range; all access goes through atomics (rule 2).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Private memory, zeroed and present.
    pub fn anonymous(size: usize) -> Result<Self, SystemError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe { mmap_anonymous(core::ptr::null_mut(), size, protection, flags) };
        Self::checked(start, size, Path::new("anonymous memory"))
    }

    /// A new file of `size` bytes with these permissions, zeroed and present.
    ///
    /// Its pages are reserved, so that a full file system is an error here and not a signal later.
    pub fn create(path: &Path, size: usize, mode: u32) -> Result<Self, SystemError> {
        Self::create_partly(path, size, size, mode).map(|(mapping, _)| mapping)
    }

    /// The same, with the open file, but only its first `reserved` bytes are reserved and present. The others are zeroes that
    /// [`crate::own_file::reserve_in`] reserves before they are written to.
    pub fn create_partly(
        path: &Path,
        size: usize,
        reserved: usize,
        mode: u32,
    ) -> Result<(Self, File), SystemError> {
        let failed = |error| SystemError::new("create shared memory", path.display().to_string(), error);
        crate::label!("memory.create");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path)
            .map_err(failed)?;
        let filled = Self::fill(&file, (size, reserved), mode, path).inspect_err(|_| {
            let _already_failing = std::fs::remove_file(path);
        });
        filled.map(|mapping| (mapping, file))
    }

    /// Reserves and maps a new file.
    fn fill(
        file: &File,
        (size, reserved): (usize, usize),
        mode: u32,
        path: &Path,
    ) -> Result<Self, SystemError> {
        let failed = |what, error| SystemError::new(what, path.display().to_string(), error);
        crate::label!("memory.reserve");
        allow_size(size)
            .and_then(|()| rustix::fs::ftruncate(file, size as u64))
            .and_then(|()| reserve(file, 0..reserved))
            .map_err(|error| failed("reserve shared memory", error))?;
        // The permissions asked for are those meant, regardless of the umask.
        crate::label!("memory.permissions");
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode))
            .map_err(|error| failed("set permissions of", error))?;
        crate::label!("memory.map");
        let mapping = Self::of_file(file, size, Access::ReadWrite, path)?;
        mapping.populate(0, reserved);
        Ok(mapping)
    }

    /// The same without a name: nobody finds it, and nothing is left of it if this process dies, until it is
    /// [published](Unnamed::publish). `folder` says in which file system.
    pub fn create_unnamed(folder: &Path, size: usize, mode: u32) -> Result<(Self, Unnamed), SystemError> {
        let object = || format!("a file in {}", folder.display());
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(folder, flags, Mode::from_raw_mode(mode))
            .map_err(|error| SystemError::new("create shared memory", object(), error))?;
        crate::label!("memory.unnamed");
        reserve(&file, 0..size)
            .map_err(|error| SystemError::new("reserve shared memory", object(), error))?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))
            .map_err(|error| SystemError::new("set permissions of", object(), error))?;
        let file = File::from(file);
        crate::label!("memory.unnamed.map");
        let mapping = Self::of_file(&file, size, Access::ReadWrite, folder)?;
        mapping.populate(0, size);
        Ok((mapping, Unnamed(file)))
    }

    /// An existing file, whole. Refused are an empty one, one of more than [`FILE_SIZE_MAX`] bytes, and any non-file. Its pages come
    /// when they are first touched, or by [`Self::populate`]: a mapping costs the same regardless of its size.
    pub fn open(path: &Path, access: Access) -> Result<Self, SystemError> {
        let writable = access == Access::ReadWrite;
        crate::label!("memory.open");
        let file = OpenOptions::new()
            .read(true)
            .write(writable)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .map_err(|error| SystemError::new("open shared memory", path.display().to_string(), error))?;
        Self::of_opened(&file, access, path)
    }

    /// The same by its name in an open folder, with the open file, which tells if its maker lives ([`crate::life::look_at`])
    /// without opening it once more.
    pub fn open_in(
        folder: BorrowedFd<'_>,
        name: &CStr,
        access: Access,
    ) -> Result<(Self, OwnedFd), SystemError> {
        let (file, object) = open_file_in(folder, name, access)?;
        let mapping = Self::of_opened(&file, access, object)?;
        Ok((mapping, file.into()))
    }

    /// A part of an existing file, from a whole page on, by its name in an open folder, for reading. Its end may lie beyond that of the
    /// file, which grows: a part that is not there yet is as if a peer had cut it off, and is not to be touched.
    pub fn open_part_in(
        folder: BorrowedFd<'_>,
        name: &CStr,
        part: Range<usize>,
    ) -> Result<Self, SystemError> {
        let (file, object) = open_file_in(folder, name, Access::Read)?;
        Self::of_file_part(&file, part, Access::Read, object)
    }

    /// The same of a file that we made, for writing.
    pub fn own_part_in(
        folder: BorrowedFd<'_>,
        name: &CStr,
        made: FileIdentity,
        part: Range<usize>,
    ) -> Result<Self, SystemError> {
        let object = Path::new(OsStr::from_bytes(name.to_bytes()));
        let file = made.open(folder, name);
        let file = file
            .map_err(|error| SystemError::new("open shared memory", object.display().to_string(), error))?;
        Self::of_file_part(&file.into(), part, Access::ReadWrite, object)
    }

    fn of_opened(file: &File, access: Access, path: &Path) -> Result<Self, SystemError> {
        let failed = |error| SystemError::new("open shared memory", path.display().to_string(), error);
        let found = rustix::fs::fstat(file).map_err(|error| failed(error.into()))?;
        let size = usize::try_from(found.st_size).unwrap_or(usize::MAX);
        if !FileType::from_raw_mode(found.st_mode).is_file() || size > FILE_SIZE_MAX {
            let text = format!("no file of at most {FILE_SIZE_MAX} bytes");
            return Err(failed(std::io::Error::new(std::io::ErrorKind::InvalidData, text)));
        }
        Self::of_file(file, size, access, path)
    }

    /// Makes the pages of a range present, as far as it lies inside. A failure only makes their first touch slower.
    pub fn populate(&self, offset: usize, size: usize) {
        let start = offset.min(self.size) & !(PAGE_SIZE - 1);
        let size = size.min(self.size - start);
        // SAFETY: the range lies inside the mapping (rule 1). Pages become present; their content stays what it is.
        let _slower =
            unsafe { madvise(self.start.as_ptr().add(start).cast(), size, Advice::LinuxPopulateRead) };
    }

    /// The first page of a file, for nothing but to keep the open file alive in this process, and in no child of it.
    pub(crate) fn placeholder(file: &File, path: &Path) -> Result<Self, SystemError> {
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing, and nobody may touch this one.
        let start =
            unsafe { mmap(core::ptr::null_mut(), PAGE_SIZE, ProtFlags::empty(), MapFlags::SHARED, file, 0) };
        let mapping = Self::checked(start, PAGE_SIZE, path)?;
        // SAFETY: the range is the mapping's own; a child without it misses nothing.
        unsafe { madvise(mapping.start.as_ptr().cast(), PAGE_SIZE, Advice::LinuxDontFork) }
            .map_err(|error| SystemError::new(SystemError::MAP, path.display().to_string(), error))?;
        Ok(mapping)
    }

    fn of_file(file: &File, size: usize, access: Access, path: &Path) -> Result<Self, SystemError> {
        Self::of_file_part(file, 0..size, access, path)
    }

    fn of_file_part(
        file: &File,
        part: Range<usize>,
        access: Access,
        path: &Path,
    ) -> Result<Self, SystemError> {
        let (offset, size) = (part.start as u64, part.len());
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // A single page is there at once for less than its first touch costs.
        let flags = if size <= PAGE_SIZE { MapFlags::SHARED | MapFlags::POPULATE } else { MapFlags::SHARED };
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing in this process;
        // that others change it at any time is rule 2's concern.
        let start = unsafe { mmap(core::ptr::null_mut(), size, protection, flags, file, offset) };
        let mapping = Self::checked(start, size, path)?;
        // A peer may truncate the file. Of a file that ends here, `mapping` is dropped.
        crate::truncation::guard(mapping.start.as_ptr(), size)?;
        Ok(mapping)
    }

    fn checked(
        start: rustix::io::Result<*mut core::ffi::c_void>,
        size: usize,
        object: &Path,
    ) -> Result<Self, SystemError> {
        let object = || object.display().to_string();
        let start = start.map_err(|error| SystemError::new(SystemError::MAP, object(), error))?;
        let start =
            NonNull::new(start.cast()).ok_or_else(|| SystemError::last(SystemError::MAP, object()))?;
        Ok(Self { start, size, maker: Maker::this_process(), written: Mutex::default() })
    }

    /// Size, bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Takes these addresses for the writer of a ring; `false` if another one has some of them.
    pub(crate) fn take_for_writing(&self, ranges: [Range<usize>; 2]) -> bool {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let overlaps =
            |one: &Range<usize>| written.iter().any(|other| one.start < other.end && other.start < one.end);
        let is_free = !ranges.iter().any(overlaps);
        if is_free {
            written.extend(ranges);
        }
        is_free
    }

    /// The object at `offset`, if it lies inside and is aligned.
    pub fn object<T: SharedObject>(&self, offset: usize) -> Option<&T> {
        self.objects::<T>(offset, 1)?.first()
    }

    /// `count` objects from `offset` on, if they lie inside and are aligned.
    pub fn objects<T: SharedObject>(&self, offset: usize, count: usize) -> Option<&[T]> {
        let end = count.checked_mul(size_of::<T>())?.checked_add(offset)?;
        if end > self.size || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: the range lies inside the mapping (checked), and is aligned (mappings start at a page, and the offset was checked).
        // It lives as long as `self` (rule 1). Its type has a value for every bit pattern (rule 3) and an atomic interior (rule 2).
        Some(unsafe { core::slice::from_raw_parts(self.start.as_ptr().add(offset).cast::<T>(), count) })
    }
}

fn open_file_in<'a>(
    folder: BorrowedFd<'_>,
    name: &'a CStr,
    access: Access,
) -> Result<(File, &'a Path), SystemError> {
    let reach = if access == Access::ReadWrite { OFlags::RDWR } else { OFlags::RDONLY };
    let flags = reach | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let object = Path::new(OsStr::from_bytes(name.to_bytes()));
    crate::label!("memory.open.in");
    let file = rustix::fs::openat(folder, name, flags, Mode::empty())
        .map_err(|error| SystemError::new("open shared memory", object.display().to_string(), error))?;
    Ok((file.into(), object))
}

/// Checks that a file of this size could be made in a folder now. A tmpfs says what it has left. Of another file system the pages are
/// reserved, and given back without having been filled; one that knows no files without names is not asked.
///
/// # Errors
/// If it could not.
pub fn look_for_room(folder: &Path, size: usize) -> Result<(), SystemError> {
    let failed = |error: rustix::io::Errno| {
        SystemError::new("reserve shared memory", format!("a file in {}", folder.display()), error)
    };
    crate::label!("memory.room");
    match has_room(folder, size).map_err(failed)? {
        Some(true) => return allow_size(size).map_err(failed),
        Some(false) => return Err(failed(rustix::io::Errno::NOSPC)),
        None => {}
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = match rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file,
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    allow_size(size).map_err(failed)?;
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size as u64) {
        Err(rustix::io::Errno::OPNOTSUPP) => reserve(&file, 0..size).map_err(failed),
        reserved => reserved.map_err(failed),
    }
}

/// Returns true if a file system has room for one more file of this size, by its own count: a tenth of the cost of trying. `None` if
/// only trying tells: of a tmpfs without a limit, and where counts may leave out what is reserved or not yet written.
fn has_room(folder: &Path, size: usize) -> rustix::io::Result<Option<bool>> {
    let found = rustix::fs::statfs(folder)?;
    if u64::try_from(found.f_type) != Ok(TMPFS) || found.f_blocks == 0 {
        return Ok(None);
    }
    let has_names = found.f_files == 0 || found.f_ffree > 0;
    let block = u64::try_from(found.f_bsize).unwrap_or(0).max(1);
    Ok(Some(has_names && found.f_bavail >= (size as u64).div_ceil(block)))
}

/// Renames a file or folder to a name that is free; an error of kind `AlreadyExists` if it is not.
pub fn rename_to_free(from: &Path, to: &Path) -> std::io::Result<()> {
    Ok(rustix::fs::renameat_with(CWD, from, CWD, to, rustix::fs::RenameFlags::NOREPLACE)?)
}

/// A file without a name.
#[derive(Debug)]
pub struct Unnamed(File);

impl Unnamed {
    /// Gives it a name, which must be free: from now on others find it, whole, and held by this process. The process that made it maps
    /// it anew by its name, and drops the mapping with which it was filled.
    pub fn publish(self, path: &Path) -> Result<LifeLock, SystemError> {
        let lock = LifeLock::hold_file(&self.0, path)?;
        let unnamed = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        crate::label!("memory.publish");
        let linked = rustix::fs::linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW)
            // Without /proc: Linux lets who opened a file link it since 6.10.
            .or_else(|_| rustix::fs::linkat(&self.0, "", CWD, path, AtFlags::EMPTY_PATH));
        crate::label!("memory.publish.done");
        linked.map_err(|error| SystemError::new("publish", path.display().to_string(), error))?;
        Ok(lock)
    }
}

/// Objects in a mapping, found once: a slice that keeps its mapping alive.
#[derive(Debug)]
pub struct MappedSlice<T: SharedObject> {
    mapping: Arc<Mapping>,
    start: NonNull<T>,
    count: usize,
}

// SAFETY: it points to objects of the mapping that it keeps alive, and shares them only as `&T`.
unsafe impl<T: SharedObject + Sync> Send for MappedSlice<T> {}
// SAFETY: as above.
unsafe impl<T: SharedObject + Sync> Sync for MappedSlice<T> {}

impl<T: SharedObject> MappedSlice<T> {
    /// `count` objects from `offset` on, if they lie inside and are aligned.
    pub fn new(mapping: &Arc<Mapping>, offset: usize, count: usize) -> Option<Self> {
        let start = NonNull::from(mapping.objects::<T>(offset, count)?).cast();
        Some(Self { mapping: Arc::clone(mapping), start, count })
    }

    /// The mapping.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }
}

impl<T: SharedObject> Clone for MappedSlice<T> {
    fn clone(&self) -> Self {
        Self { mapping: Arc::clone(&self.mapping), ..*self }
    }
}

impl<T: SharedObject> Deref for MappedSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the range was checked by `Mapping::objects` when this was made, and the mapping lives (rule 1).
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

/// As many objects in a mapping as the type says. An index that the compiler knows is not checked at run time.
#[derive(Debug)]
pub struct MappedArray<T: SharedObject, const N: usize>(MappedSlice<T>);

impl<T: SharedObject, const N: usize> MappedArray<T, N> {
    /// The objects from `offset` on, if they lie inside and are aligned.
    pub fn new(mapping: &Arc<Mapping>, offset: usize) -> Option<Self> {
        MappedSlice::new(mapping, offset, N).map(Self)
    }
}

impl<T: SharedObject, const N: usize> Clone for MappedArray<T, N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: SharedObject, const N: usize> Deref for MappedArray<T, N> {
    type Target = [T; N];

    #[inline]
    fn deref(&self) -> &[T; N] {
        // SAFETY: the slice was made of N objects, and the mapping lives (rule 1).
        unsafe { self.0.start.cast::<[T; N]>().as_ref() }
    }
}

/// Reserves pages of a file that nobody has written to, by filling them: a page that is only reserved is zeroed when it is first
/// touched, alone, while pages with content are mapped sixteen at a time.
pub(crate) fn reserve(file: impl AsFd, part: Range<usize>) -> rustix::io::Result<()> {
    allow_size(part.end)?;
    let mut filled = part.start;
    while filled < part.end {
        let part = &ZEROES[..ZEROES.len().min(part.end - filled)];
        match rustix::io::pwrite(&file, part, filled as u64) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A file beyond the limit of file sizes is an error here; the kernel would end the process too, by SIGXFSZ.
fn allow_size(size: usize) -> rustix::io::Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    match limit.is_some_and(|limit| limit < size as u64) {
        true => Err(rustix::io::Errno::FBIG),
        false => Ok(()),
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Rule 5. Another thread of the parent may have been changing the table of ranges when it forked, too.
        if !self.maker.is_this_process() {
            return;
        }
        crate::label!("memory.unmap");
        crate::truncation::forget(self.start.as_ptr());
        // SAFETY: the range is the one that this process mapped (rule 5), and no reference into it outlives `self` (rule 1).
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
        crate::label!("memory.unmap.done");
        debug_assert!(unmapped.is_ok(), "the range is our own");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_file::reserve_in;
    use crate::sync::{AtomicU64, Ordering};
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn two_mappings_of_one_file_share_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("segment");
        let ours = Mapping::create(&path, 8192, 0o600).unwrap();
        let theirs = Mapping::open(&path, Access::Read).unwrap();
        ours.object::<AtomicU64>(4096).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(theirs.object::<AtomicU64>(4096).unwrap().load(Ordering::Relaxed), 7);
    }

    #[test]
    fn a_file_without_a_name_is_found_once_it_is_published() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("page");
        let (ours, unnamed) = Mapping::create_unnamed(folder.path(), 4096, 0o600).unwrap();
        ours.object::<AtomicU64>(0).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let _held = unnamed.publish(&path).unwrap();
        let theirs = Mapping::open(&path, Access::Read).unwrap();
        assert_eq!(theirs.object::<AtomicU64>(0).unwrap().load(Ordering::Relaxed), 7);
        let second = Mapping::create_unnamed(folder.path(), 4096, 0o600).unwrap().1;
        assert!(second.publish(&path).is_err(), "the path is taken");
    }

    #[test]
    fn looking_for_room_leaves_nothing_and_refuses_what_cannot_be() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        look_for_room(folder.path(), 1 << 20).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let error = look_for_room(folder.path(), 1 << 60).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
        assert!(look_for_room(&folder.path().join("missing"), 4096).is_err());
    }

    /// Goal: a file that is made and cannot be mapped is not left behind. Method: nothing can be mapped of an empty one.
    #[test]
    fn a_file_that_cannot_be_mapped_is_not_left_behind() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("empty");
        assert!(Mapping::create(&path, 0, 0o600).is_err());
        assert!(!path.exists());
    }

    /// Goal: a part that is not reserved takes no room, until it is.
    #[test]
    fn a_part_is_reserved_when_it_is_asked_for() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("partly");
        let (ours, file) = Mapping::create_partly(&path, 16_384, 4096, 0o600).unwrap();
        let made = FileIdentity::of(file).unwrap();
        let taken = || std::fs::metadata(&path).map(|found| (found.size(), found.blocks() * 512)).unwrap();
        assert_eq!((ours.size(), taken()), (16_384, (16_384, 4096)));
        let directory = File::open(folder.path()).unwrap();
        let place = (Path::new("the file"), made);
        let reserve = |name: &CStr, part| reserve_in(directory.as_fd(), name, place, part);
        reserve(c"partly", 4096..12_288).unwrap();
        assert_eq!(taken(), (16_384, 12_288));
        let error = reserve(c"missing", 0..4096).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        assert!(error.to_string().contains("the file"), "{error}");
    }

    /// Goal: a peer that truncates a file that we map gives us zeroes, not a signal that ends us.
    #[test]
    fn a_truncated_file_is_read_as_zeroes() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("truncated");
        let ours = Mapping::create(&path, 16_384, 0o600).unwrap();
        let theirs = Mapping::open(&path, Access::Read).unwrap();
        let word = |mapping: &Mapping, at| mapping.object::<AtomicU64>(at).unwrap().load(Ordering::Relaxed);
        ours.object::<AtomicU64>(8192).unwrap().store(7, Ordering::Relaxed);
        assert_eq!(word(&theirs, 8192), 7);
        OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
        assert_eq!((word(&theirs, 8192), word(&theirs, 0)), (0, 0));
        ours.object::<AtomicU64>(12_288).unwrap().store(9, Ordering::Relaxed);
        assert_eq!(word(&ours, 12_288), 9, "it is ours alone now");
        drop((ours, theirs));
        let again = Mapping::anonymous(4096).unwrap();
        assert_eq!(word(&again, 0), 0);
    }

    /// Goal: a child that drops its parent's mapping takes away nothing: at an address that the child does not inherit, another mapping
    /// may be by now. Method: it maps something of its own there.
    #[test]
    fn a_child_unmaps_nothing_of_its_parent() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("forked");
        std::fs::write(&path, [0; PAGE_SIZE]).unwrap();
        let page = Mapping::placeholder(&File::open(&path).unwrap(), &path).unwrap();
        let start = page.start.as_ptr();
        // SAFETY: the child maps, drops, looks and ends; the alarm ends one that hangs.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: nothing is there in the child, or this fails; the address that is read is mapped then, or the child dies of it.
            let code = unsafe {
                libc::alarm(60);
                let own = libc::mmap(start.cast(), PAGE_SIZE, libc::PROT_READ, flags, -1, 0);
                drop(page);
                i32::from(own != start.cast() || start.read_volatile() != 0)
            };
            // SAFETY: ends the child, and runs nothing of its parent's.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: reaps the child from above; the status is live.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    /// Goal: a SIGBUS that somebody sends does what it did before a file was mapped: it ends the process, or is ignored where it was.
    #[test]
    fn a_signal_that_is_sent_is_none_of_an_access() {
        const ROLE: &str = "PUNCTUAL_TEST_SENT_SIGNAL";
        let name = "memory::tests::a_signal_that_is_sent_is_none_of_an_access";
        if let Ok(before) = std::env::var(ROLE) {
            let folder = tempfile::tempdir_in("/dev/shm").unwrap();
            let path = folder.path().join("sent");
            std::fs::write(&path, [0; PAGE_SIZE]).unwrap();
            let before = if before == "ignored" { libc::SIG_IGN } else { libc::SIG_DFL };
            // SAFETY: nobody else sets this process's signals.
            unsafe { libc::signal(libc::SIGBUS, before) };
            let theirs = Mapping::open(&path, Access::Read).unwrap();
            OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
            drop(folder);
            // SAFETY: a process may send itself a signal.
            unsafe { libc::raise(libc::SIGBUS) };
            if before == libc::SIG_DFL {
                return;
            }
            assert_eq!(theirs.object::<AtomicU64>(0).unwrap().load(Ordering::Relaxed), 0);
            return;
        }
        let ended = |role: &str| {
            let mut test = std::process::Command::new(std::env::current_exe().unwrap());
            test.args([name, "--exact"]).env(ROLE, role).stdout(std::process::Stdio::null()).status().unwrap()
        };
        assert_eq!(ended("default").signal(), Some(libc::SIGBUS));
        assert!(ended("ignored").success());
    }

    /// Goal: that holds for a thread that has closed all signals before it maps, as a program's workers do.
    #[test]
    fn a_truncated_file_does_not_end_a_thread_without_signals() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("closed");
        std::fs::write(&path, [7; 8192]).unwrap();
        let read = std::thread::spawn(move || {
            let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
            // SAFETY: `sigfillset` initialises the set, which the other call reads; the mask is this thread's, which ends below.
            let refused = unsafe {
                libc::sigfillset(all.as_mut_ptr());
                libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), core::ptr::null_mut())
            };
            assert_eq!(refused, 0);
            let theirs = Mapping::open(&path, Access::Read).unwrap();
            OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
            theirs.object::<AtomicU64>(4096).unwrap().load(Ordering::Relaxed)
        });
        assert_eq!(read.join().unwrap(), 0);
    }

    #[test]
    fn a_slice_keeps_its_mapping() {
        let memory = Arc::new(Mapping::anonymous(4096).unwrap());
        let slice = MappedSlice::<AtomicU64>::new(&memory, 8, 4).unwrap();
        assert!(MappedSlice::<AtomicU64>::new(&memory, 4096, 1).is_none());
        drop(memory);
        slice[3].store(9, Ordering::Relaxed);
        assert_eq!((slice.clone()[3].load(Ordering::Relaxed), slice.len()), (9, 4));
    }

    #[test]
    fn an_array_is_all_of_its_objects() {
        let memory = Arc::new(Mapping::anonymous(4096).unwrap());
        assert!(MappedArray::<AtomicU64, 4>::new(&memory, 4072).is_none(), "one is behind the end");
        let array = MappedArray::<AtomicU64, 4>::new(&memory, 4064).unwrap();
        drop(memory);
        array.iter().enumerate().for_each(|(at, word)| word.store(at as u64, Ordering::Relaxed));
        assert_eq!(array.clone().each_ref().map(|word| word.load(Ordering::Relaxed)), [0, 1, 2, 3]);
    }

    #[test]
    fn an_object_outside_of_the_mapping_is_not_there() {
        let memory = Mapping::anonymous(4096).unwrap();
        assert!(memory.object::<AtomicU64>(4088).is_some());
        assert!(memory.object::<AtomicU64>(4089).is_none(), "misaligned");
        assert!(memory.object::<AtomicU64>(4096).is_none(), "behind the end");
        assert!(memory.objects::<AtomicU64>(0, usize::MAX).is_none(), "overflow");
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing");
        let error = Mapping::open(&path, Access::Read).unwrap_err();
        assert!(error.to_string().contains("missing"), "{error}");
        std::fs::write(&path, b"").unwrap();
        assert!(Mapping::open(&path, Access::Read).is_err(), "an empty file cannot be mapped");
        assert!(Mapping::create(&path, 4096, 0o600).is_err(), "the path is taken");
    }
}
