//! The envelope: what a controller may say, and how every event of the node is tagged.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Version of the protocol; additive changes keep the number.
pub const PROTOCOL: u32 = 2;

/// One line from the controller.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// What to do; the job reads its own fields out of it with [`Message::spec`].
    Spec(Value),
    /// A question for the node's clocks.
    Clock {
        /// Comes back in the answer.
        id: u64,
    },
    /// Begin.
    Start {
        /// On the node's `CLOCK_MONOTONIC`; `None` = now.
        at_mono_ns: Option<u64>,
    },
    /// Come to an end and say the result.
    Stop,
}

/// Why a line is not a message, in words for the `error` event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageError(pub String);

#[derive(Deserialize)]
struct Clock {
    id: u64,
}

#[derive(Deserialize)]
struct Start {
    at_mono_ns: Option<u64>,
}

impl Message {
    /// Reads one line. Unknown fields are ignored, an unknown `type` is an error.
    pub fn parse(line: &str) -> Result<Self, MessageError> {
        let value: Value = serde_json::from_str(line)
            .map_err(|e| MessageError(format!("not a JSON line: {e}: {}", shortened(line))))?;
        let kind = value.get("type").and_then(Value::as_str).ok_or_else(|| {
            MessageError(format!("field `type` is missing in {}", shortened(line)))
        })?;
        match kind {
            "spec" => Ok(Self::Spec(value)),
            "clock" => fields::<Clock>(&value).map(|c| Self::Clock { id: c.id }),
            "start" => fields::<Start>(&value).map(|s| Self::Start {
                at_mono_ns: s.at_mono_ns,
            }),
            "stop" => Ok(Self::Stop),
            other => Err(MessageError(format!(
                "unknown type `{other}`; known: spec, clock, start, stop"
            ))),
        }
    }

    /// Whether another spec may follow the result of this one.
    #[must_use]
    pub fn may_follow(spec: &Value) -> bool {
        spec.get("again").and_then(Value::as_bool).unwrap_or(false)
    }

    /// The fields of a spec for `job`.
    pub fn spec<T: DeserializeOwned>(spec: &Value, job: &str) -> Result<T, JobError> {
        match spec.get("job").and_then(Value::as_str) {
            Some(named) if named == job => fields(spec).map_err(|e| JobError::new("spec", e.0)),
            Some(named) => Err(JobError::new(
                "protocol",
                format!("field `job`: this process does `{job}`, the spec is for `{named}`"),
            )
            .hint("one job per process: start `nodrop-node JOB --controlled` with the job of the spec")),
            None => Err(JobError::new("protocol", "field `job` is missing in the spec")),
        }
    }
}

fn fields<T: DeserializeOwned>(value: &Value) -> Result<T, MessageError> {
    serde_path_to_error::deserialize(value).map_err(|e| {
        let path = e.path().to_string();
        let cause = e.into_inner().to_string();
        MessageError(if path == "." {
            cause
        } else {
            format!("field `{path}`: {cause}")
        })
    })
}

fn shortened(line: &str) -> String {
    const LONGEST: usize = 120;
    let mut text: String = line.chars().take(LONGEST).collect();
    if text.len() < line.len() {
        text.push('…');
    }
    text
}

/// An event as it goes on the wire: the body's fields beside its `type`.
#[derive(Serialize)]
pub struct Tagged<'a, T> {
    /// `hello`, `ready`, `clock`, `sample`, `result` or `error`.
    pub r#type: &'static str,
    /// The fields.
    #[serde(flatten)]
    pub body: &'a T,
}

/// The first line of a node.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Of the binary.
    pub version: String,
    /// The job this process does.
    pub job: String,
    /// As seen in the node's own PID namespace.
    pub pid: u32,
}

/// Both clocks of the node's host, read one right after the other.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ClockAnswer {
    /// Of the question.
    pub id: u64,
    /// `CLOCK_MONOTONIC`.
    pub mono_ns: u64,
    /// `CLOCK_REALTIME`.
    pub real_ns: u64,
    /// `null` if the host's clock runs free.
    pub tai: Option<TaiAnswer>,
}

/// A host's `CLOCK_TAI`, which others have as well.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct TaiAnswer {
    /// Add to `CLOCK_MONOTONIC`.
    pub ahead_ns: u64,
    /// The most that it may be off (`maxerror` of adjtimex(2)).
    pub max_error_ns: u64,
}

/// Why a job ends without a result; becomes the `error` event.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct JobError {
    /// A word for programs: `protocol`, `spec`, `permission`, `no_such_interface` …
    pub kind: String,
    /// What and where, for people.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl JobError {
    /// An error without a hint.
    pub fn new(kind: &str, message: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            message: message.into(),
            hint: None,
        }
    }

    /// By hand, as `nodrop` has them: 2 if what was asked for is wrong or not there, 4 for a defect of ours, else 3.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.kind.as_str() {
            "spec" | "trace" | "no_such_interface" | "no_such_process" | "no_such_cgroup"
            | "port_in_use" => 2,
            "bug" | "internal" => 4,
            _ => 3,
        }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::fmt::Display for JobError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for JobError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReplaySpec;

    #[test]
    fn unknown_fields_are_ignored_and_unknown_types_are_not() {
        assert_eq!(
            Message::parse(r#"{"type":"stop","later":1}"#),
            Ok(Message::Stop)
        );
        let error = Message::parse(r#"{"type":"pause"}"#).unwrap_err();
        assert_eq!(
            error.0,
            "unknown type `pause`; known: spec, clock, start, stop"
        );
    }

    #[test]
    fn start_without_a_time_means_now() {
        let now = Ok(Message::Start { at_mono_ns: None });
        assert_eq!(Message::parse(r#"{"type":"start"}"#), now);
        assert_eq!(Message::parse(r#"{"type":"start","at_mono_ns":null}"#), now);
    }

    #[test]
    fn a_bad_field_is_named() {
        let spec = serde_json::json!({"type":"spec","job":"replay","trace":"t.pcap","interface":"a","pps":"fast"});
        let error = Message::spec::<ReplaySpec>(&spec, "replay").unwrap_err();
        assert_eq!(error.kind, "spec");
        assert_eq!(
            error.message,
            "field `pps`: invalid type: string \"fast\", expected f64"
        );
        let error = Message::spec::<ReplaySpec>(&serde_json::json!({"job":"replay"}), "replay");
        assert_eq!(error.unwrap_err().message, "missing field `trace`");
    }

    #[test]
    fn a_spec_for_another_job_is_refused() {
        let error = Message::spec::<ReplaySpec>(&serde_json::json!({"job":"sink"}), "replay");
        assert_eq!(error.unwrap_err().kind, "protocol");
    }
}
