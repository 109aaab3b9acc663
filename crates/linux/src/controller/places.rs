//! Where hosts are in a list, by their numbers.

/// The places of hosts in a list. Numbers without gaps cost one look into memory, others a search.
#[derive(Default)]
pub(super) struct Places(Vec<(u32, u32)>);

impl Places {
    /// The place of the host with this number.
    pub(super) fn get(&self, number: u32) -> Option<usize> {
        let Self(sorted) = self;
        let guess = number.wrapping_sub(sorted.first()?.0) as usize;
        let found = match sorted.get(guess) {
            Some((there, _)) if *there == number => guess,
            _ => sorted.binary_search_by_key(&number, |(number, _)| *number).ok()?,
        };
        Some(sorted[found].1 as usize)
    }
}

impl FromIterator<u32> for Places {
    /// Of the numbers in the list's order.
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut sorted: Vec<(u32, u32)> = numbers.into_iter().zip(0..).collect();
        sorted.sort_unstable();
        Self(sorted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_found_where_it_is_in_the_list() {
        for list in [&[][..], &[7], &[1, 2, 3, 4], &[4, 9, 1, 0, u32::MAX, 2], &[u32::MAX, 5, 6, 8]] {
            let places: Places = list.iter().copied().collect();
            for number in (0..12).chain([u32::MAX - 1, u32::MAX]) {
                let there = list.iter().position(|of| *of == number);
                assert_eq!(places.get(number), there, "{number} in {list:?}");
            }
        }
    }
}
