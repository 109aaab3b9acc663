//! Tables of numbers. On a screen they scroll under their first column, which stays; on paper a table wider than the
//! page continues in blocks of columns, one below the other.

use std::ops::Range;

use maud::{Markup, html};

use crate::report::svg::text_width;

/// Size of the text of printed tables in CSS pixels: 8 pt, as in `page.css`.
const PRINT_SIZE: f64 = 8.0 / 0.75;
/// What fits between the margins of a printed page in CSS pixels: 180 mm of A4, less what fonts may differ by.
const PRINT_WIDTH: f64 = 640.0;
/// Between two printed columns, in CSS pixels.
const PRINT_GAP: f64 = 10.0;
/// Longer names of rows wrap, in CSS pixels.
const PRINT_NAME: f64 = 190.0;

/// Named rows of numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Grid {
    /// Head of the column of names.
    pub(super) corner: String,
    /// Heads of the other columns.
    pub(super) head: Vec<String>,
    /// Name and cells of each row.
    pub(super) rows: Vec<(String, Vec<String>)>,
}

impl Grid {
    /// The table, called `name` for those who hear it.
    pub(super) fn markup(&self, name: &str) -> Markup {
        let blocks = self.blocks();
        let wide = blocks.len() > 1;
        html! {
            div.scroll.wide[wide] tabindex=[wide.then_some("0")] role=[wide.then_some("region")]
                aria-label=[wide.then_some(name)] { (self.table(0..self.head.len())) }
            @if wide {
                div.blocks { @for block in blocks { (self.table(block)) } }
            }
        }
    }

    fn table(&self, columns: Range<usize>) -> Markup {
        html! {
            table.grid {
                thead { tr {
                    th scope="col" { (self.corner) }
                    @for head in &self.head[columns.clone()] { th.number scope="col" { (head) } }
                } }
                tbody {
                    @for (name, cells) in &self.rows {
                        tr {
                            th scope="row" { (name) }
                            @for cell in &cells[columns.clone()] { td.number { (cell) } }
                        }
                    }
                }
            }
        }
    }

    /// The columns that fit beside the names on a page, block by block.
    fn blocks(&self) -> Vec<Range<usize>> {
        let width = |text: &str| text_width(text, PRINT_SIZE);
        let longest_word = |text: &str| text.split(' ').map(width).fold(0.0, f64::max);
        let names = self.rows.iter().map(|(name, _)| name).chain([&self.corner]);
        let names = names.map(|name| width(name).min(PRINT_NAME).max(longest_word(name))).fold(0.0, f64::max);
        let mut blocks: Vec<Range<usize>> = Vec::new();
        let mut filled = f64::INFINITY;
        for (column, head) in self.head.iter().enumerate() {
            let cells = self.rows.iter().map(|(_, cells)| width(&cells[column]));
            // Heads wrap into three lines or so.
            let own = cells.fold(longest_word(head).max(width(head) / 3.0), f64::max) + PRINT_GAP;
            match blocks.last_mut().filter(|_| filled + own <= PRINT_WIDTH) {
                Some(block) => block.end = column + 1,
                None => {
                    blocks.push(column..column + 1);
                    filled = names + PRINT_GAP;
                }
            }
            filled += own;
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(columns: usize) -> Grid {
        Grid {
            corner: "Metric".to_owned(),
            head: (0..columns).map(|n| format!("variant{n}")).collect(),
            rows: vec![("Throughput".to_owned(), (0..columns).map(|n| format!("{n}.25 ±0.5")).collect())],
        }
    }

    #[test]
    fn a_table_that_fits_a_page_is_there_once() {
        let page = grid(4).markup("Variants").into_string();
        assert_eq!(page.matches("<table").count(), 1);
        assert!(!page.contains("blocks") && page.contains("<th scope=\"row\">Throughput</th>"));
    }

    /// Every column is in one block; each block has the names of the rows; no block is wider than the page.
    #[test]
    fn a_wider_one_prints_in_blocks_of_its_columns() {
        let grid = grid(40);
        let blocks = grid.blocks();
        assert!(blocks.len() > 2, "{blocks:?}");
        assert_eq!(blocks.iter().cloned().flatten().collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
        let page = grid.markup("Variants").into_string();
        let (screen, print) = page.split_once("<div class=\"blocks\">").unwrap();
        assert!(
            screen.contains("class=\"scroll wide\" tabindex=\"0\" role=\"region\" aria-label=\"Variants\"")
        );
        for text in ["variant0<", "variant39<", "39.25 ±0.5"] {
            assert_eq!((screen.matches(text).count(), print.matches(text).count()), (1, 1), "{text}");
        }
        assert_eq!(print.matches(">Throughput</th>").count(), blocks.len());
    }

    #[test]
    fn a_column_wider_than_the_page_has_a_block_of_its_own() {
        let mut grid = grid(3);
        grid.rows[0].1[1] = "x".repeat(500);
        assert_eq!(grid.blocks(), [0..1, 1..2, 2..3]);
        assert!(Grid::default().blocks().is_empty());
    }
}
