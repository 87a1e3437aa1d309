//! Output of an experiment, as data: `text` renders it for a terminal, `html` for the page.

/// A title with what stands below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Its subject.
    pub title: String,
    /// The conditions and the unit, set smaller.
    pub about: String,
    /// In this order.
    pub blocks: Vec<Block>,
    /// Where it is shown.
    pub medium: Output,
}

/// Where a section is shown: the page has room for more, and drawings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Terminal and page.
    #[default]
    Both,
    /// A short form of what the page shows in another way.
    Terminal,
    /// Too long for a terminal, or drawn.
    Page,
}

/// One piece of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// Running text that belongs to the answer.
    Words(String),
    /// Explanation of the block beside it.
    Note(String),
    /// Rows and columns.
    Table(Table),
    /// Findings, each with advice.
    Items(Vec<Item>),
    /// SVG; a terminal shows the tables alone.
    Drawing(Drawing),
    /// Lines that others print in this form.
    Verbatim(String),
    /// The page folds it away, a terminal leaves it out.
    Folded(String, Box<Block>),
}

/// A drawing in two widths.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing {
    /// For a screen.
    pub wide: String,
    /// For a phone.
    pub narrow: String,
}

/// Some lines and what follows from them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Item {
    /// The observation, the question or the omission.
    pub lines: Vec<String>,
    /// The lines are a warning.
    pub is_warning: bool,
    /// The advice, or the answer.
    pub then: Option<String>,
    /// The code to write.
    pub code: Option<String>,
}

/// Cells under heads. A table that is too wide is split by its columns, never cut.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// From left to right.
    pub columns: Vec<Column>,
    /// Columns that say which row it is; each part of a split table repeats them.
    pub keys: usize,
    /// From top to bottom; a row without cells separates.
    pub rows: Vec<Vec<Cell>>,
}

/// A table in the making, column by column, with a row for each of these.
#[derive(Clone, Debug)]
pub struct TableOf<R> {
    rows: Vec<R>,
    over: String,
    table: Table,
}

/// Heads and layout of one column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    /// Over this column and its neighbours with the same words.
    pub over: String,
    /// Over this column.
    pub head: String,
    /// Its layout.
    pub kind: ColumnKind,
}

/// Layout of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColumnKind {
    /// At the right, never wrapped.
    #[default]
    Number,
    /// At the left, never wrapped.
    Name,
    /// At the left, wrapped between words.
    Prose,
}

/// One text, and how it is set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// Its emphasis.
    pub tone: Tone,
}

/// Emphasis of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// As it is.
    #[default]
    Plain,
    /// The figure to look at.
    Strong,
    /// A promise that did not hold.
    Bad,
    /// Better than before.
    Good,
    /// Nothing to see.
    Faint,
}

impl Section {
    /// With nothing in it.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// The conditions and the unit.
    pub fn about(mut self, about: impl Into<String>) -> Self {
        self.about = about.into();
        self
    }

    /// Shown there only.
    pub fn only_on(mut self, medium: Output) -> Self {
        self.medium = medium;
        self
    }

    /// One piece more.
    pub fn with(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }

    /// Explanation for the reader.
    pub fn note(self, note: impl Into<String>) -> Self {
        self.with(Block::Note(note.into()))
    }

    /// Running text.
    pub fn words(self, words: impl Into<String>) -> Self {
        self.with(Block::Words(words.into()))
    }

    /// Rows and columns.
    pub fn table(self, table: Table) -> Self {
        self.with(Block::Table(table))
    }

    /// Findings.
    pub fn items(self, items: Vec<Item>) -> Self {
        self.with(Block::Items(items))
    }

    /// The section if a table of it has a row: heads alone tell nothing.
    pub fn with_rows(self) -> Option<Self> {
        let has_rows = |block: &Block| matches!(block, Block::Table(table) if !table.rows.is_empty());
        self.blocks.iter().any(has_rows).then_some(self)
    }
}

impl Item {
    /// One line.
    pub fn new(line: impl Into<String>) -> Self {
        Self { lines: vec![line.into()], ..Self::default() }
    }

    /// The advice or the answer.
    pub fn then(self, then: impl Into<String>) -> Self {
        Self { then: Some(then.into()), ..self }
    }
}

impl Table {
    /// The first column is the key.
    pub fn new(columns: Vec<Column>) -> Self {
        Self { columns, keys: 1, rows: Vec::new() }
    }

    /// The first so many columns are the key.
    pub fn keyed(self, keys: usize) -> Self {
        Self { keys, ..self }
    }

    /// One row more.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<Cell> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.columns.len(), "{cells:?}");
        self.rows.push(cells);
    }

    /// Leaves out columns, keys excepted, in which no row has a figure.
    pub fn without_empty(mut self) -> Self {
        let has = |column: &usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(*column));
            *column < self.keys || cells.into_iter().any(|cell| !["", "–"].contains(&cell.text.as_str()))
        };
        let kept: Vec<usize> = (0..self.columns.len()).filter(has).collect();
        self.columns = kept.iter().map(|&column| self.columns[column].clone()).collect();
        for row in self.rows.iter_mut().filter(|row| !row.is_empty()) {
            *row = kept.iter().map(|&column| row[column].clone()).collect();
        }
        self
    }

    /// The rows that follow are of another kind.
    pub fn separate(&mut self) {
        if self.rows.last().is_some_and(|row| !row.is_empty()) {
            self.rows.push(Vec::new());
        }
    }
}

impl<R> TableOf<R> {
    /// So many rows, without columns.
    pub fn new(rows: impl IntoIterator<Item = R>) -> Self {
        let rows: Vec<R> = rows.into_iter().collect();
        let table = Table { rows: rows.iter().map(|_| Vec::new()).collect(), ..Table::new(Vec::new()) };
        Self { rows, over: String::new(), table }
    }

    /// Text over the columns from here on.
    pub fn over(self, over: impl Into<String>) -> Self {
        Self { over: over.into(), ..self }
    }

    /// One column more: its head, and its content in each row.
    pub fn column<C: Into<Cell>>(mut self, column: Column, cell: impl Fn(&R) -> C) -> Self {
        self.table.columns.push(column.over(&self.over));
        for (cells, row) in self.table.rows.iter_mut().zip(&self.rows) {
            cells.push(cell(row).into());
        }
        self
    }

    /// A column of numbers.
    pub fn number<C: Into<Cell>>(self, head: &str, cell: impl Fn(&R) -> C) -> Self {
        self.column(Column::number(head), cell)
    }

    /// A column of names.
    pub fn name<C: Into<Cell>>(self, head: &str, cell: impl Fn(&R) -> C) -> Self {
        self.column(Column::name(head), cell)
    }

    /// A column of words.
    pub fn prose<C: Into<Cell>>(self, head: &str, cell: impl Fn(&R) -> C) -> Self {
        self.column(Column::prose(head), cell)
    }

    /// The table, of which the first so many columns are the key.
    pub fn keyed(self, keys: usize) -> Table {
        self.table.keyed(keys)
    }
}

impl Column {
    /// A column of numbers.
    pub fn number(head: impl Into<String>) -> Self {
        Self { head: head.into(), ..Self::default() }
    }

    /// A column of names.
    pub fn name(head: impl Into<String>) -> Self {
        Self { head: head.into(), kind: ColumnKind::Name, ..Self::default() }
    }

    /// A column of words.
    pub fn prose(head: impl Into<String>) -> Self {
        Self { head: head.into(), kind: ColumnKind::Prose, ..Self::default() }
    }

    /// The words over it and its neighbours.
    pub fn over(mut self, over: impl Into<String>) -> Self {
        self.over = over.into();
        self
    }

    /// Both heads in one line.
    pub fn label(&self) -> String {
        [self.over.as_str(), self.head.as_str()].join(" ").trim().to_owned()
    }
}

/// Columns of numbers.
pub fn numbers<const N: usize>(heads: [&str; N]) -> Vec<Column> {
    heads.map(Column::number).into()
}

impl Cell {
    /// Text that is looked at first.
    pub fn strong(text: impl Into<String>) -> Self {
        Self::toned(text, Tone::Strong)
    }

    /// The text, set so.
    pub fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }

    /// A count that should be zero.
    pub fn broken(count: u64) -> Self {
        Self::toned(crate::units::count(count), if count > 0 { Tone::Bad } else { Tone::Faint })
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), tone: Tone::Plain }
    }
}
