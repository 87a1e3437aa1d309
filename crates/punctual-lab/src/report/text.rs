//! Sections on a terminal: as wide as it is, and 80 columns where nobody looks.

use std::io::IsTerminal;

use comfy_table::{
    Attribute, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table as Grid, presets,
};
use console::{Style, Term, measure_text_width};

use super::section::{Block, Cell, Column, ColumnKind, Item, Output, Section, Table, Tone};
use crate::terminal::printable;

/// Columns of what is no terminal.
pub const WIDTH: usize = 80;
/// Columns of the narrowest terminal that is believed, and of the widest line of running text.
const WIDTH_MIN: usize = 40;
const PROSE_MAX: usize = 100;
/// A column of words that is narrower has a word in each line.
const PROSE_MIN: usize = 20;
/// Between two columns.
const GUTTER: usize = 2;

/// The screen that is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Columns.
    pub width: usize,
    /// ANSI colours.
    pub colour: bool,
}

impl Default for Screen {
    fn default() -> Self {
        Self { width: WIDTH, colour: false }
    }
}

/// True if terminals here know no control sequences, as in an editor or over a serial line.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term == "dumb")
}

impl Screen {
    /// Standard output: its own width and colours if it is a terminal, unless `NO_COLOR` or `TERM=dumb` forbids them.
    pub fn stdout() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let width = Term::stdout().size_checked().map_or(WIDTH, |(_rows, columns)| usize::from(columns));
        Self {
            width: if is_terminal { width.max(WIDTH_MIN) } else { WIDTH },
            colour: is_terminal && !is_dumb() && std::env::var_os("NO_COLOR").is_none(),
        }
    }

    fn paint(self, style: &Style, text: &str) -> String {
        style.clone().force_styling(self.colour).apply_to(text).to_string()
    }

    /// A title.
    pub fn heading(self, text: &str) -> String {
        self.paint(&Style::new().bold(), text)
    }

    /// Text that needs no look.
    pub fn faint(self, text: &str) -> String {
        self.paint(&Style::new().dim(), text)
    }

    fn warning(self, text: &str) -> String {
        self.paint(&Style::new().yellow(), text)
    }
}

/// All that a terminal shows of them.
pub fn page(sections: &[Section], screen: Screen) -> String {
    sections.iter().filter(|section| section.medium != Output::Page).map(|one| render(one, screen)).collect()
}

fn render(section: &Section, screen: Screen) -> String {
    let mut text = String::new();
    let title = if section.about.is_empty() {
        section.title.clone()
    } else {
        format!("{}: {}", section.title, section.about)
    };
    for line in wrapped(&title, "", "  ", screen).lines() {
        text += &format!("{}\n", screen.heading(line));
    }
    let blocks: String = section.blocks.iter().map(|one| block(one, screen)).collect();
    text + &blocks + "\n"
}

fn block(block: &Block, screen: Screen) -> String {
    match block {
        Block::Words(words) => wrapped(words, "", "", screen),
        Block::Note(words) => {
            wrapped(words, "", "", screen).lines().map(|line| format!("{}\n", screen.faint(line))).collect()
        }
        Block::Table(rows) => table(rows, screen),
        Block::Items(items) => items.iter().map(|one| item(one, screen)).collect(),
        Block::Verbatim(lines) => format!("{}\n", printable(lines)),
        Block::Drawing(_) | Block::Folded(..) => String::new(),
    }
}

fn item(item: &Item, screen: Screen) -> String {
    let mut text = String::new();
    for line in &item.lines {
        let lines = wrapped(line, "  ", "    ", screen);
        text += &if item.is_warning {
            lines.lines().map(|line| format!("{}\n", screen.warning(line))).collect()
        } else {
            lines
        };
    }
    if let Some(then) = &item.then {
        text += &wrapped(then, "    → ", "      ", screen);
    }
    if let Some(code) = &item.code {
        for line in code.lines() {
            text += &format!("      {}\n", screen.faint(&printable(line)));
        }
    }
    text
}

/// Units that stand behind a number on the same line.
const UNITS: [&str; 8] = ["ns", "µs", "ms", "s", "%", "B", "KiB", "MiB"];

/// The words, a number and its unit being one.
fn with_units(words: &str) -> Vec<String> {
    let mut together: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        let bare = word.trim_end_matches([',', ';', ':', '.', ')']);
        match together.last_mut().filter(|last| last.ends_with(|end: char| end.is_ascii_digit())) {
            Some(number) if UNITS.contains(&bare) => *number += &format!(" {}", printable(word)),
            _ => together.push(printable(word)),
        }
    }
    together
}

/// The words on lines that fit.
pub fn wrapped(words: &str, first: &str, others: &str, screen: Screen) -> String {
    let width = screen.width.min(PROSE_MAX);
    let (mut text, mut line) = (String::new(), first.to_owned());
    let mut is_fresh = true;
    for word in with_units(words) {
        if !is_fresh && measure_text_width(&line) + 1 + measure_text_width(&word) > width {
            text += &line;
            text.push('\n');
            line = others.to_owned();
            is_fresh = true;
        }
        if !is_fresh {
            line.push(' ');
        }
        line += &word;
        is_fresh = false;
    }
    text + &line + "\n"
}

/// As one grid if it fits; else as several, each with the key, and with the rows' numbers where that does not tell them apart. Where
/// the key leaves no room for another column, the numbers stand in its place.
fn table(table: &Table, screen: Screen) -> String {
    let table = &shown_table(table);
    let all = widths(table);
    let pieces = parts(table, &all, screen.width);
    if pieces.iter().any(|columns| takes(table, &all, columns) > screen.width) {
        return grids(&Table { keys: 1, ..numbered(table) }, screen);
    }
    if pieces.len() > 1 && !keys_differ(table) {
        return grids(&numbered(table), screen);
    }
    grids(table, screen)
}

fn shown_table(table: &Table) -> Table {
    let mut shown_table = table.clone();
    for cell in shown_table.rows.iter_mut().flatten() {
        cell.text = printable(&cell.text);
    }
    for column in &mut shown_table.columns {
        (column.head, column.over) = (printable(&column.head), printable(&column.over));
    }
    shown_table
}

fn keys_differ(table: &Table) -> bool {
    let keys = table.rows.iter().filter_map(|row| row.get(..table.keys));
    let mut keys: Vec<Vec<&str>> =
        keys.map(|key| key.iter().map(|cell| cell.text.as_str()).collect()).collect();
    keys.sort_unstable();
    keys.windows(2).all(|pair| pair[0] != pair[1])
}

/// With the number of each row before it.
fn numbered(table: &Table) -> Table {
    let mut numbered = table.clone();
    numbered.columns.insert(0, Column::number("row"));
    numbered.keys += 1;
    for (row, number) in numbered.rows.iter_mut().filter(|row| !row.is_empty()).zip(1_u32..) {
        row.insert(0, number.to_string().into());
    }
    numbered
}

fn grids(table: &Table, screen: Screen) -> String {
    let widths = widths(table);
    let parts = parts(table, &widths, screen.width);
    parts.iter().map(|columns| grid(table, columns, &widths, screen)).collect::<Vec<_>>().join("\n")
}

/// Columns that a column takes if nothing of it is wrapped.
fn width(table: &Table, column: usize) -> usize {
    let texts = table.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.as_str());
    let head = table.columns[column].head.as_str();
    texts.chain([head]).map(measure_text_width).max().unwrap_or(0)
}

/// [`width`] of each column; the last under words that are wider than all below them has the rest of their width.
fn widths(table: &Table) -> Vec<usize> {
    let mut widths: Vec<usize> = (0..table.columns.len()).map(|column| width(table, column)).collect();
    let all: Vec<usize> = (0..table.columns.len()).collect();
    for group in all.chunk_by(|&a, &b| together(table, a, b)) {
        let below = group.iter().map(|&column| widths[column] + GUTTER).sum::<usize>() - GUTTER;
        let words = measure_text_width(&table.columns[group[0]].over);
        widths[group[group.len() - 1]] += words.saturating_sub(below);
    }
    widths
}

/// The least width of a column, which a wrapped one may have.
fn least(table: &Table, widths: &[usize], column: usize) -> usize {
    let is_prose = table.columns[column].kind == ColumnKind::Prose;
    if is_prose { widths[column].min(PROSE_MIN) } else { widths[column] }
}

/// The least that these columns take side by side.
fn takes(table: &Table, widths: &[usize], columns: &[usize]) -> usize {
    let each = columns.iter().map(|&column| least(table, widths, column) + GUTTER);
    each.sum::<usize>().saturating_sub(GUTTER)
}

/// Columns of each part.
fn parts(table: &Table, widths: &[usize], room: usize) -> Vec<Vec<usize>> {
    let takes = |columns: &[usize]| takes(table, widths, columns);
    let all: Vec<usize> = (0..table.columns.len()).collect();
    if all.is_empty() || takes(&all) <= room {
        return vec![all];
    }
    let keys: Vec<usize> = (0..table.keys).collect();
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut part = keys.clone();
    let groups = all[table.keys..].chunk_by(|&a, &b| together(table, a, b));
    // Columns under the same words stay together, unless even alone they take too much.
    let pieces = groups.flat_map(|group| {
        let is_too_wide = takes(&[&keys[..], group].concat()) > room;
        group.chunks(if is_too_wide { 1 } else { group.len() })
    });
    for piece in pieces {
        let joined = [&part[..], piece].concat();
        if takes(&joined) <= room || part.len() == keys.len() {
            part = joined;
        } else {
            parts.push(part);
            part = [&keys[..], piece].concat();
        }
    }
    parts.push(part);
    parts
}

fn together(table: &Table, a: usize, b: usize) -> bool {
    !table.columns[a].over.is_empty() && table.columns[a].over == table.columns[b].over
}

fn grid(table: &Table, columns: &[usize], widths: &[usize], screen: Screen) -> String {
    let mut grid = Grid::new();
    grid.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    grid.set_width(u16::try_from(screen.width).unwrap_or(u16::MAX));
    if screen.colour {
        grid.enforce_styling();
    } else {
        grid.force_no_tty();
    }
    if columns.iter().any(|&column| !table.columns[column].head.is_empty()) {
        let head = |&column: &usize| comfy_table::Cell::new(&table.columns[column].head);
        grid.set_header(columns.iter().map(|column| head(column).add_attribute(Attribute::Dim)));
    }
    for row in &table.rows {
        grid.add_row(columns.iter().map(|&column| row.get(column).map_or_else(blank, styled)));
    }
    let free = free_width(table, columns, widths, screen.width);
    let taken = |column: usize| {
        if table.columns[column].kind == ColumnKind::Prose {
            widths[column].min(free)
        } else {
            widths[column]
        }
    };
    for (place, &column) in columns.iter().enumerate() {
        let Some(set) = grid.column_mut(place) else { continue };
        let is_last = place + 1 == columns.len();
        set.set_padding((0, if is_last { 0 } else { GUTTER as u16 }));
        let at_right = table.columns[column].kind == ColumnKind::Number;
        set.set_cell_alignment(if at_right { CellAlignment::Right } else { CellAlignment::Left });
        let outer = taken(column) + if is_last { 0 } else { GUTTER };
        set.set_constraint(ColumnConstraint::Absolute(comfy_table::Width::Fixed(outer as u16)));
    }
    let above = over(table, columns, taken);
    let above = if above.is_empty() { above } else { format!("{}\n", screen.faint(&above)) };
    above + &grid.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>()
}

/// The line above the heads: words in the middle of the columns that share them.
fn over(table: &Table, columns: &[usize], taken: impl Fn(usize) -> usize) -> String {
    let mut line = String::new();
    let mut from = 0;
    for group in columns.chunk_by(|&a, &b| together(table, a, b)) {
        let width = group.iter().map(|&column| taken(column) + GUTTER).sum::<usize>() - GUTTER;
        let words = &table.columns[group[0]].over;
        let is_name = table.columns[group[0]].kind != ColumnKind::Number;
        let air = width.saturating_sub(measure_text_width(words)) / if is_name { usize::MAX } else { 2 };
        line += &" ".repeat((from + air).saturating_sub(measure_text_width(&line)));
        line += words;
        from += width + GUTTER;
    }
    line.trim_end().to_owned()
}

/// Width that each column of words may take, once the others have what they need.
fn free_width(table: &Table, columns: &[usize], widths: &[usize], room: usize) -> usize {
    let is_prose = |column: &&usize| table.columns[**column].kind == ColumnKind::Prose;
    let (prose, fixed): (Vec<&usize>, Vec<&usize>) = columns.iter().partition(is_prose);
    let taken: usize =
        fixed.iter().map(|&&column| widths[column]).sum::<usize>() + GUTTER * (columns.len() - 1);
    let (free, mut left) = (room.saturating_sub(taken), prose.len());
    // A column that needs less than the even share leaves the rest to the others.
    let mut wanted: Vec<usize> = prose.iter().map(|&&column| widths[column]).collect();
    wanted.sort_unstable();
    let mut free = free;
    for want in wanted {
        let even = free / left.max(1);
        if want > even {
            return even.max(1);
        }
        free -= want;
        left -= 1;
    }
    usize::MAX
}

fn blank() -> comfy_table::Cell {
    comfy_table::Cell::new("")
}

fn styled(cell: &Cell) -> comfy_table::Cell {
    let set = comfy_table::Cell::new(&cell.text);
    match cell.tone {
        Tone::Bad => set.fg(Color::Yellow),
        Tone::Good => set.fg(Color::Green),
        Tone::Faint => set.add_attribute(Attribute::Dim),
        Tone::Plain | Tone::Strong => set,
    }
}

#[cfg(test)]
mod tests {
    use super::super::section::numbers;
    use super::*;

    fn wide() -> Table {
        let mut columns = vec![Column::name("route")];
        for over in ["gap 0", "gap 100 µs", "gap 1 ms", "gap 10 ms"] {
            columns.extend(numbers(["p50", "p99", "max"]).into_iter().map(|column| column.over(over)));
        }
        columns.push(Column::prose("what it is"));
        let mut table = Table::new(columns);
        let figures = (0..12).map(|figure| Cell::from(format!("{figure},{figure:03}")));
        let about = Cell::from("a way of waiting that somebody has to explain in many words");
        table.row([Cell::from("shared/adaptive")].into_iter().chain(figures).chain([about]));
        table
    }

    /// Goal: nothing is wider than the screen, and nothing is lost.
    #[test]
    fn a_table_that_is_too_wide_is_split_and_keeps_every_cell() {
        for width in [40, 60, 80, 100, 200] {
            let text = table(&wide(), Screen { width, colour: false });
            assert!(text.lines().all(|line| measure_text_width(line) <= width), "{width}\n{text}");
            let words: Vec<&str> = text.split_whitespace().collect();
            for cell in wide().rows.concat() {
                assert!(
                    cell.text.split_whitespace().all(|word| words.contains(&word)),
                    "{}\n{text}",
                    cell.text
                );
            }
            for word in ["gap 0", "gap 10 ms", "what it is"] {
                assert!(text.contains(word), "{width}: {word}\n{text}");
            }
        }
    }

    /// Goal: in each part of a table it can be told which row a figure belongs to.
    #[test]
    fn rows_of_one_key_are_numbered_where_the_table_is_split() {
        let mut alike = wide();
        alike.rows.push(alike.rows[0].clone());
        let narrow = table(&alike, Screen { width: 60, colour: false });
        let parts: Vec<&str> = narrow.split("\n\n").collect();
        assert!(parts.len() > 1, "{narrow}");
        for part in parts {
            let starts: Vec<&str> =
                part.lines().map(|line| line.split_whitespace().next().unwrap_or("")).collect();
            assert!(["row", "1", "2"].iter().all(|start| starts.contains(start)), "{narrow}");
        }
        assert!(!table(&alike, Screen { width: 200, colour: false }).contains("row"), "it is one table");
    }

    /// Goal: a key that leaves no room for a long name beside it stands by itself, and no terminal breaks a row.
    #[test]
    fn a_wide_key_gives_way_to_the_numbers_of_rows() {
        let mut names = Table::new(["protocol", "found", "repaired"].map(Column::name).to_vec());
        for number in ["1", "2"] {
            let cells = ["receiver-moves-without-uif", "wake-up lost", "epoll-event-recheck"];
            names.row(cells.map(|cell| Cell::from(format!("{cell}{number}"))));
        }
        let text = table(&names, Screen { width: 40, colour: false });
        assert!(text.lines().all(|line| measure_text_width(line) <= 40), "{text}");
        assert!(text.lines().any(|line| line.trim() == "2  receiver-moves-without-uif2"), "{text}");
        assert!(text.contains("2  wake-up lost2  epoll-event-recheck2"), "{text}");
    }

    /// Goal: a wide terminal is used.
    #[test]
    fn a_table_that_fits_is_one() {
        let text = table(&wide(), Screen { width: 200, colour: false });
        assert_eq!(text.matches("shared/adaptive").count(), 1, "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn colours_are_there_only_when_asked_for() {
        let mut table = Table::new(vec![Column::name("route"), Column::number("lost")]);
        table.row(["shared/futex".into(), Cell::broken(3)]);
        let section = Section::new("Results").table(table).note("A note.");
        let of = |colour| page(std::slice::from_ref(&section), Screen { width: 80, colour });
        assert!(of(true).contains("\x1b[") && !of(false).contains('\x1b'));
    }

    /// Goal: a name or text of another program commands no terminal, wherever it stands; our own colours do.
    #[test]
    fn nothing_from_outside_commands_the_terminal() {
        let evil = "x\x1b]0;y\x07\u{9b}2J\x08";
        let mut table = Table::new(vec![Column::name(evil), Column::prose(evil).over(evil)]);
        table.row([evil.into(), Cell::broken(3)]);
        let item = Item {
            lines: vec![evil.to_owned()],
            then: Some(format!("3 {evil}")),
            code: Some(evil.to_owned()),
            ..Item::default()
        };
        let mut section = Section::new(evil).table(table).note(evil).words(evil).items(vec![item]);
        section.about = evil.to_owned();
        let section = section.with(Block::Verbatim(format!("{evil}\n{evil}")));
        let text = page(std::slice::from_ref(&section), Screen { width: 80, colour: false });
        let is_off = |c: char| c.is_control() && c != '\n';
        assert!(!text.contains(is_off) && text.matches("x\u{fffd}]0;y").count() == 13, "{text:?}");
        assert!(page(&[section], Screen { width: 80, colour: true }).contains("\x1b["));
    }

    #[test]
    fn a_number_keeps_its_unit() {
        let text = wrapped(&"1.2 µs, ".repeat(40), "", "", Screen::default());
        assert!(text.lines().all(|line| line.ends_with("µs,") && line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn long_lines_are_wrapped_between_words() {
        let text = wrapped(&"word ".repeat(50), "→ ", "  ", Screen::default());
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!(text.split_whitespace().filter(|word| *word == "word").count(), 50);
    }
}
