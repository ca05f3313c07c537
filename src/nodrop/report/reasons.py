"""Why trials failed or are void, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from nodrop.report import escape
from nodrop.report.trials import Trial

REASON_WORDS = {
    "residual": "some packets are in no class",
    "not_read": "a counter could not be read",
    "sender_late": "the sender was late",
    "sender_burst": "packets were lost in a burst of a late sender",
    "cpu_stolen": "the hypervisor took CPU time that can explain the losses",
    "sender_short": "the sender sent fewer packets than asked for",
    "nothing_sent": "nothing was sent",
    "nothing_arrived": "nothing came to the receiving port: the cable leads elsewhere",
    "received_more_than_sent": "packets arrived or left that the generator did not send",
    "counters_disagree": "the SUT's counters contradict each other, or the kernel's",
    "sut_not_ready": "the SUT did not get ready in time",
    "sut_died": "the SUT died",
    "load_failed": "the generator broke down",
    "counters_moved_after_drain": "counters moved after the drain",
    "not_drained": "the SUT did not come to rest after the load",
    "other_bits": "what ran is not what the run says it measures",
    "no_rules": "rules were named, and none or not all of them loaded",
    "other_files": "the rules or the trace are not those that the run began with",
    "self_test_failed": "the self-test of a counter failed",
    "lab_problem": "the lab, or the place of the SUT, broke down",
    "books_differ": "the record says otherwise than its books or its trial.json",
    "books_missing": "its books are not there, and a record alone proves nothing",
    "clock_moved": "a host's clock moved against ours",
    "no_books": "there was nothing to balance",
    "traffic_before_ready": "traffic began before the SUT was ready",
}


def reason_words(code: str) -> str:
    """A plugin's own code stands as it is."""
    return REASON_WORDS.get(code, escape.plain(code))


def reasons_of(trial: Trial) -> list[str]:
    """For a failed trial, what the SUT did. What follows from that is no reason of its own."""
    return trial.record.failures or [*trial.invalid_reasons]


def counted(trials: Iterable[Trial]) -> Counter[str]:
    return Counter(code for trial in trials for code in dict.fromkeys(reasons_of(trial)))


def why(trials: Iterable[Trial]) -> str:
    """`the sender was late in 2, nothing was sent in 1`; without numbers if it is always so."""
    listed = list(trials)
    found = counted(listed)
    if len(found) == 1 or all(n == len(listed) for n in found.values()):
        return ", ".join(map(reason_words, found))
    return ", ".join(f"{reason_words(code)} in {n}" for code, n in found.most_common())
