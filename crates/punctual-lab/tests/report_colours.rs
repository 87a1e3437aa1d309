//! Any two series of the page differ for viewers with full colour vision, for viewers who lack one kind of cone, and by their marks.

const CSS: &str = include_str!("../src/report/page.css");

/// The eye's view of linear red, green, blue: all of it, and without one kind of cone (Machado, Oliveira, Fernandes 2009).
const SIGHTS: [(&str, [[f64; 3]; 3]); 4] = [
    ("all cones", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    (
        "protanopia",
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    ),
    (
        "deuteranopia",
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    ),
    (
        "tritanopia",
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ),
];

/// Distance in CIE Lab: 2.3 is just seen side by side; this is seen across a chart.
const APART_MIN: f64 = 20.0;

/// The ten colours of a prefix, in one block of the style.
fn colours(block: &str, prefix: &str) -> Vec<[f64; 3]> {
    let colour = |place: usize| {
        let name = format!("--{prefix}{place}:#");
        let (_, rest) = block.split_once(&name).unwrap_or_else(|| panic!("no {name}"));
        let byte = |at: usize| f64::from(u8::from_str_radix(&rest[at..at + 2], 16).expect("hexadecimal"));
        [byte(0), byte(2), byte(4)].map(|value| value / 255.0)
    };
    (0..10).map(colour).collect()
}

fn linear(colour: [f64; 3]) -> [f64; 3] {
    colour.map(|c| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) })
}

fn times(matrix: &[[f64; 3]; 3], vector: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum())
}

fn lab(seen: [f64; 3]) -> [f64; 3] {
    const TO_XYZ: [[f64; 3]; 3] = [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ];
    let [x, y, z] = times(&TO_XYZ, seen.map(|c| c.clamp(0.0, 1.0)));
    let [x, y, z] = [x / 0.95047, y, z / 1.08883]
        .map(|t| if t > 216.0 / 24389.0 { t.cbrt() } else { (24389.0 / 27.0 * t + 16.0) / 116.0 });
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn apart(a: [f64; 3], b: [f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

fn luminance(colour: [f64; 3]) -> f64 {
    let [r, g, b] = linear(colour);
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// Light, then dark.
fn schemes() -> [(&'static str, &'static str); 2] {
    let (light, rest) = CSS.split_once("@media(prefers-color-scheme:dark)").expect("a dark scheme");
    let (dark, _) = rest.split_once("}}").expect("its end");
    [("light", light), ("dark", dark)]
}

#[test]
fn every_pair_of_series_is_told_apart_by_every_eye() {
    let [(_, light), (_, dark)] = schemes();
    for (what, palette) in
        [("light", colours(light, "c")), ("dark", colours(dark, "c")), ("stages", colours(light, "s"))]
    {
        for (sight, matrix) in &SIGHTS {
            for (place, &one) in palette.iter().enumerate() {
                for (other_place, &other) in palette.iter().enumerate().skip(place + 1) {
                    let distance = apart(lab(times(matrix, linear(one))), lab(times(matrix, linear(other))));
                    assert!(
                        distance >= APART_MIN,
                        "{what}, {sight}: {place} and {other_place}: {distance:.1}"
                    );
                }
            }
        }
    }
}

/// Goal: a line and its name are seen against the paper: contrast 3 as accessibility guidelines ask of graphics, 4.5 of text on
/// stages.
#[test]
fn series_stand_out_from_the_paper() {
    for (name, block) in schemes() {
        let (_, rest) = block.split_once("--paper:#").expect("a paper");
        let byte = |at: usize| f64::from(u8::from_str_radix(&rest[at..at + 2], 16).expect("hexadecimal"));
        let paper = [byte(0), byte(2), byte(4)].map(|value| value / 255.0);
        for (place, &colour) in colours(block, "c").iter().enumerate() {
            let found = contrast(colour, paper);
            assert!(found >= 3.0, "{name}: {place} against the paper: {found:.2}");
        }
    }
    let text = [23.0, 33.0, 44.0].map(|value: f64| value / 255.0);
    for (place, &stage) in colours(schemes()[0].1, "s").iter().enumerate() {
        assert!(contrast(stage, text) >= 4.5, "text on stage {place}");
    }
}

/// Goal: viewers who see no colour at all have the marks. Method: the shapes as they are drawn.
#[test]
fn marks_are_a_second_cue() {
    let canvas = include_str!("../src/report/canvas.rs");
    let (_, rest) = canvas.split_once("const MARKS").expect("marks");
    let (marks, _) = rest.split_once("];\n").expect("their end");
    let mut shapes: Vec<&str> = marks.lines().map(str::trim).filter(|line| line.starts_with('"')).collect();
    assert_eq!(shapes.len(), 10);
    shapes.sort_unstable();
    shapes.dedup();
    assert_eq!(shapes.len(), 10, "two series have one mark");
    for drawn in [
        include_str!("../src/report/charts.rs"),
        include_str!("../src/report/ladder.rs"),
        include_str!("../src/report/draw.rs"),
    ] {
        assert!(drawn.contains(".mark("), "a chart without marks");
    }
}
