//! Percentiles, medians, and the table they are printed in.

/// Nanoseconds at percentile `p` (0..=100) of sorted `samples`: the nearest rank. Zero when there are none.
pub fn percentile(samples: &[u64], p: f64) -> u64 {
    let rank = (p / 100.0 * samples.len() as f64).ceil() as usize;
    samples
        .get(rank.saturating_sub(1))
        .or(samples.last())
        .copied()
        .unwrap_or_default()
}

/// Nanoseconds as milliseconds.
pub fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// The middle one; of two the lower.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len().saturating_sub(1) / 2;
    values.get(middle).copied().unwrap_or(f64::NAN)
}

/// A rate as people read it: `54 300`.
pub fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A Markdown table.
#[derive(Debug)]
pub struct Table {
    columns: usize,
    text: String,
}

impl Table {
    /// An empty table under `head`.
    pub fn new(head: &[&str]) -> Self {
        let mut text = format!("| {} |\n|", head.join(" | "));
        for index in 0..head.len() {
            text.push_str(if index == 0 { "---|" } else { "---:|" });
        }
        text.push('\n');
        Self {
            columns: head.len(),
            text,
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: &[String]) {
        debug_assert_eq!(cells.len(), self.columns, "a row has as many cells as the head");
        for cell in cells {
            self.text.push_str("| ");
            self.text.push_str(cell);
            self.text.push(' ');
        }
        self.text.push_str("|\n");
    }

    /// Prints it under `title`.
    pub fn print(&self, title: &str) {
        println!("\n### {title}\n\n{}", self.text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let samples: Vec<u64> = (1..=100).collect();
        assert_eq!((percentile(&samples, 50.0), percentile(&samples, 99.0)), (50, 99));
        assert_eq!(
            (
                percentile(&samples, 100.0),
                percentile(&[], 50.0),
                percentile(&[7], 1.0)
            ),
            (100, 0, 7)
        );
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!(
            [count(0.4), count(999.0), count(1000.0), count(1_234_567.0)],
            ["0", "999", "1 000", "1 234 567"]
        );
    }

    #[test]
    fn the_median_is_the_middle() {
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
