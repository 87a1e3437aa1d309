//! Sections on the page. A table that its place is too narrow for becomes a card per row; nothing is cut off.

use std::fmt::Write as _;

use super::escape;
use super::parts::WORDS;
use super::section::{Block, Cell, Column, ColumnKind, Item, Output, Section, Table, Tone};

/// Widths of a place from which on a table of class w0, w1, … stands as one (`page.css` has the same).
const PLACES: [usize; 7] = [300, 420, 540, 660, 780, 900, 1020];
/// Width of a letter, and space between two columns, px.
const LETTER: usize = 8;
const BETWEEN: usize = 18;
/// Letters of a column of words that is not too narrow to be read.
const PROSE_MIN: usize = 22;

/// All that the page shows of them.
pub(super) fn sections(page: &mut String, sections: &[Section]) {
    for section in sections.iter().filter(|section| section.medium != Output::Terminal) {
        let about = if section.about.is_empty() {
            String::new()
        } else {
            format!(" <small>{}</small>", escape(&section.about))
        };
        let _ = write!(page, "<section><h2>{}{about}</h2>", escape(&section.title));
        // The page explains its words once, at its head.
        let is_new = |one: &&Block| !matches!(one, Block::Note(words) if words == WORDS);
        section.blocks.iter().filter(is_new).for_each(|one| block(page, one));
        page.push_str("</section>\n");
    }
}

fn block(page: &mut String, block: &Block) {
    match block {
        Block::Words(words) => {
            let _ = write!(page, "<p class=\"words\">{}</p>", escape(words));
        }
        Block::Note(words) => {
            let _ = write!(page, "<p class=\"say\">{}</p>", escape(words));
        }
        Block::Table(rows) => table(page, rows),
        Block::Items(items) => list(page, items),
        Block::Drawing(drawing) => draw(page, &drawing.wide, &drawing.narrow),
        Block::Verbatim(lines) => {
            let _ = write!(page, "<pre>{}</pre>", escape(lines));
        }
        Block::Folded(title, inner) => {
            let _ = write!(page, "<details><summary>{}</summary>", escape(title));
            self::block(page, inner);
            page.push_str("</details>");
        }
    }
}

/// The same drawing twice; the style shows the one that fits.
pub(super) fn draw(page: &mut String, wide: &str, narrow: &str) {
    let _ = write!(page, "<div class=\"for-screen\">{wide}</div><div class=\"for-phone\">{narrow}</div>");
}

fn list(page: &mut String, items: &[Item]) {
    page.push_str("<ul class=\"plain\">");
    for item in items {
        page.push_str("<li>");
        for line in &item.lines {
            let _ = write!(page, "<b>{}</b>", escape(line));
        }
        if let Some(then) = &item.then {
            let _ = write!(page, "<span>{}</span>", escape(then));
        }
        code(page, item.code.as_deref());
        page.push_str("</li>");
    }
    page.push_str("</ul>");
}

/// The code to write.
pub(super) fn code(page: &mut String, code: Option<&str>) {
    if let Some(code) = code {
        let _ = write!(page, "<pre class=\"code\">{}</pre>", escape(code));
    }
}

/// The class of a table whose columns have so many letters.
pub(super) fn place_for(letters: &[usize]) -> String {
    let px: usize = letters.iter().map(|letters| letters * LETTER + BETWEEN).sum();
    let place = PLACES.iter().position(|&place| px <= place).unwrap_or(PLACES.len());
    format!("w{place}")
}

fn letters(table: &Table, column: usize) -> usize {
    let of = |text: &str| text.chars().count();
    let head = table.columns[column].head.split(' ').map(of).max().unwrap_or(0);
    let cells = table.rows.iter().filter_map(|row| row.get(column)).map(|cell| of(&cell.text));
    let most = cells.chain([head]).max().unwrap_or(0);
    if table.columns[column].kind == ColumnKind::Prose { most.min(PROSE_MIN) } else { most }
}

fn table(page: &mut String, table: &Table) {
    let widths: Vec<usize> = (0..table.columns.len()).map(|column| letters(table, column)).collect();
    let _ = write!(page, "<table class=\"{}\"><thead>", place_for(&widths));
    heads(page, &table.columns);
    page.push_str("</thead><tbody>");
    let mut is_apart = false;
    for row in &table.rows {
        if row.is_empty() {
            is_apart = true;
            continue;
        }
        page.push_str(if is_apart { "<tr class=\"apart\">" } else { "<tr>" });
        is_apart = false;
        for (place, (cell, column)) in row.iter().zip(&table.columns).enumerate() {
            td(page, column, cell, place < table.keys);
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table>");
}

fn heads(page: &mut String, columns: &[Column]) {
    if columns.iter().any(|column| !column.over.is_empty()) {
        page.push_str("<tr class=\"over\">");
        for group in columns.chunk_by(|a, b| a.over == b.over) {
            let _ = write!(page, "<th colspan=\"{}\">{}</th>", group.len(), escape(&group[0].over));
        }
        page.push_str("</tr>");
    }
    page.push_str("<tr>");
    for column in columns {
        let class = if column.kind == ColumnKind::Number { "" } else { " class=\"l\"" };
        let _ = write!(page, "<th{class}>{}</th>", escape(&column.head));
    }
    page.push_str("</tr>");
}

/// One cell; its label is shown where the row is a card.
fn td(page: &mut String, column: &Column, cell: &Cell, is_key: bool) {
    let kind = match column.kind {
        ColumnKind::Number => "",
        ColumnKind::Name => "l",
        ColumnKind::Prose => "l prose",
    };
    let tone = match cell.tone {
        Tone::Plain => "",
        Tone::Strong => "p50",
        Tone::Bad => "bad",
        Tone::Good => "good",
        Tone::Faint => "none",
    };
    let classes: Vec<&str> =
        [kind, tone, if is_key { "key" } else { "" }].into_iter().filter(|class| !class.is_empty()).collect();
    cell_html(page, &classes.join(" "), &column.label(), &escape(&cell.text));
}

/// A cell with its classes and its label, around what is HTML already.
pub(super) fn cell_html(page: &mut String, classes: &str, label: &str, inner: &str) {
    page.push_str("<td");
    if !classes.is_empty() {
        let _ = write!(page, " class=\"{classes}\"");
    }
    if !label.is_empty() {
        let _ = write!(page, " data-l=\"{}\"", escape(label));
    }
    let _ = write!(page, ">{inner}</td>");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the style knows every class of table, at the width that the class stands for.
    #[test]
    fn the_style_has_every_class_of_table() {
        let css = include_str!("page.css");
        for (class, place) in PLACES.iter().enumerate() {
            let rule = format!("@container (max-width:{}px){{", place - 1);
            let body = css.split_once(&rule).map(|(_, rest)| rest.lines().next().unwrap_or("")).unwrap_or("");
            assert!(body.contains(&format!("table.w{class}")), "{rule}…table.w{class}");
        }
    }

    /// Goal: a table that no place has room for is a card everywhere but on the widest.
    #[test]
    fn classes_follow_the_width() {
        assert_eq!(place_for(&[10, 5]), "w0");
        assert_eq!(place_for(&[30, 10, 10]), "w2");
        assert_eq!(place_for(&[40; 6]), "w7");
    }
}
