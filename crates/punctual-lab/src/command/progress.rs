//! Progress of a measurement, on a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

use crate::report::text::is_dumb;

/// Of trials; hidden where nobody looks.
pub(super) fn progress(quiet: bool) -> ProgressBar {
    if quiet || is_dumb() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} trials  {msg:18!} {eta} left");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Of what is one long trial: in hundredths.
pub(super) fn progress_of_whole(quiet: bool) -> ProgressBar {
    let bar = progress(quiet);
    bar.set_length(100);
    let style = ProgressStyle::with_template("{wide_bar} {pos:>3} %  {eta} left");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
