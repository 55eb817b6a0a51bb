//! Sets of completion indexes, written as `1,3-5,7`.

use std::fmt;

/// Intervals with both ends included, in order and apart from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i64, i64)>);

impl Indexes {
    /// Reads the written form; indexes from `completions` on are left out, what is unreadable too.
    pub(super) fn parse(text: &str, completions: i64) -> Self {
        let mut indexes = Self::default();
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<i64>(), last.parse::<i64>()) else { continue };
            if first < completions {
                indexes.insert(first, last.min(completions - 1));
            }
        }
        indexes
    }

    pub(super) fn of(numbers: impl IntoIterator<Item = i64>) -> Self {
        let mut indexes = Self::default();
        for number in numbers {
            indexes.insert(number, number);
        }
        indexes
    }

    fn insert(&mut self, mut first: i64, mut last: i64) {
        // Intervals that touch or overlap the new one become part of it.
        let start = self.0.partition_point(|(_, l)| *l + 1 < first);
        let end = self.0.partition_point(|(f, _)| *f <= last + 1);
        if start < end {
            first = first.min(self.0[start].0);
            last = last.max(self.0[end - 1].1);
        }
        self.0.splice(start..end, [(first, last)]);
    }

    #[must_use]
    pub(super) fn with(&self, other: &Self) -> Self {
        let mut all = self.clone();
        for (first, last) in &other.0 {
            all.insert(*first, *last);
        }
        all
    }

    pub(super) fn has(&self, index: i64) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    pub(super) fn len(&self) -> i64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// How many indexes are in both sets.
    pub(super) fn common(&self, other: &Self) -> i64 {
        let (mut common, mut others) = (0, other.0.iter().peekable());
        for (first, last) in &self.0 {
            while let Some((c, d)) = others.peek() {
                common += (last.min(d) - first.max(c) + 1).max(0);
                // What reaches beyond this interval may meet the next one as well.
                if d > last {
                    break;
                }
                others.next();
            }
        }
        common
    }

    /// The first `count` indexes below `completions` that are not in the set.
    pub(super) fn gaps(&self, count: usize, completions: i64) -> Vec<i64> {
        let mut gaps = Vec::new();
        let mut next = 0;
        for (first, last) in self.0.iter().copied().chain([(completions, completions)]) {
            gaps.extend((next..first.min(completions)).take(count - gaps.len()));
            next = next.max(last + 1);
        }
        gaps
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_with_ranges() {
        let check = |numbers: &[i64], text: &str| {
            let indexes = Indexes::of(numbers.iter().copied());
            assert_eq!(indexes.to_string(), text);
            assert_eq!(Indexes::parse(text, 100), indexes);
            assert_eq!(indexes.len(), numbers.len() as i64);
        };
        check(&[], "");
        check(&[3], "3");
        check(&[0, 1], "0,1");
        check(&[5, 3, 4, 9], "3-5,9");
        check(&[0, 2, 1, 4, 6, 5], "0-2,4-6");
    }

    #[test]
    fn reading_cuts_at_completions_and_skips_nonsense() {
        assert_eq!(Indexes::parse("0,x,2-9,12", 5).to_string(), "0,2-4");
    }

    #[test]
    fn gaps_are_what_is_left() {
        let indexes = Indexes::parse("0,2-3,6", 10);
        assert_eq!(indexes.gaps(3, 10), [1, 4, 5]);
        assert_eq!(indexes.gaps(9, 10), [1, 4, 5, 7, 8, 9]);
        assert_eq!(indexes.gaps(9, 5), [1, 4]);
        assert_eq!(Indexes::default().gaps(2, 10), [0, 1]);
    }

    #[test]
    fn common_and_membership() {
        let indexes = Indexes::parse("1-4,8", 10);
        assert_eq!(indexes.common(&Indexes::parse("0-2,4,8-9", 10)), 4);
        assert!(indexes.has(3) && indexes.has(8) && !indexes.has(0) && !indexes.has(5) && !indexes.has(9));
    }
}
