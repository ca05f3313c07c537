"""`python -m nodrop.results > schema/trial.schema.json`: writes the schema after a change; with the
word `certificate`, that of a certificate."""

import json
import sys

from nodrop.results.certificate import certificate_schema
from nodrop.results.trial import trial_schema

schema = certificate_schema() if "certificate" in sys.argv[1:] else trial_schema()
sys.stdout.write(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
