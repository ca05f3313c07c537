//! The sending half of the port, shared by all channels.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use super::frame;

/// Each call is one frame; threads take turns.
#[derive(Clone)]
pub struct Line(Arc<Mutex<File>>);

impl Line {
    pub fn new(port: File) -> Self {
        Self(Arc::new(Mutex::new(port)))
    }

    pub fn send(&self, channel: u32, kind: u8, payload: &[u8]) {
        let mut port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A line that broke is noticed by the reader, which ends us.
        let _broken = frame::write(&mut *port, channel, kind, payload);
    }

    pub fn say(&self, channel: u32, kind: u8, body: &serde_json::Value) {
        self.send(channel, kind, body.to_string().as_bytes());
    }
}
