"""Rules that were named and do not load: never a trial that says it measured them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodrop.errors import NotReady
from nodrop.report.story import read_story
from nodrop.report.trust import findings
from tests.e2e.conftest import Run, only

pytestmark = pytest.mark.usefixtures("suricata")

GOOD = 'alert ip any any -> any any (msg:"good {n}"; sid:{n};)\n'
BAD = 'alert ip any any -> any any (msg:"bad {n}"; no_such_keyword; sid:{n};)\n'


def rules(text: str, count: int) -> bytes:
    return "".join(text.format(n=n + 1) for n in range(count)).encode()


NONE_LOADS = {
    "an HTML page": b"<html><body>404 Not Found</body></html>\n",
    "junk": bytes(range(1, 256)) * 40,
    "nothing": b"",
    "comments": b"# nothing here\n\n# nor here\n",
    "one bad rule": rules(BAD, 1),
    "seven bad rules": rules(BAD, 7),
}
NO_TEXT = {
    "UTF-16": rules(GOOD, 3).decode().encode("utf-16"),
    "junk": bytes(range(256)) * 40,
}


def trial(
    run: Run, tmp_path: Path, files: list[bytes], *, errors: str
) -> tuple[Any, dict[str, Any]]:
    paths = []
    for number, content in enumerate(files):
        paths.append(tmp_path / f"{number}.rules")
        paths[-1].write_bytes(content)
    named = json.dumps([str(path) for path in paths])
    outcome = run(f"sut.rules={named}", f'sut.rules_errors="{errors}"', "load.speed=100")
    record = only(outcome)
    details = json.loads((outcome.directory / "runs" / record.run / "trial.json").read_text())
    return record, (details["details"]["facts"].get("sut") or {})


@pytest.mark.parametrize("errors", ["warn", "error"])
@pytest.mark.parametrize("content", NONE_LOADS.values(), ids=NONE_LOADS)
def test_a_file_of_which_no_rule_loads_is_refused(
    run: Run, tmp_path: Path, content: bytes, errors: str
) -> None:
    with pytest.raises(NotReady, match="Suricata loads none"):
        trial(run, tmp_path, [content], errors=errors)


@pytest.mark.parametrize("content", NO_TEXT.values(), ids=NO_TEXT)
def test_a_file_that_is_no_text_is_refused(run: Run, tmp_path: Path, content: bytes) -> None:
    with pytest.raises(NotReady, match="holds no rules: it is no UTF-8 text"):
        trial(run, tmp_path, [content], errors="warn")


def test_some_rules_that_do_not_load_are_named_and_the_others_measured(
    run: Run, tmp_path: Path
) -> None:
    files = [rules(GOOD, 5), rules(BAD, 2)]
    with pytest.raises(NotReady, match=r"2 of 7 rules do not load: 1\.rules line 1 \(sid 1: "):
        trial(run, tmp_path, files, errors="error")
    record, facts = trial(run, tmp_path, files, errors="warn")
    assert record.outcome == "measured", record.verdict
    assert [facts[f"rules_{what}"] for what in ("loaded", "failed", "skipped")] == [5, 2, 0]
    story = read_story([next((tmp_path / "results").iterdir())])
    (said,) = [one for one in findings(story) if one.rule == "rules-not-loaded"]
    assert "2 of 7 rules did not load and are not measured: 1.rules line 1 (sid 1: " in said.text
