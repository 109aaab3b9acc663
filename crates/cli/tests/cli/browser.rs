//! The report in a browser: what a reader sees on screens of several widths, in the dark, and on paper.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::program::{Scratch, ended};

/// Variants of the study: more columns than a page has room for.
const VARIANTS: usize = 18;

/// Variants that differ by the rate of the link, so that each column has its own numbers; one claim of each outcome that a
/// file can bring about; a figure for each claim but one.
fn scenario() -> String {
    let mut text = r#"version = 1
name = "wide"
title = "Many variants of one link"
description = "Two flows share a link whose rate differs between the variants."

[run]
duration = "2s"
warm-up = "500ms"
trials = 2

[network]
builder = "dumbbell"
left = 2
right = 2

[network.access]
rate = "100mbit"
delay = "uniform(1ms, 3ms)"

[network.bottleneck]
rate = "10mbit"
delay = "2ms"
queue = "40pkt"

[[flows]]
name = "bulk"
from = "left"
to = "right"
start = "uniform(0s, 100ms)"

[[sweeps]]
name = "count"
title = "Flows"
key = "flows.bulk.count"
values = [1, 2]

[[figures]]
id = "throughput"
title = "Throughput over the number of flows"
kind = "sweep"
sweep = "count"
y = "throughput"

[[figures]]
id = "queue"
title = "Queue of the shared link"
source = "Fig. 2"
kind = "series"
y = "queue"

[[claims]]
id = "busy"
text = "The link is used"
metric = "throughput"
variant = "v1"
low = 1.0
because = "The link of v1 carries 6 Mbit/s, of which slow start leaves more than a sixth even to a single flow of two seconds"

[[claims]]
id = "fast"
text = "The flows exceed what the link can carry"
metric = "throughput"
variant = "v2"
low = 1000.0
source = "beyond any paper"

[[claims]]
id = "queued"
text = "The queue is never empty"
metric = "queue"
variant = "v1"
low = 0.5
paper = "20 packets or more"
source = "Fig. 2, Sect. 5"
"#
    .to_owned();
    for number in 0..VARIANTS {
        text += &format!(
            "\n[[compare]]\nname = \"v{number}\"\ntitle = \"Variant{number}/link-of-{}-Mbit\"\n\
             set = {{ \"network.bottleneck.rate\" = \"{}mbit\" }}\n",
            5 + number,
            5 + number
        );
    }
    text
}

fn report(scratch: &Scratch) -> String {
    scratch.write("wide.toml", scenario());
    scratch.run(&["run", "wide.toml", "--out", "out"]).expect(1);
    String::from_utf8(scratch.files("out")[Path::new("report.html")].clone()).expect("UTF-8")
}

/// Chromium on a page of the scratch folder; what it prints.
fn chromium(scratch: &Scratch, page: &str, options: &[&str]) -> String {
    let mut command = Command::new("chromium");
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ]);
    command.arg(format!("--user-data-dir={}", scratch.path("profile").display())).args(options);
    command.arg(format!("file://{}", scratch.path(page).display()));
    ended(command).expect(0).stdout
}

fn without_space(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Every cell of the tables of numbers and of claims is on paper, whether it is folded on a screen or not.
#[test]
#[ignore = "needs chromium and pdftotext; `bash ci.sh report` runs it"]
fn a_printed_report_keeps_every_column() {
    let scratch = Scratch::new("printed");
    let page = report(&scratch);
    let pdf = format!("--print-to-pdf={}", scratch.path("report.pdf").display());
    chromium(&scratch, "out/report.html", &["--no-pdf-header-footer", &pdf]);
    let mut pdftotext = Command::new("pdftotext");
    pdftotext.arg("-raw").arg(scratch.path("report.pdf")).arg("-");
    let printed = without_space(&ended(pdftotext).expect(0).stdout);
    let (_, rest) = page.split_once("<section id=\"section:claims\">").expect("claims");
    let (tables, _) = rest.split_once("<section id=\"section:how\">").expect("a summary");
    let mut wanted: BTreeMap<String, usize> = BTreeMap::new();
    for element in tables.split(['<', '\n']).filter(|part| part.starts_with("t") && part.contains('>')) {
        let (_, text) = element.split_once('>').expect("the end of a tag");
        let text =
            text.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
        if !text.is_empty() {
            *wanted.entry(without_space(&text)).or_default() += 1;
        }
    }
    for number in 0..VARIANTS {
        let title = format!("Variant{number}/link-of-{}-Mbit", 5 + number);
        assert!(wanted.contains_key(&title) && printed.contains(&title), "{title} is lost");
    }
    assert!(wanted.len() > 10 * VARIANTS, "{wanted:?}");
    let lost: Vec<&String> = wanted.keys().filter(|cell| !printed.contains(*cell)).collect();
    assert!(lost.is_empty(), "not on paper: {lost:?}");
}

/// Looks at the page in a frame of a given width. All folds are opened, as a reader may.
const LOOK: &str = r#"
function look() {
  const frame = document.getElementById("frame"), page = frame.contentDocument, view = frame.contentWindow;
  page.querySelectorAll("details").forEach(fold => fold.open = true);
  const width = page.documentElement.clientWidth, found = { width, overflow: [], small: [], faint: [], scrollers: 0, stuck: 0 };
  const name = e => e.tagName + "." + (e.getAttribute("class") || "") + " " + e.textContent.trim().slice(0, 40);
  found.scroll = page.documentElement.scrollWidth;
  const light = text => text.match(/[\d.]+/g).slice(0, 3).map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = light(view.getComputedStyle(page.body).backgroundColor);
  found.ground = ground;
  for (const e of page.querySelectorAll("body *")) {
    const box = e.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    if (!e.closest(".scroll, pre") && (box.right > width + 0.5 || box.left < -0.5)) found.overflow.push(name(e));
    const own = [...e.childNodes].some(node => node.nodeType == 3 && node.textContent.trim());
    if (!own || e.closest("title")) continue;
    const svg = e.closest("svg"), style = view.getComputedStyle(e);
    const size = svg ? parseFloat(e.getAttribute("font-size")) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width
                     : parseFloat(style.fontSize);
    if (size < 9) found.small.push(size + " " + name(e));
    const own_light = light(svg ? style.fill : style.color);
    const contrast = (Math.max(own_light, ground) + 0.05) / (Math.min(own_light, ground) + 0.05);
    if (contrast < 4.5) found.faint.push(contrast.toFixed(2) + " " + name(e));
  }
  for (const scroller of page.querySelectorAll(".scroll:has(.grid)")) {
    if (scroller.scrollWidth <= scroller.clientWidth) continue;
    found.scrollers += 1;
    scroller.scrollLeft = 150;
    const first = scroller.querySelector("tbody th");
    if (first && Math.abs(first.getBoundingClientRect().left - scroller.getBoundingClientRect().left) < 1) found.stuck += 1;
  }
  document.body.innerHTML = "<pre>" + JSON.stringify(found).replace(/&/g, "&amp;").replace(/</g, "&lt;") + "</pre>";
}
"#;

fn seen(scratch: &Scratch, page: &str, width: u32, dark: bool) -> Value {
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    let frame = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><body><script>{LOOK}</script>\
         <iframe id=\"frame\" width=\"{width}\" height=\"900\" onload=\"look()\" srcdoc=\"{page}\"></iframe>"
    );
    scratch.write("frame.html", frame);
    let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!dark));
    let dom = chromium(scratch, "frame.html", &["--window-size=1700,1000", &scheme, "--dump-dom"]);
    let found = dom.split("<pre>").nth(1).and_then(|rest| rest.split("</pre>").next()).expect("a look");
    let found = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&found).unwrap_or_else(|e| panic!("{e} in {found}"))
}

/// From a telephone to a wide screen, light and dark: nothing is wider than the screen but what scrolls by itself, the first
/// column of what scrolls stays, no text is smaller than 9 pixels, and all text has a contrast of 4.5.
#[test]
#[ignore = "needs chromium and pdftotext; `bash ci.sh report` runs it"]
fn a_report_is_readable_on_every_screen() {
    let scratch = Scratch::new("screens");
    let page = report(&scratch);
    for (width, dark) in [(380, false), (380, true), (1000, false), (1600, true)] {
        let found = seen(&scratch, &page, width, dark);
        assert_eq!((&found["width"], &found["scroll"]), (&width.into(), &width.into()), "{found:#}");
        for fault in ["overflow", "small", "faint"] {
            assert_eq!(found[fault], Value::Array(Vec::new()), "{fault} at {width} pixels, dark: {dark}");
        }
        let ground = found["ground"].as_f64().expect("a number");
        assert!(if dark { ground < 0.05 } else { ground > 0.9 }, "{ground}");
        // The table of variants, and that of the sweep.
        assert!(found["scrollers"].as_u64().expect("a number") >= 2, "{found:#}");
        assert_eq!(found["scrollers"], found["stuck"], "{found:#}");
    }
}
