//! `nodrop-node schema`: the types of every job's spec and events. The controller's are made from them (tools/node_schema.py).

use std::io::Write;
use std::process::ExitCode;

/// Committed; the test below holds it to the types. So the code that derives it takes no room in the node.
const DOCUMENT: &str = include_str!("../../../schema/node.schema.json");

/// Prints the document.
pub fn print() -> ExitCode {
    match write!(std::io::stdout(), "{DOCUMENT}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nodrop-node schema: stdout: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(feature = "attach")] // The document has every job.
#[cfg(test)]
mod tests {
    use nodrop_proto::{
        AttachSample, ClockAnswer, Hello, JobError, PROTOCOL, ReplaySample, SinkSample,
    };
    use schemars::generate::SchemaSettings;
    use schemars::transform::{Transform, transform_subschemas};
    use schemars::{JsonSchema, Schema, SchemaGenerator};
    use serde_json::{Map, Value, json};

    use crate::job::Job;
    use crate::job::attach::Attach;
    use crate::job::overhear::Overhear;
    use crate::job::probe::Probe;
    use crate::job::profile::Profile;
    use crate::job::reference_mme::ReferenceMme;
    use crate::job::replay::Replay;
    use crate::job::sample::Sample;
    use crate::job::sample::output::Line;
    use crate::job::sink::Sink;
    use crate::job::stubs::{StubHss, StubSgw};
    use crate::job::trace::Trace;
    use crate::progress::Read;

    /// A file to which the document is written as it is now: for tools/node_schema.py.
    const WRITE_TO: &str = "NODROP_WRITE_SCHEMA_TO";

    #[test]
    fn the_committed_schema_is_of_these_types() {
        let text = format!("{:#}\n", document());
        if let Some(path) = std::env::var_os(WRITE_TO) {
            std::fs::write(path, text).unwrap();
        } else {
            assert!(
                text == super::DOCUMENT,
                "the types of specs and events are not those of schema/node.schema.json: run `make schema`"
            );
        }
    }

    fn document() -> Value {
        let settings = || SchemaSettings::draft2020_12().with_transform(Bare);
        let mut read = settings().into_generator();
        let mut said = settings().for_serialize().into_generator();
        let jobs = json!({
            Replay::NAME: job::<Replay, ReplaySample>(&mut read, &mut said),
            Sink::NAME: job::<Sink, SinkSample>(&mut read, &mut said),
            Attach::NAME: job::<Attach, AttachSample>(&mut read, &mut said),
            ReferenceMme::NAME: job::<ReferenceMme, ()>(&mut read, &mut said),
            StubHss::NAME: job::<StubHss, ()>(&mut read, &mut said),
            StubSgw::NAME: job::<StubSgw, ()>(&mut read, &mut said),
            Overhear::NAME: job::<Overhear, ()>(&mut read, &mut said),
            Sample::NAME: job::<Sample, Line<'static>>(&mut read, &mut said),
            Probe::NAME: job::<Probe, ()>(&mut read, &mut said),
            Profile::NAME: job::<Profile, ()>(&mut read, &mut said),
            Trace::NAME: job::<Trace, Read>(&mut read, &mut said),
        });
        let every_job = json!({
            "hello": said.subschema_for::<Hello>(),
            "clock": said.subschema_for::<ClockAnswer>(),
            "error": said.subschema_for::<JobError>(),
        });
        let mut types: Map<String, Value> = read.take_definitions(true);
        types.extend(said.take_definitions(true));
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "What nodrop-node reads and says (docs/node-protocol.md)",
            "protocol": PROTOCOL,
            "every_job": every_job,
            "jobs": jobs,
            "$defs": types,
        })
    }

    /// Its spec as it is read, its events as they are said, without the `type` that each has.
    fn job<J: Job, S: JsonSchema>(read: &mut SchemaGenerator, said: &mut SchemaGenerator) -> Value
    where
        J::Spec: JsonSchema,
        J::Ready: JsonSchema,
        J::Outcome: JsonSchema,
    {
        let mut found = Map::new();
        found.insert("spec".into(), read.subschema_for::<J::Spec>().into());
        for (event, schema) in [
            ("ready", said.subschema_for::<J::Ready>()),
            ("sample", said.subschema_for::<S>()),
            ("result", said.subschema_for::<J::Outcome>()),
        ] {
            // `()` stands for an event without fields, and for none.
            if schema.get("type") != Some(&json!("null")) {
                found.insert(event.into(), schema.into());
            }
        }
        found.into()
    }

    /// Takes away what is no part of a type: a comment may change. A list of words becomes one `enum`.
    #[derive(Clone)]
    struct Bare;

    impl Transform for Bare {
        fn transform(&mut self, schema: &mut Schema) {
            transform_subschemas(self, schema);
            for words in ["description", "title", "default"] {
                schema.remove(words);
            }
            if let Some(words) = schema.get("oneOf").and_then(words_of) {
                schema.remove("oneOf");
                schema.insert("type".into(), "string".into());
                schema.insert("enum".into(), words.into());
            }
        }
    }

    fn words_of(variants: &Value) -> Option<Vec<Value>> {
        let mut words = Vec::new();
        for variant in variants.as_array()? {
            match (variant.get("const"), variant.get("enum")) {
                (Some(word), _) => words.push(word.clone()),
                (None, Some(some)) => words.extend(some.as_array()?.iter().cloned()),
                _ => return None,
            }
        }
        Some(words)
    }
}
