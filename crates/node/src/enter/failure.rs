//! Why `enter` could not become the program.

/// One line for people: what was tried, on what, and why it failed.
#[derive(Debug)]
pub struct Failure(pub String);

pub trait Explain<T> {
    fn explain(self, what: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: std::fmt::Display> Explain<T> for Result<T, E> {
    fn explain(self, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|e| Failure(format!("{}: {e}", what())))
    }
}
