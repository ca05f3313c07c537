"""`python -m nodrop.results > schema/trial.schema.json`: writes the schema after a change; with the
word `certificate`, `baseline`, `capacity`, `compare` or `history`, that of a certificate, of a
baseline, or of the answer of the command of that name."""

import json
import sys

from nodrop.results.capacity import capacity_schema
from nodrop.results.certificate import certificate_schema
from nodrop.results.history import history_schema
from nodrop.results.side import baseline_schema
from nodrop.results.trial import trial_schema
from nodrop.results.versus import versus_schema

SCHEMAS = {
    "certificate": certificate_schema,
    "baseline": baseline_schema,
    "capacity": capacity_schema,
    "compare": versus_schema,
    "history": history_schema,
}
schema = SCHEMAS.get("".join(sys.argv[1:]), trial_schema)()
sys.stdout.write(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
