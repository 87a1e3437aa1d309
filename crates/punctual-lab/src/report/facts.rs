//! The words of the page: advice above; host, clock, doubts and omissions below.

use std::fmt::Write as _;

use serde_json::Value;

use super::escape;
use crate::doubt::{ALIKE_MAX, Doubt, by_advice};
use crate::summary::{Host, Summary};

pub(super) fn head(page: &mut String, summary: &Summary) {
    let host = &summary.host;
    let _ = write!(
        page,
        "<header><p class=\"brow\">Punctual · {} · {} · {}</p>",
        escape(&summary.experiment),
        escape(&summary.started.replace('T', " ").replace('Z', " UTC")),
        escape(&host_in_words(host))
    );
    match &summary.recommendation {
        Some(recommendation) => {
            let _ = write!(page, "<h1>{}</h1>", escape(&recommendation.text));
            page.push_str("<div class=\"picks\">");
            for choice in &recommendation.choices {
                let (need, name, why) = (escape(&choice.need), escape(&choice.name), escape(&choice.because));
                let _ = write!(
                    page,
                    "<div><div class=\"need\">{need}</div><div class=\"name\">{name}</div><div class=\"why\">{why}</div></div>"
                );
            }
            page.push_str("</div>");
        }
        None => {
            let _ = write!(page, "<h1>What the experiment “{}” measured</h1>", escape(&summary.experiment));
        }
    }
    page.push_str("</header>\n");
}

/// Samples that were taken elsewhere say nothing of their host, and its page nothing of this one.
fn is_unknown(host: &Host) -> bool {
    host.cpus == 0
}

fn host_in_words(host: &Host) -> String {
    if is_unknown(host) {
        return "host unknown".to_owned();
    }
    let r#virtual = if host.r#virtual { ", virtual" } else { "" };
    format!("{} · {} CPUs{} · Linux {}", host.cpu, host.cpus, r#virtual, host.kernel)
}

pub(super) fn foot(page: &mut String, summary: &Summary, doubts: &[Doubt]) {
    self::doubts(page, doubts);
    if !summary.skipped.is_empty() {
        page.push_str("<section><h2>What was not measured</h2><ul class=\"plain\">");
        for skipped in &summary.skipped {
            let (what, reason) = (escape(&skipped.what), escape(&skipped.reason));
            let _ = write!(page, "<li><b>{what}</b><span>{reason}</span></li>");
        }
        page.push_str("</ul></section>\n");
    }
    if is_unknown(&summary.host) {
        page.push_str(
            "<section><h2>The host</h2><p class=\"say\">Not known, nor its clock: these samples say neither.</p></section>\n",
        );
    } else {
        page.push_str("<section class=\"two\"><div><h2>The host</h2>");
        list(page, &serde_json::to_value(&summary.host).unwrap_or_default());
        page.push_str("</div><div><h2>The clock</h2>");
        list(page, &serde_json::to_value(&summary.clock).unwrap_or_default());
        page.push_str("</div></section>\n");
    }
    let _ = write!(
        page,
        "<footer>Made from the stored samples; {} · seed {} · started {}. A lost message counts as infinitely late. \
         A quantile is shown only if ten samples lie beyond it.</footer>",
        escape(&summary.schema),
        summary.seed,
        escape(&summary.started)
    );
}

fn doubts(page: &mut String, doubts: &[Doubt]) {
    if doubts.is_empty() {
        return;
    }
    page.push_str("<section><h2>Doubts</h2><p class=\"say\">What may be wrong with these numbers, and what to do about it.</p><ul class=\"plain\">");
    for (advice, seen) in by_advice(doubts) {
        page.push_str("<li>");
        for what in seen.iter().take(ALIKE_MAX) {
            let _ = write!(page, "<b>{}</b>", escape(what));
        }
        if seen.len() > ALIKE_MAX {
            let _ = write!(page, "<i>… and {} more like it</i>", seen.len() - ALIKE_MAX);
        }
        let _ = write!(page, "<span>{}</span></li>", escape(advice));
    }
    page.push_str("</ul></section>\n");
}

/// Facts as the summary names them.
fn list(page: &mut String, facts: &Value) {
    page.push_str("<dl>");
    for (name, value) in facts.as_object().into_iter().flatten() {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Bool(yes) => (if *yes { "yes" } else { "no" }).to_owned(),
            other => other.to_string(),
        };
        let _ = write!(page, "<dt>{}</dt><dd>{}</dd>", escape(&name.replace('_', " ")), escape(&value));
    }
    page.push_str("</dl>");
}
