//! Ratios, and the table they end in.

/// Turns of each comparison: many short ones, so that a burst of other work spoils a few and not the median.
pub const ROUNDS: usize = 21;

/// What a measured ratio or number must keep to.
#[derive(Clone, Copy)]
pub enum Bar {
    AtMost(f64),
    AtLeast(f64),
    /// Shown for comparison only.
    None,
}

/// One side of a comparison and its reference, a number for each round.
pub struct Pair<'a> {
    pub ours: &'a [f64],
    pub reference: &'a [f64],
    /// What the two are numbers of, shown beside the ratio.
    pub unit: &'static str,
}

#[derive(Default)]
pub struct Table(Vec<Row>);

struct Row {
    name: String,
    measured: f64,
    least: f64,
    most: f64,
    bar: Bar,
    detail: String,
}

impl Table {
    /// The ratio of each round: neighbours in time share the machine's moods.
    pub fn ratio(&mut self, name: impl Into<String>, pair: Pair<'_>, bar: Bar) {
        let ratios: Vec<f64> = pair.ours.iter().zip(pair.reference).map(|(ours, reference)| ours / reference).collect();
        let detail = format!("{} / {} {}", short(median(pair.ours)), short(median(pair.reference)), pair.unit);
        self.row(name.into(), &ratios, bar, detail);
    }

    /// What one takes more than the other.
    pub fn difference(&mut self, name: impl Into<String>, pair: Pair<'_>, bar: Bar) {
        let more: Vec<f64> = pair.ours.iter().zip(pair.reference).map(|(ours, reference)| ours - reference).collect();
        let detail = format!("{} - {} {}", short(median(pair.ours)), short(median(pair.reference)), pair.unit);
        self.row(name.into(), &more, bar, detail);
    }

    /// A number that is a bar by itself.
    pub fn value(&mut self, name: impl Into<String>, value: f64, unit: &str, bar: Bar) {
        self.row(name.into(), &[value], bar, unit.to_owned());
    }

    fn row(&mut self, name: String, values: &[f64], bar: Bar, detail: String) {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let row = Row { name, measured: median(values), least, most, bar, detail };
        eprintln!("  {}", row.line(0));
        self.0.push(row);
    }

    pub fn print(&self) {
        let width = self.0.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        println!("{:width$} | measured | spread           | bar     | verdict | ours / reference", "bar");
        println!("{:-<width$}-|----------|------------------|---------|---------|-----------------", "");
        for row in &self.0 {
            println!("{}", row.line(width));
        }
        let over = self.0.iter().filter(|row| row.verdict() == "OVER").count();
        let bars = self.0.iter().filter(|row| !matches!(row.bar, Bar::None)).count();
        println!("\n{} of {bars} bars kept; rows without a bar are for comparison.", bars - over);
    }
}

impl Row {
    fn verdict(&self) -> &'static str {
        match self.bar {
            Bar::AtMost(bar) if self.measured <= bar => "ok",
            Bar::AtLeast(bar) if self.measured >= bar => "ok",
            Bar::None => "",
            _ => "OVER",
        }
    }

    fn line(&self, width: usize) -> String {
        let bar = match self.bar {
            Bar::AtMost(bar) => format!("<= {}", short(bar)),
            Bar::AtLeast(bar) => format!(">= {}", short(bar)),
            Bar::None => String::new(),
        };
        let spread = if self.least == self.most {
            String::new()
        } else {
            format!("{}..{}", short(self.least), short(self.most))
        };
        let (name, measured, verdict, detail) = (&self.name, short(self.measured), self.verdict(), &self.detail);
        format!("{name:width$} | {measured:>8} | {spread:16} | {bar:7} | {verdict:7} | {detail}")
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Three digits that matter.
fn short(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
