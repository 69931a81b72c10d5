//! The picture as one self-contained page: no network, light and dark, zoom down to single slots.

use super::{COLOURS, Timeline, ink};

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

pub fn render(timeline: &Timeline) -> String {
    let mut data = serde_json::to_value(timeline).expect("a timeline has string keys only");
    let cpus: Vec<u32> = timeline.cpus.iter().collect();
    data["cpu_list"] = cpus.clone().into();
    data["present"] = serde_json::to_value(timeline.present()).expect("numbers");
    data["colours"] = COLOURS.to_vec().into();
    data["inks"] = (0..COLOURS.len()).map(ink).collect::<Vec<_>>().into();
    for (value, segment) in data["segments"].as_array_mut().into_iter().flatten().zip(&timeline.segments) {
        let rows: Vec<usize> = cpus
            .iter()
            .enumerate()
            .filter(|(_, cpu)| segment.cpus.contains(**cpu))
            .map(|(row, _)| row)
            .collect();
        value["rows"] = rows.into();
        value["program"] = timeline.index(&segment.app).into();
        value["band"] = serde_json::to_value(segment.band()).expect("numbers");
    }
    // Inside a script element only `<` could end it or begin a comment.
    let data = data.to_string().replace('<', "\\u003c");
    // Data last: no placeholder is ever looked for inside what a program's name brought in.
    TEMPLATE
        .replace("/*STYLE*/", STYLE)
        .replace("/*SCRIPT*/", SCRIPT)
        .replace("{{TITLE}}", &escape(&timeline.title).replace("{{", "{&#123;"))
        .replace("{{DATA}}", &data)
}

/// Text as it may stand in HTML and SVG, also within attributes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
