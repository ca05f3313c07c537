//! Counters whose names are the kernel's or a driver's, kept in its order.

use std::borrow::Cow;
use std::collections::BTreeMap;

use educe::Educe;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

/// Name → value. Reading again changes the values in place; a name is only written if the kernel changed it.
#[derive(Debug, Educe, PartialEq, Eq)]
#[educe(Clone)]
pub struct Named<T> {
    names: Vec<String>,
    values: Vec<T>,
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        let (names, values) = (Vec::new(), Vec::new());
        Self { names, values }
    }
}

impl<T> Named<T> {
    /// In the kernel's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.names.iter().map(String::as_str).zip(&self.values)
    }

    /// `None` if there is no such name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.iter()
            .find_map(|(known, value)| (known == name).then_some(value))
    }

    /// Begins to put a new reading in place of this one.
    pub fn renew(&mut self) -> Renewal<'_, T> {
        Renewal { named: self, at: 0 }
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<T: JsonSchema> JsonSchema for Named<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Named_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, T>::json_schema(generator)
    }
}

/// A reading under way; what was not put again is gone at its end.
#[derive(Debug)]
pub struct Renewal<'n, T> {
    named: &'n mut Named<T>,
    at: usize,
}

impl<T: Default> Renewal<'_, T> {
    /// The name is `parts` together.
    pub fn put(&mut self, parts: &[&str], value: T) {
        *self.place(parts) = value;
    }

    /// Where the value belongs: the last one of this name if it stood there, else the default.
    pub fn place(&mut self, parts: &[&str]) -> &mut T {
        let Named { names, values } = &mut *self.named;
        let same = |known: &str| {
            let rest = parts
                .iter()
                .try_fold(known, |rest, part| rest.strip_prefix(part));
            rest == Some("")
        };
        let at = self.at;
        self.at += 1;
        match names.get_mut(at) {
            Some(known) if same(known) => {}
            Some(known) => {
                *known = parts.concat();
                values[at] = T::default();
            }
            None => {
                names.push(parts.concat());
                values.push(T::default());
            }
        }
        &mut values[at]
    }
}

impl<T> Drop for Renewal<'_, T> {
    fn drop(&mut self) {
        self.named.names.truncate(self.at);
        self.named.values.truncate(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_comes_or_goes_takes_its_value_along() {
        let mut named = Named::default();
        let mut fill = |pairs: &[(&str, u64)]| {
            let mut renewal = named.renew();
            pairs
                .iter()
                .for_each(|(n, v)| renewal.put(&["Ip", ".", n], *v));
            drop(renewal);
            named.clone()
        };
        fill(&[("A", 1), ("B", 2), ("C", 3)]);
        let seen = fill(&[("A", 4), ("C", 5)]);
        assert_eq!(
            seen.iter().collect::<Vec<_>>(),
            [("Ip.A", &4), ("Ip.C", &5)]
        );
        assert_eq!(fill(&[("A", 6), ("B", 7)]).get("Ip.B"), Some(&7));
        assert_eq!(fill(&[]).get("Ip.A"), None);
    }
}
