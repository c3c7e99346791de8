//! Rows that are measured in turns, and the table they end in.

use std::{iter, time::Instant};

/// Turns of every row: many short ones, so that a burst of other work spoils a few and not the median.
const ROUNDS: usize = 101;
/// How often a row runs in its turn.
const TURN: u32 = 2_000;

/// Something a request pays for.
pub struct Row {
    pub name: &'static str,
    pub most_allocations: u64,
    pub most_nanoseconds: f64,
    /// Does it once.
    pub run: Box<dyn FnMut()>,
}

impl Row {
    fn nanoseconds(&mut self) -> f64 {
        let since = Instant::now();
        (0..TURN).for_each(|_| (self.run)());
        since.elapsed().as_nanos() as f64 / f64::from(TURN)
    }

    fn allocations(&mut self) -> u64 {
        allocation_counter::measure(|| (self.run)()).count_total
    }
}

/// Measures the rows and prints them.
pub fn print(mut rows: Vec<Row>) {
    // The first turn warms up.
    rows.iter_mut().for_each(|row| _ = row.nanoseconds());
    let mut turns = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        iter::zip(&mut rows, &mut turns).for_each(|(row, turns)| turns.push(row.nanoseconds()));
    }
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    println!("{:width$} | allocations | bar  | nanoseconds | fastest | bar     | verdict", "for one request");
    println!("{:-<width$}-|-------------|------|-------------|---------|---------|--------", "");
    for (row, turns) in iter::zip(&mut rows, &mut turns) {
        turns.sort_by(f64::total_cmp);
        let (fastest, median) = (turns.first().unwrap(), turns.get(ROUNDS / 2).unwrap());
        let allocations = row.allocations();
        let kept = allocations <= row.most_allocations && *median <= row.most_nanoseconds;
        println!(
            "{:width$} | {allocations:>11} | <= {} | {median:>11.0} | {fastest:>7.0} | <= {:<4.0} | {}",
            row.name,
            row.most_allocations,
            row.most_nanoseconds,
            if kept { "ok" } else { "OVER" }
        );
    }
}
