//! Fairness: Jain's index and max-min fair rates.

/// Jain's index (sum x)^2 / (n sum x^2); `None` when nothing is positive.
pub fn jain(shares: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut n, mut sum, mut squares) = (0u32, 0.0, 0.0);
    for x in shares {
        n += 1;
        sum += x;
        squares += x * x;
    }
    (squares > 0.0).then(|| sum * sum / (f64::from(n) * squares))
}

/// A flow for [`max_min`], or several that are alike.
#[derive(Clone, Debug)]
pub struct Demand<'a> {
    /// Links that it crosses, as positions in the list of capacities.
    pub links: &'a [u32],
    /// The most that it can use; infinite for a greedy flow.
    pub most: f64,
    /// So many of them.
    pub flows: u32,
}

/// Max-min fair rates by progressive filling: all rates grow together until a link is full or a demand is met, which
/// freezes the flows concerned. Returns the rate of one flow per demand, exact up to rounding.
/// `capacities` and rates are in any one unit.
pub fn max_min(capacities: &[f64], demands: &[Demand<'_>]) -> Vec<f64> {
    let mut rates = vec![0.0; demands.len()];
    let mut frozen = vec![false; demands.len()];
    let mut left: Vec<f64> = capacities.to_vec();
    let mut growing = vec![0u64; capacities.len()];
    for demand in demands {
        for &link in demand.links {
            growing[link as usize] += u64::from(demand.flows);
        }
    }
    let mut remaining = demands.len();
    let mut level = 0.0;
    while remaining > 0 {
        let by_link =
            (0..left.len()).filter(|&l| growing[l] > 0).map(|l| left[l].max(0.0) / growing[l] as f64);
        let by_demand = (0..demands.len()).filter(|&d| !frozen[d]).map(|d| demands[d].most - level);
        let step = by_link.chain(by_demand).fold(f64::INFINITY, f64::min).max(0.0);
        if step.is_infinite() {
            break;
        }
        level += step;
        for (link, left) in left.iter_mut().enumerate() {
            *left -= step * growing[link] as f64;
        }
        let full = |link: u32| left[link as usize] <= 1e-9 * capacities[link as usize].max(1.0);
        let before = remaining;
        for (d, demand) in demands.iter().enumerate() {
            if !frozen[d] && (level >= demand.most * (1.0 - 1e-12) || demand.links.iter().any(|&l| full(l))) {
                frozen[d] = true;
                rates[d] = level.min(demand.most);
                remaining -= 1;
                for &link in demand.links {
                    growing[link as usize] -= u64::from(demand.flows);
                }
            }
        }
        if remaining == before {
            break;
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn jain_by_hand() {
        assert_eq!(jain([5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain([1.0, 0.0]), Some(0.5));
        assert_eq!(jain([1.0, 2.0, 3.0]), Some(36.0 / 42.0));
        assert_eq!(jain([0.0, 0.0]), None);
    }

    /// Bertsekas and Gallager's chain: flow 0 over both links, 1 and 2 on the first, 3 on the second.
    #[test]
    fn max_min_on_a_chain() {
        let flows = [
            Demand { links: &[0, 1], most: f64::INFINITY, flows: 1 },
            Demand { links: &[0], most: f64::INFINITY, flows: 2 },
            Demand { links: &[1], most: f64::INFINITY, flows: 1 },
        ];
        let rates = max_min(&[30.0, 100.0], &flows);
        assert_eq!(rates, [10.0, 10.0, 90.0]);
    }

    #[test]
    fn unused_demand_goes_to_the_others() {
        let flows = [
            Demand { links: &[0], most: 2.0, flows: 1 },
            Demand { links: &[0], most: f64::INFINITY, flows: 1 },
        ];
        assert_eq!(max_min(&[10.0], &flows), [2.0, 8.0]);
    }

    proptest! {
        /// No link overloaded, and each flow is at its demand or crosses a full link on which nobody has more.
        #[test]
        fn allocation_is_feasible_and_max_min(
            capacities in prop::collection::vec(1.0f64..100.0, 1..6),
            raw in prop::collection::vec((prop::collection::btree_set(0u32..6, 1..4), 0.1f64..200.0), 1..12),
        ) {
            let links: Vec<Vec<u32>> = raw
                .iter()
                .map(|(set, _)| {
                    let mut l: Vec<u32> = set.iter().map(|l| l % capacities.len() as u32).collect();
                    l.sort_unstable();
                    l.dedup();
                    l
                })
                .collect();
            let flows: Vec<Demand<'_>> =
                links.iter().zip(&raw).map(|(links, (_, most))| Demand { links, most: *most, flows: 1 }).collect();
            let rates = max_min(&capacities, &flows);
            let load = |l: u32| -> f64 {
                flows.iter().zip(&rates).filter(|(f, _)| f.links.contains(&l)).map(|(_, r)| r).sum()
            };
            for l in 0..capacities.len() as u32 {
                prop_assert!(load(l) <= capacities[l as usize] * (1.0 + 1e-6));
            }
            for (f, flow) in flows.iter().enumerate() {
                let satisfied = rates[f] >= flow.most * (1.0 - 1e-9);
                let blocked = flow.links.iter().any(|&l| {
                    load(l) >= capacities[l as usize] * (1.0 - 1e-6)
                        && flows.iter().zip(&rates).all(|(g, r)| !g.links.contains(&l) || *r <= rates[f] * (1.0 + 1e-6))
                });
                prop_assert!(satisfied || blocked, "flow {f} of {rates:?}");
            }
        }
    }
}
