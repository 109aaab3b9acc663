//! Something for each of many nodes.

use crate::id::NodeId;

/// A map whose keys are nodes: a list with a place for every node, so that looking one up costs the same for any number of them.
#[derive(Clone, Debug)]
pub struct ByNode<T> {
    places: Vec<Option<T>>,
    len: usize,
}

impl<T> Default for ByNode<T> {
    fn default() -> Self {
        Self { places: Vec::new(), len: 0 }
    }
}

impl<T> ByNode<T> {
    /// Entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// There is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// That of `node`.
    pub fn get(&self, node: NodeId) -> Option<&T> {
        self.places.get(node.index())?.as_ref()
    }

    /// That of `node`, to change it.
    pub fn get_mut(&mut self, node: NodeId) -> Option<&mut T> {
        self.places.get_mut(node.index())?.as_mut()
    }

    /// There is one of `node`.
    pub fn has(&self, node: NodeId) -> bool {
        self.get(node).is_some()
    }

    /// Sets that of `node`; the one before.
    pub fn insert(&mut self, node: NodeId, value: T) -> Option<T> {
        if self.places.len() <= node.index() {
            self.places.resize_with(node.index() + 1, || None);
        }
        let before = self.places[node.index()].replace(value);
        self.len += usize::from(before.is_none());
        before
    }

    /// Takes that of `node` away.
    pub fn remove(&mut self, node: NodeId) -> Option<T> {
        let before = self.places.get_mut(node.index())?.take();
        self.len -= usize::from(before.is_some());
        before
    }

    /// All, in the order of their nodes.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &T)> {
        (0..).zip(&self.places).filter_map(|(node, value)| Some((NodeId(node), value.as_ref()?)))
    }
}

impl<T> FromIterator<(NodeId, T)> for ByNode<T> {
    fn from_iter<I: IntoIterator<Item = (NodeId, T)>>(all: I) -> Self {
        let mut map = Self::default();
        for (node, value) in all {
            map.insert(node, value);
        }
        map
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_map_that_an_ordered_one_is(steps in prop::collection::vec((0u32..20, prop::option::of(0u8..100)), 0..200)) {
            let (mut map, mut other) = (ByNode::default(), BTreeMap::new());
            for (node, value) in steps {
                let node = NodeId(node);
                match value {
                    Some(value) => prop_assert_eq!(map.insert(node, value), other.insert(node, value)),
                    None => prop_assert_eq!(map.remove(node), other.remove(&node)),
                }
                prop_assert_eq!((map.len(), map.is_empty()), (other.len(), other.is_empty()));
                for node in (0..25).map(NodeId) {
                    prop_assert_eq!(map.get(node), other.get(&node));
                    prop_assert_eq!(map.get_mut(node), other.get_mut(&node));
                    prop_assert_eq!(map.has(node), other.contains_key(&node));
                }
                prop_assert!(map.iter().eq(other.iter().map(|(node, value)| (*node, value))));
            }
            let again: ByNode<u8> = other.iter().map(|(node, value)| (*node, *value)).collect();
            prop_assert!(again.iter().eq(map.iter()));
        }
    }
}
