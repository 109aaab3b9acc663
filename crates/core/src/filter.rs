//! Filters that several schemes share.

/// Exponentially weighted moving average: `value <- weight * sample + (1 - weight) * value`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ewma {
    weight: f64,
    value: Option<f64>,
}

impl Ewma {
    /// An empty average; `weight` in (0, 1] is the share of a new sample.
    pub const fn new(weight: f64) -> Self {
        Self { weight, value: None }
    }

    /// Takes a sample. The first sets the average.
    pub fn add(&mut self, sample: f64) -> f64 {
        let value = match self.value {
            None => sample,
            Some(old) => self.weight * sample + (1.0 - self.weight) * old,
        };
        self.value = Some(value);
        value
    }

    /// The average, when there has been a sample.
    pub const fn get(&self) -> Option<f64> {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ewma_follows_its_definition() {
        let mut e = Ewma::new(0.4);
        assert_eq!(e.get(), None);
        assert_eq!(e.add(10.0), 10.0);
        assert!((e.add(20.0) - 14.0).abs() < 1e-12);
    }
}
