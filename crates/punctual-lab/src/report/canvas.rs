//! A drawing: the few shapes that the charts are made of.

use std::fmt::Write as _;

use super::escape;
use super::scale::{Log, Upwards, short};

/// Where a text hangs on its point.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// Disc, square, triangle, diamond, cross, plus, triangle on its tip, ring, bar, hourglass: around zero, some 7 px wide.
pub(super) const MARKS: [&str; 10] = [
    "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z",
    "M-3 -3H3V3H-3z",
    "M0 -3.8L3.6 2.8H-3.6z",
    "M0 -4L4 0L0 4L-4 0z",
    "M-3.4 -3.4L3.4 3.4M3.4 -3.4L-3.4 3.4",
    "M-4 0H4M0 -4V4",
    "M0 3.8L3.6 -2.8H-3.6z",
    "M-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0zM-1.2 0a1.2 1.2 0 1 1 2.4 0a1.2 1.2 0 1 1 -2.4 0z",
    "M-4 -1.4H4V1.4H-4z",
    "M-3.4 -3.6H3.4L-3.4 3.6H3.4z",
];

/// SVG in the making. Classes are ours; texts are escaped here.
#[derive(Debug)]
pub(crate) struct Canvas {
    text: String,
}

impl Canvas {
    pub(crate) fn new(width: f64, height: f64, label: &str) -> Self {
        let label = escape(label);
        Self {
            text: format!("<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{label}\">"),
        }
    }

    /// A drawing that keeps its size, for table cells.
    pub(crate) fn fixed(width: f64, height: f64) -> Self {
        let size =
            format!("width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\"");
        Self { text: format!("<svg {size} style=\"width:{width:.0}px\" aria-hidden=\"true\">") }
    }

    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = write!(
            self.text,
            "<path class=\"{class}\" d=\"M{:.1} {:.1}L{:.1} {:.1}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// Through the points; closed if it is an area.
    pub(crate) fn path(&mut self, class: &str, points: &[(f64, f64)], closed: bool) {
        let _ = write!(self.text, "<path class=\"{class}\" d=\"");
        for (place, (x, y)) in points.iter().enumerate() {
            let _ = write!(self.text, "{}{x:.1} {y:.1}", if place == 0 { 'M' } else { 'L' });
        }
        self.text.push_str(if closed { "Z\"/>" } else { "\"/>" });
    }

    /// Many separate lines as one element.
    pub(crate) fn bars(&mut self, class: &str, bars: &[(f64, f64, f64)]) {
        let _ = write!(self.text, "<path class=\"{class}\" d=\"");
        for (x, top, bottom) in bars {
            let _ = write!(self.text, "M{x:.1} {top:.1}V{bottom:.1}");
        }
        self.text.push_str("\"/>");
    }

    pub(crate) fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), tip: &str) {
        let ((x, y), (w, h), tip) = (at, size, escape(tip));
        let _ = write!(
            self.text,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\"><title>{tip}</title></rect>"
        );
    }

    pub(crate) fn dot(&mut self, class: &str, at: (f64, f64), radius: f64, tip: &str) {
        let ((x, y), tip) = (at, escape(tip));
        let _ = write!(
            self.text,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"><title>{tip}</title></circle>"
        );
    }

    /// The mark of a look: beside its colour a second way to tell it, for people who see few colours.
    pub(crate) fn mark(&mut self, look: usize, at: (f64, f64), tip: &str) {
        let ((x, y), tip, shape) = (at, escape(tip), MARKS[look % MARKS.len()]);
        let _ = write!(
            self.text,
            "<path class=\"mark c{look}\" d=\"{shape}\" transform=\"translate({x:.1} {y:.1})\"><title>{tip}</title></path>"
        );
    }

    pub(crate) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let ((x, y), anchor, text) = (at, anchor.as_str(), escape(text));
        let _ = write!(
            self.text,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        );
    }

    /// Vertical rules at round times, labelled below.
    pub(crate) fn time_across(&mut self, scale: Log, top: f64, bottom: f64) {
        for ns in scale.ticks() {
            let x = scale.at(ns);
            self.line("rule", (x, top), (x, bottom));
            self.text("", (x, bottom + 15.0), Anchor::Middle, &short(ns));
        }
    }

    /// Horizontal rules at round times, labelled at the left.
    pub(crate) fn time_up(&mut self, scale: Log, left: f64, right: f64) {
        self.rules_up(scale, (left, right), short);
    }

    /// The same, with rules for what is infinite, and for what is nothing.
    pub(crate) fn up(&mut self, upwards: Upwards, ends: (f64, f64), label: fn(f64) -> String) {
        self.rules_up(upwards.scale, ends, label);
        let beyond = [(upwards.infinity, "∞"), (upwards.zero, "0")];
        for (y, text) in beyond.into_iter().filter_map(|(y, text)| Some((y?, text))) {
            self.rule_up(y, ends, text);
        }
    }

    fn rules_up(&mut self, scale: Log, ends: (f64, f64), label: fn(f64) -> String) {
        for value in scale.ticks() {
            self.rule_up(scale.at(value), ends, &label(value));
        }
    }

    fn rule_up(&mut self, y: f64, (left, right): (f64, f64), label: &str) {
        self.line("rule", (left, y), (right, y));
        self.text("", (left - 6.0, y + 3.8), Anchor::End, label);
    }

    /// The pattern that the class `su` fills with.
    pub(crate) fn hatch(&mut self) {
        self.text.push_str(
            "<defs><pattern id=\"hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
             <path class=\"rule\" d=\"M0 0V5\" style=\"stroke:var(--muted);stroke-width:1.6\"/></pattern></defs>",
        );
    }

    pub(crate) fn finish(self) -> String {
        self.text + "</svg>"
    }
}

/// Labels pushed apart so that none covers another, as near to their places as that allows.
pub(crate) fn spread(wanted: &[f64], apart: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut placed = wanted.to_vec();
    for pair in 1..order.len() {
        let above = placed[order[pair - 1]];
        placed[order[pair]] = placed[order[pair]].max(above + apart);
    }
    let mut limit = high;
    for &place in order.iter().rev() {
        placed[place] = placed[place].min(limit).max(low);
        limit = placed[place] - apart;
    }
    placed
}
