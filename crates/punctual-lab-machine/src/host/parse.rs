//! The kernel's text files. Each function takes the text, so that it can be tried on any.

/// The value of `name: value`, in the first line that has it.
pub(super) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim_end() == name).then_some(value.trim())
    })
}

/// `0-2,5` is 0, 1, 2, 5; nothing is no CPU. `None` for anything else.
pub(super) fn cpu_list(text: &str) -> Option<Vec<usize>> {
    /// Far above any kernel's NR_CPUS; keeps a mad range from filling memory.
    const CPU_MAX: usize = 1 << 16;
    let mut cpus = Vec::new();
    // `(null)` is how some kernels print an empty nohz_full.
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty() && *part != "(null)") {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > CPU_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// A `kB` field of `/proc/meminfo`, in bytes.
pub(super) fn kibibytes(meminfo: &str, name: &str) -> Option<u64> {
    let number: u64 = field(meminfo, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1_024)
}

/// The first three numbers of `/proc/loadavg`.
pub(super) fn load_average(text: &str) -> Option<[f64; 3]> {
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

/// The bracketed word of `always [madvise] never`.
pub(super) fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(word, _)| word)
}

/// `steal` of the first line of `/proc/stat`: user nice system idle iowait irq softirq *steal*.
pub(super) fn steal_ticks(stat: &str) -> Option<u64> {
    let mut words = stat.lines().next()?.split_ascii_whitespace();
    (words.next()? == "cpu").then_some(())?;
    words.nth(7)?.parse().ok()
}

/// Ticks that these CPUs spent on processes (user, nice, system), by their lines of `/proc/stat`.
pub(super) fn busy_ticks(stat: &str, cpus: &[usize]) -> Option<u64> {
    let of = |cpu: &usize| -> Option<u64> {
        let name = format!("cpu{cpu}");
        let line = stat.lines().find(|line| line.split_ascii_whitespace().next() == Some(&name))?;
        line.split_ascii_whitespace().skip(1).take(3).map(|word| word.parse::<u64>().ok()).sum()
    };
    cpus.iter().map(of).sum()
}

/// Of a process's `stat`: its parent, and the ticks that it and its waited-for children used.
pub(super) fn process_ticks(stat: &str) -> Option<(u32, u64)> {
    // The name stands in brackets and may hold anything.
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let parent = words.get(1)?.parse().ok()?;
    let ticks = words.get(11..15)?.iter().map(|word| word.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some((parent, ticks))
}

/// x86 alone tells a guest by a flag; elsewhere the answer is unknown.
pub(super) fn is_virtual(flags: &str) -> Option<bool> {
    cfg!(target_arch = "x86_64").then(|| has_flag(flags, "hypervisor"))
}

/// Constant in rate, and through sleep. x86 alone has a TSC.
pub(super) fn tsc_invariant(flags: &str) -> Option<bool> {
    cfg!(target_arch = "x86_64").then(|| has_flag(flags, "constant_tsc") && has_flag(flags, "nonstop_tsc"))
}

fn has_flag(flags: &str, name: &str) -> bool {
    flags.split_ascii_whitespace().any(|flag| flag == name)
}

/// The effective set of `/proc/<thread>/status`, one bit per capability.
pub(super) fn effective_capabilities(status: &str) -> Option<u64> {
    u64::from_str_radix(field(status, "CapEff")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whole() {
        let text = "model\t\t: 1\nmodel name\t: AMD EPYC\nflags\t\t: fpu tsc\n";
        assert_eq!(field(text, "model name"), Some("AMD EPYC"));
        assert_eq!(field(text, "model"), Some("1"));
        assert_eq!(field(text, "mod"), None);
    }

    #[test]
    fn cpu_lists_are_ranges_and_numbers() {
        assert_eq!(cpu_list("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(cpu_list(""), Some(vec![]));
        assert_eq!(cpu_list(" (null)"), Some(vec![]));
        for bad in ["a", "1-", "3-1", "0-99999999999", "0-9999999", "-1"] {
            assert_eq!(cpu_list(bad), None, "{bad}");
        }
    }

    #[test]
    fn memory_is_in_bytes() {
        let text = "MemTotal:       24684096 kB\nMemFree:        22367860 kB\nHugePages_Total:       0\n";
        assert_eq!(kibibytes(text, "MemTotal"), Some(24_684_096 * 1_024));
        assert_eq!(kibibytes(text, "HugePages_Total"), None, "not a size");
        assert_eq!(kibibytes("MemTotal: 99999999999999999 kB", "MemTotal"), None, "overflow");
    }

    #[test]
    fn load_averages_are_three() {
        assert_eq!(load_average("2.07 0.80 0.34 3/100 8488\n"), Some([2.07, 0.80, 0.34]));
        assert_eq!(load_average("2.07 0.80"), None);
        assert_eq!(load_average("a b c"), None);
    }

    #[test]
    fn the_chosen_word_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen("always madvise never"), None);
        assert_eq!(chosen("[always"), None);
    }

    #[test]
    fn steal_is_the_eighth_number() {
        assert_eq!(steal_ticks("cpu  20866 0 5941 170132 2081 0 141 200 0 0\ncpu0 1\n"), Some(200));
        assert_eq!(steal_ticks("cpu  20866 0 5941"), None);
        assert_eq!(steal_ticks("intr 1 2 3 4 5 6 7 8 9"), None);
        assert_eq!(steal_ticks(""), None);
        let stat = "cpu  1 1 1 9\ncpu0 10 2 30 999 5\ncpu1 1 0 3 999 5\ncpu10 7 7 7 7\n";
        assert_eq!(busy_ticks(stat, &[0, 1]), Some(46));
        assert_eq!(busy_ticks(stat, &[10]), Some(21));
        assert_eq!(busy_ticks(stat, &[2]), None);
        let process = "77 (a ) b) S 42 77 77 0 -1 4194304 100 0 0 0 5 6 7 8 20 0 1 0";
        assert_eq!(process_ticks(process), Some((42, 26)));
        assert_eq!(process_ticks("77 (a"), None);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn flags_are_whole_words() {
        assert_eq!(tsc_invariant("fpu constant_tsc nonstop_tsc"), Some(true));
        assert_eq!(tsc_invariant("fpu constant_tsc nonstop_tsc_s3"), Some(false));
        assert_eq!(is_virtual("fpu hypervisor"), Some(true));
        assert_eq!(is_virtual("fpu"), Some(false));
    }

    #[test]
    fn capabilities_are_hexadecimal() {
        let text = "CapPrm:\t000001fffeffffff\nCapEff:\t0000000000002000\n";
        assert_eq!(effective_capabilities(text), Some(1 << 13));
        assert_eq!(effective_capabilities("CapEff:\tx"), None);
    }
}
