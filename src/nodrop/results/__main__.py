"""`python -m nodrop.results > schema/trial.schema.json`: writes the schema after a change."""

import json
import sys

from nodrop.results.trial import trial_schema

sys.stdout.write(json.dumps(trial_schema(), indent=2, ensure_ascii=False) + "\n")
