//! Rows as a table: one column per counter, named by the way to it (`links.eth0.rx_packets`, `cpus.0.user_ns`).

use std::fmt::{Display, Write as _};
use std::io::{self, Write};
use std::ops::Range;

use serde::ser::{
    Error as _, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, Serializer,
};

use super::row::Row;

/// Fields that say which one of a list an object is: CPUs and interrupts are numbered by themselves, offline ones have no row.
const NUMBERS: [&str; 2] = ["cpu", "irq"];

type Problem = std::fmt::Error;

/// Columns are those of the first row; what a later row does not have stays empty there.
#[derive(Default)]
pub struct Table {
    columns: Vec<String>,
    cells: Vec<Range<usize>>,
    /// Text of all cells of one row.
    text: String,
    /// The way to where we are in the row.
    way: String,
    /// Where the next cell probably belongs: rows nearly always have the same columns in the same places.
    next: usize,
    in_key: bool,
}

impl Table {
    /// Writes a row; before the first one, the names.
    pub fn write(&mut self, row: &Row, out: &mut impl Write) -> io::Result<()> {
        let first = self.columns.is_empty();
        self.text.clear();
        self.way.clear();
        self.next = 0;
        self.cells.fill(0..0);
        row.serialize(Walk {
            table: self,
            adding: first,
        })
        .map_err(io::Error::other)?;
        if first {
            let names = self.columns.join(",");
            writeln!(out, "{names}")?;
        }
        for (number, cell) in self.cells.iter().enumerate() {
            if number > 0 {
                out.write_all(b",")?;
            }
            out.write_all(self.text[cell.clone()].as_bytes())?;
        }
        out.write_all(b"\n")
    }

    /// Numbers only: nothing to quote.
    fn cell(&mut self, value: impl Display, adding: bool) -> Result<(), Problem> {
        let begin = self.text.len();
        write!(self.text, "{value}")?;
        let cell = begin..self.text.len();
        if adding {
            self.columns.push(self.way.clone());
            self.cells.push(cell);
            return Ok(());
        }
        let is_here = |column: &String| *column == self.way;
        let here = if self.columns.get(self.next).is_some_and(is_here) {
            Some(self.next)
        } else {
            self.columns.iter().position(is_here)
        };
        if let Some(here) = here {
            self.cells[here] = cell;
            self.next = here + 1;
        }
        Ok(())
    }

    fn enter(&mut self, step: impl Display) -> Result<usize, Problem> {
        let length = self.way.len();
        if length > 0 {
            self.way.push('.');
        }
        write!(self.way, "{step}")?;
        Ok(length)
    }
}

/// Goes through a row and puts its numbers into cells.
struct Walk<'t> {
    table: &'t mut Table,
    adding: bool,
}

impl Walk<'_> {
    fn below(&mut self) -> Walk<'_> {
        Walk {
            table: self.table,
            adding: self.adding,
        }
    }
}

/// An object, a map or a list: where it lies and, of a list, which item comes next.
struct Inside<'t> {
    walk: Walk<'t>,
    length: usize,
    item: usize,
}

impl<'t> Inside<'t> {
    fn new(walk: Walk<'t>) -> Self {
        let length = walk.table.way.len();
        Self {
            walk,
            length,
            item: 0,
        }
    }

    fn step<T: Serialize + ?Sized>(
        &mut self,
        step: impl Display,
        value: &T,
    ) -> Result<(), Problem> {
        let length = self.walk.table.enter(step)?;
        value.serialize(self.walk.below())?;
        self.walk.table.way.truncate(length);
        Ok(())
    }
}

impl SerializeStruct for Inside<'_> {
    type Ok = ();
    type Error = Problem;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Problem> {
        if NUMBERS.contains(&key) {
            // The number stands first in such an object and takes the place of its position in the list.
            let way = &mut self.walk.table.way;
            let parent = way[..self.length].rfind('.').map_or(0, |dot| dot + 1);
            way.truncate(parent);
            self.walk.table.in_key = true;
            value.serialize(self.walk.below())?;
            self.walk.table.in_key = false;
            self.length = self.walk.table.way.len();
        }
        self.step(key, value)
    }

    fn end(self) -> Result<(), Problem> {
        Ok(())
    }
}

impl SerializeMap for Inside<'_> {
    type Ok = ();
    type Error = Problem;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Problem> {
        self.walk.table.way.truncate(self.length);
        if self.length > 0 {
            self.walk.table.way.push('.');
        }
        self.walk.table.in_key = true;
        let written = key.serialize(self.walk.below());
        self.walk.table.in_key = false;
        written
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Problem> {
        value.serialize(self.walk.below())?;
        self.walk.table.way.truncate(self.length);
        Ok(())
    }

    fn end(self) -> Result<(), Problem> {
        Ok(())
    }
}

impl SerializeSeq for Inside<'_> {
    type Ok = ();
    type Error = Problem;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Problem> {
        let item = self.item;
        self.item += 1;
        self.step(item, value)
    }

    fn end(self) -> Result<(), Problem> {
        Ok(())
    }
}

macro_rules! numbers {
    ($($name:ident: $kind:ty),*) => {
        $(fn $name(self, value: $kind) -> Result<(), Problem> {
            if self.table.in_key {
                return write!(self.table.way, "{value}");
            }
            self.table.cell(value, self.adding)
        })*
    };
}

impl<'t> Serializer for Walk<'t> {
    type Ok = ();
    type Error = Problem;
    type SerializeSeq = Inside<'t>;
    type SerializeMap = Inside<'t>;
    type SerializeStruct = Inside<'t>;
    type SerializeTuple = Impossible<(), Problem>;
    type SerializeTupleStruct = Impossible<(), Problem>;
    type SerializeTupleVariant = Impossible<(), Problem>;
    type SerializeStructVariant = Impossible<(), Problem>;

    numbers!(serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_u8: u8,
        serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_f32: f32, serialize_f64: f64);

    /// A name: part of the way if it is a key, else in no column.
    fn serialize_str(self, value: &str) -> Result<(), Problem> {
        if self.table.in_key {
            self.table.way.push_str(value);
        }
        Ok(())
    }

    /// A column that is empty so far.
    fn serialize_none(self) -> Result<(), Problem> {
        self.table.cell("", self.adding)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Problem> {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Inside<'t>, Problem> {
        Ok(Inside::new(self))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Inside<'t>, Problem> {
        Ok(Inside::new(self))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Inside<'t>, Problem> {
        Ok(Inside::new(self))
    }

    // What no row has.
    fn serialize_bool(self, _: bool) -> Result<(), Problem> {
        Err(Problem::custom("a bool in a row"))
    }

    fn serialize_char(self, _: char) -> Result<(), Problem> {
        Err(Problem::custom("a char in a row"))
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), Problem> {
        Err(Problem::custom("bytes in a row"))
    }

    fn serialize_unit(self) -> Result<(), Problem> {
        self.serialize_none()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Problem> {
        self.serialize_none()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
    ) -> Result<(), Problem> {
        self.serialize_str(name)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Problem> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Problem> {
        value.serialize(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Problem> {
        Err(Problem::custom("a tuple in a row"))
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, Problem> {
        Err(Problem::custom("a tuple in a row"))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Problem> {
        Err(Problem::custom("a tuple in a row"))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Problem> {
        Err(Problem::custom("an enum in a row"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::sample::schedule::Due;
    use nodrop_counters::{CpuTimes, LinkStats};
    use nodrop_proto::SampleSource;

    fn lines(table: &mut Table, row: &Row) -> Vec<String> {
        let mut out = Vec::new();
        table.write(row, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn what_goes_away_or_is_not_due_leaves_its_columns_empty() {
        let mut row = Row::default();
        row.cpus.push(CpuTimes {
            cpu: 7,
            idle_ns: 5,
            ..CpuTimes::default()
        });
        let stats = LinkStats {
            rx_packets: 3,
            ..LinkStats::default()
        };
        row.links.renew().put(&["nd0.5"], stats);
        row.tree.cpu_ns = 9;
        let mut table = Table::default();
        let first = lines(&mut table, &row);
        assert_eq!(first.len(), 2);
        let names: Vec<&str> = first[0].split(',').collect();
        let cell = |line: &str, name: &str| {
            let column = names.iter().position(|known| *known == name);
            line.split(',').nth(column.unwrap()).unwrap().to_owned()
        };
        assert_eq!(cell(&first[1], "cpus.7.idle_ns"), "5");
        assert_eq!(cell(&first[1], "links.nd0.5.rx_packets"), "3");
        drop(row.links.renew());
        let mut tree = Due::default();
        tree.add(SampleSource::Tree);
        tree.add(SampleSource::Links);
        row.show_only(tree);
        let second = lines(&mut table, &row);
        assert_eq!(second.len(), 1);
        assert_eq!(second[0].split(',').count(), names.len());
        let cells = ["cpus.7.idle_ns", "links.nd0.5.rx_packets", "tree.cpu_ns"];
        assert_eq!(cells.map(|name| cell(&second[0], name)), ["", "", "9"]);
    }
}
