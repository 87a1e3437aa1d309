//! Drawings from figures: lines over steps, bars in order, a staircase; each for a screen and for a phone.

use super::canvas::{Anchor, Canvas, spread};
use super::scale::{Log, Upwards, short, short_number};
use super::section::{Block, Drawing};
use crate::units::micros;

/// A line through points.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Text at its end; empty if it needs no name.
    pub name: String,
    /// Colour and mark, 0 to 9.
    pub look: usize,
    /// Thin and dashed: a bare mechanism.
    pub is_thin: bool,
    /// Step, and what the drawing is of there: ns, or a number; infinite where it is among the lost. A step without a point has no
    /// figure, and ends the line.
    pub points: Vec<(usize, f64)>,
}

/// Quantity on the vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    /// ns.
    Time,
    /// Numbers.
    Number,
}

impl Quantity {
    fn say(self, value: f64) -> String {
        match self {
            _ if value.is_infinite() => "∞".to_owned(),
            Self::Time => format!("{} µs", micros(value)),
            Self::Number => short_number(value),
        }
    }

    fn label(self) -> fn(f64) -> String {
        match self {
            Self::Time => short,
            Self::Number => short_number,
        }
    }
}

/// Size of a drawing: units of its view box, which are pixels where it is shown in full.
#[derive(Clone, Copy)]
struct Frame {
    width: f64,
    height: f64,
    /// Room for the names at the ends.
    names: f64,
}

const SCREEN: Frame = Frame { width: 1000.0, height: 440.0, names: 150.0 };
const PHONE: Frame = Frame { width: 340.0, height: 340.0, names: 104.0 };

fn both(draw: impl Fn(Frame) -> String) -> Block {
    Block::Drawing(Drawing { wide: draw(SCREEN), narrow: draw(PHONE) })
}

/// Latency over steps that have names.
pub fn lines(label: &str, steps: &[String], series: &[Series]) -> Block {
    both(|frame| line_chart(frame, (label, Quantity::Time), steps, series))
}

/// Numbers over steps that have names.
pub fn numbers(label: &str, steps: &[String], series: &[Series]) -> Block {
    both(|frame| line_chart(frame, (label, Quantity::Number), steps, series))
}

fn line_chart(
    frame: Frame,
    (label, quantity): (&str, Quantity),
    steps: &[String],
    series: &[Series],
) -> String {
    let has_names = series.iter().any(|one| !one.name.is_empty());
    let names = if has_names { frame.names } else { 14.0 };
    // Names at the ends need a line each.
    let height =
        if has_names { frame.height.max(60.0 + 13.0 * series.len() as f64) } else { frame.height * 0.68 };
    let (left, right, bottom) = (48.0, frame.width - names, height - 32.0);
    let all = series.iter().flat_map(|one| one.points.iter().map(|(_, value)| *value));
    let upwards = Upwards::covering(all, bottom, 10.0);
    let mut canvas = Canvas::new(frame.width, height, label);
    canvas.up(upwards, (left, right), quantity.label());
    let air = (right - left) * 0.05;
    let apart = (right - left - 2.0 * air) / (steps.len().max(2) - 1) as f64;
    let x = |step: usize| left + air + step as f64 * apart;
    let every = (30.0 / apart).ceil().max(1.0) as usize;
    for (step, name) in steps.iter().enumerate().step_by(every) {
        canvas.text("", (x(step), bottom + 20.0), Anchor::Middle, name);
    }
    let mut ends = Vec::new();
    for one in series {
        let thin = if one.is_thin { " thin" } else { "" };
        for part in upwards.joined(&one.points, x) {
            canvas.path(&format!("wk{thin} c{}", one.look), &part, false);
        }
        for &(step, value) in &one.points {
            let tip = format!("{} {}", one.name, quantity.say(value));
            canvas.mark(one.look, (x(step), upwards.at(value)), &tip);
        }
        let last = one.points.last().filter(|_| has_names);
        ends.extend(last.map(|&(_, value)| (one, upwards.at(value))));
    }
    let wanted: Vec<f64> = ends.iter().map(|end| end.1).collect();
    for ((one, _), y) in ends.iter().zip(spread(&wanted, 13.0, 12.0, bottom)) {
        canvas.mark(one.look, (right + 8.0, y), &one.name);
        canvas.text(&format!("lab c{}", one.look), (right + 16.0, y + 4.0), Anchor::Start, &one.name);
    }
    canvas.finish()
}

/// One bar per message, in order.
pub fn bars(label: &str, all_ns: &[u64]) -> Block {
    both(|frame| {
        let (left, right, bottom) = (48.0, frame.width - 14.0, frame.height * 0.68 - 24.0);
        let scale = Log::covering(all_ns.iter().map(|&ns| ns as f64), bottom, 10.0);
        let mut canvas = Canvas::new(frame.width, frame.height * 0.68, label);
        canvas.time_up(scale, left, right);
        let step = (right - left) / all_ns.len().max(1) as f64;
        let bar = |(place, &ns): (usize, &u64)| (left + place as f64 * step, scale.at(ns as f64), bottom);
        canvas.bars("wk c0", &all_ns.iter().enumerate().map(bar).collect::<Vec<_>>());
        canvas.finish()
    })
}

/// One step of a staircase: where it begins and ends, with the interval of its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Stair {
    /// Its name.
    pub name: String,
    /// ns.
    pub from: f64,
    /// ns.
    pub to: f64,
    /// Of the end, ns; nothing where it has none.
    pub interval: Option<[f64; 2]>,
    /// Told apart from nothing.
    pub is_found: bool,
    /// Text of its tooltip.
    pub tip: String,
}

/// Bars that begin where the one above ends, from zero on.
pub fn stairs(label: &str, stairs: &[Stair]) -> Block {
    const ROW: f64 = 30.0;
    both(|frame| {
        let (left, right) = (frame.width * 0.12 + 60.0, frame.width - 30.0);
        let bottom = 10.0 + ROW * stairs.len() as f64;
        let reach = |stair: &Stair| stair.interval.map_or(stair.to, |[_, high]| high.max(stair.to));
        let most = stairs.iter().map(reach).fold(1.0, f64::max);
        let x = |ns: f64| left + ns.max(0.0) / most * (right - left);
        let mut canvas = Canvas::new(frame.width, bottom + 26.0, label);
        let parts = if frame.width < 500.0 { 2 } else { 4 };
        for part in 0..=parts {
            let ns = most * f64::from(part) / f64::from(parts);
            canvas.line("rule", (x(ns), 6.0), (x(ns), bottom));
            canvas.text("", (x(ns), bottom + 16.0), Anchor::Middle, &format!("{} µs", micros(ns)));
        }
        for (place, stair) in stairs.iter().enumerate() {
            let top = 10.0 + ROW * place as f64;
            let (from, to) = (x(stair.from.min(stair.to)), x(stair.from.max(stair.to)));
            let class = if stair.is_found { "fill c0" } else { "fill half c7" };
            canvas.rect(class, (from, top + 5.0), ((to - from).max(1.5), ROW - 12.0), &stair.tip);
            let middle = top + ROW / 2.0 - 1.0;
            if let Some([low, high]) = stair.interval {
                canvas.line("wk", (x(low), middle), (x(high), middle));
            }
            canvas.text("name", (left - 10.0, middle + 4.0), Anchor::End, &stair.name);
        }
        canvas.finish()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a line is broken where there is no figure and where it is infinite. An infinite figure has a mark that says so, and a
    /// rule.
    #[test]
    fn a_line_is_broken_where_its_figure_is_infinite() {
        let steps: Vec<String> = (0..5).map(|step| step.to_string()).collect();
        let points = vec![(0, 5e3), (1, 6e3), (2, f64::INFINITY), (3, 7e3), (4, 8e3)];
        let series = [Series { name: "x".to_owned(), look: 0, is_thin: false, points }];
        let svg = line_chart(PHONE, ("lines", Quantity::Time), &steps, &series);
        assert_eq!(svg.matches("class=\"wk c0\"").count(), 2, "{svg}");
        assert!(svg.contains("<title>x ∞</title>") && svg.contains(">∞</text>"), "{svg}");
        let whole = [Series { points: vec![(0, 5e3), (1, 6e3)], ..series[0].clone() }];
        let svg = line_chart(PHONE, ("lines", Quantity::Time), &steps, &whole);
        assert!(!svg.contains('∞') && svg.matches("class=\"wk c0\"").count() == 1, "{svg}");
    }
}
