"""`python -m nodrop.results > schema/trial.schema.json`: writes the schema after a change; with the
word `certificate` or `capacity`, that of a certificate, or of the answer of `nodrop capacity`."""

import json
import sys

from nodrop.results.capacity import capacity_schema
from nodrop.results.certificate import certificate_schema
from nodrop.results.trial import trial_schema

SCHEMAS = {"certificate": certificate_schema, "capacity": capacity_schema}
schema = SCHEMAS.get("".join(sys.argv[1:]), trial_schema)()
sys.stdout.write(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
