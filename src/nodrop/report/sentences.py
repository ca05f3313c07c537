"""The rules by which a report speaks (long: one list). What it says has one here or in findings.

docs/reference/sentences.md lists them (a test compares); `nodrop report --json` names the rule of
every sentence beside its evidence and its trials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nodrop.config.units import noun
from nodrop.report.story import Story
from nodrop.report.trials import Trial


class Part(StrEnum):
    ANSWER = "answer"
    RESTS_ON = "it rests on"
    CANNOT_SAY = "it cannot say"
    TRUST = "trust"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    code: str
    """Stable."""
    part: Part
    when: str
    """When it is said."""
    evidence: str
    """On what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    rule: Rule
    text: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """Plain JSON. None = not measured."""
    trials: tuple[Trial, ...] = ()
    """On which it rests."""
    subject: str = ""
    """Subject of the sentence, if several must be distinguished at a glance."""
    knob: str = ""
    """The knob that touches the loss named in the sentence."""
    to_do: str = ""
    """Remedy to paste, as commands or settings; empty if there is none."""
    good: bool = False
    """Under *Trust*: it speaks for the run."""

    def as_json(self, story: Story) -> dict[str, Any]:
        return {
            "rule": self.rule.code,
            "part": str(self.rule.part),
            "text": self.text,
            "evidence": dict(self.evidence),
            "trials": [
                {"run_directory": story.sources[t.source].name, "run": t.name} for t in self.trials
            ],
            "subject": self.subject,
            "knob": self.knob,
            "to_do": self.to_do,
            "good": self.good if self.rule.part is Part.TRUST else None,
        }


RULES: dict[str, Rule] = {}


def _rule(part: Part, code: str, when: str, evidence: str) -> Rule:
    RULES[code] = Rule(code=code, part=part, when=when, evidence=evidence)
    return RULES[code]


NO_TRIAL = _rule(Part.ANSWER, "no-trial", "no trial of the run can be read", "the run directory")
WATCHED_LOSS = _rule(
    Part.ANSWER,
    "watched-loss",
    "a recorded watch (`nodrop drops --record`) saw packets lost at a place, or analysis",
    "the counter of the place, read each interval; why: what the program did in the last interval "
    "that lost",
)
WATCHED_NOTHING = _rule(
    Part.ANSWER,
    "watched-nothing",
    "a recorded watch saw no loss at any place that is visible",
    "the counters of all places, read each interval",
)
WATCHED_WORDS = _rule(
    Part.RESTS_ON,
    "watched",
    "the run is a recorded watch",
    "its intervals; the books of an interval are closed if the residual, which lies between two "
    "readings, holds 0",
)
WATCHED_HIDDEN = _rule(
    Part.CANNOT_SAY,
    "watched-hidden",
    "a source could not be read while `nodrop drops` looked on",
    "the right or the counter that would show it",
)
DIRECT = _rule(
    Part.ANSWER,
    "direct",
    "cells of a run differ in one factor and all else is equal: the first sentence says which "
    "carries, loses or costs more, by how much, or what telling would take",
    "schema/direct.schema.json. Searched loads: the ratio of the median rounds, made of the bounds "
    "of each round (a search without an upper bound is open there). Given loads: the difference of "
    "the medians at the heaviest load at which most cells were measured. All cells share the error",
)
DIRECT_DISTURBED = _rule(
    Part.ANSWER,
    "direct-disturbed",
    "the same, but other programs had more than a quarter of the SUT's CPUs in most trials of a "
    "cell: nothing is ranked, and `nodrop run` ends with exit code 1",
    "the same; CPU time there less that of SUT and generator, per trial",
)
DIRECT_LEFT = _rule(
    Part.ANSWER,
    "direct-left",
    "more groups of cells differ in one factor alone than are compared in words",
    "how many, and in which factors",
)
CARRIES = _rule(
    Part.ANSWER,
    "carries",
    "at the highest load below the first at which a trial lost or failed: no measured trial lost "
    "a packet, none failed, and every one shows that the load could be kept up",
    "lost packets and `sustained` of each trial; the upper bound of the share of lossy runs that "
    "0 of n allows (Clopper-Pearson, 95 %); trials of unknown loss count as if they had lost some",
)
NO_LOSS = _rule(
    Part.ANSWER,
    "no-loss",
    "the same, but in some trials it is not known whether the load could be kept up (older runs, "
    "SUTs whose backlog cannot be read): the word *carries* is not used",
    "as `carries`",
)
ABSORBED = _rule(
    Part.ANSWER,
    "absorbed",
    "the same, but in some trials the load was shorter than what rings hold, or its backlog grew",
    "`sustained` is false; packets and duration of the load; backlog at its end and drain time",
)
LOSES = _rule(
    Part.ANSWER,
    "loses",
    "the lowest load with a lossy trial: every measured trial lost packets",
    "loss per trial with the median's interval, or the range of the runs; places and causes of "
    "each lossy trial, counted",
)
LOSES_SOMETIMES = _rule(
    Part.ANSWER,
    "loses-sometimes",
    "the lowest load with a lossy trial: some measured trials lost packets, others none",
    "n of m, the share of runs that allows (Clopper-Pearson, 95 %), the worst of the runs, places "
    "and causes",
)
FAILED = _rule(
    Part.ANSWER,
    "failed",
    "the SUT died, hung or was killed in at least one trial of a load",
    "trials whose outcome is `failed`, of those that failed or were measured, and their reasons",
)
ALWAYS_VOID = _rule(
    Part.ANSWER,
    "always-void",
    "two trials of a cell or more, and four fifths of all of them, are void for one reason: the "
    "reason, and what to change as commands to paste",
    "trials whose outcome is `void` for that reason; of these the largest late burst, schedule "
    "error or steal",
)
LOAD_VOID = _rule(
    Part.ANSWER,
    "load-void",
    "a load was asked for and every trial of it is void, not all of two or more for one reason",
    "trials whose outcome is `void`, and their reasons",
)
SOME_VOID = _rule(
    Part.ANSWER,
    "some-void",
    "some trials of a load are void and others not",
    "trials whose outcome is `void`, and their reasons",
)
LOADS_CONTRADICT = _rule(
    Part.ANSWER,
    "loads-contradict",
    "a lower load lost or failed more than a higher one, more than chance explains",
    "n of m of both loads (Fisher's exact test), or every trial of the lower load lost more than "
    "each of the higher one; 5 % for all pairs of loads of the report together",
)
LOADS_OUT_OF_ORDER = _rule(
    Part.ANSWER,
    "loads-out-of-order",
    "a lower load lost or failed in some trials, a higher one in none, and chance can explain it",
    "n of m of both loads",
)
LOSS_NOT_KNOWN = _rule(
    Part.ANSWER,
    "loss-not-known",
    "trials are measured but have no loss figure: their packet books do not close",
    "trials without `loss_ratio`",
)
SETUP_COST = _rule(
    Part.ANSWER,
    "setup-against-base",
    "a setup is compared with the base under the heaviest load that both were measured under",
    "of each figure the difference of the medians with its interval, the share of runs that may "
    "lie outside the margin, the largest runs, n of both, and how many more runs are advised",
)

CAPACITY = _rule(
    Part.ANSWER,
    "capacity",
    "the load was searched: for each cell and goal, what it carries, or why that is not known; it "
    "stands for the sentences about single loads",
    "the statement of capacity/statements.py: the highest load that was carried and the "
    "lowest above it that was not, in the median round, or in the lowest if rounds differ by more "
    "than chance; what limits it",
)
WINDOW = _rule(
    Part.ANSWER,
    "capacity-window",
    "the load was searched, and sends a window of its trace",
    "`window` of a trial: from when to when it is, its rate beside the mean and the busiest second "
    "of the whole trace, how much of the trace it is, and the parts of its packets and bytes that "
    "belong to flows which begin in it",
)
SOAK = _rule(
    Part.ANSWER,
    "capacity-soak",
    "a soak was asked for (`--soak`), and the search found a load that is carried",
    "the trial of that length: what it lost, since when, and where; no part of the bounds",
)
BROKE = _rule(
    Part.ANSWER,
    "capacity-broke",
    "the search found a load that is not carried",
    "the verdict of one of its trials: one that failed, else that with the median loss",
)
BETWEEN_ROUNDS = _rule(
    Part.ANSWER,
    "capacity-between-rounds",
    "the search was repeated, each round with a new start of the SUT",
    "the highest load that each round carried; from six rounds on the median's 95 % interval",
)
CONFIDENCE = _rule(
    Part.ANSWER,
    "capacity-confidence",
    "the search found a load that is carried: how sure that is, high, fair or low, and why",
    "the trials that say something of their load, the bounds, the rounds that came to an end, what "
    "speaks against the answer, and what limits it (docs/methodology.md)",
)
FITTED = _rule(
    Part.ANSWER,
    "capacity-fitted",
    "nodrop's own method searched, and trials near the limit missed the goal",
    "the load above which more trials than allowed miss the goal, with 95 % bounds within one "
    "start of the SUT (docs/methodology.md)",
)
ROUNDS_DIFFER = _rule(
    Part.ANSWER,
    "capacity-rounds-differ",
    "the bounds of two rounds have nothing in common, or rounds rise or fall by Kendall's test",
    "the bounds of these rounds; what each round came to, and the test's p",
)
CONTRADICTED = _rule(
    Part.ANSWER,
    "capacity-contradicted",
    "a trial at the load that is carried, or less, was not carried, or one at the load that is "
    "not, or more, was",
    "these trials, of all rounds",
)
CHANGED = _rule(
    Part.ANSWER,
    "capacity-changed",
    "within a round the SUT began to serve less (a load that was good was lost, or a smaller part "
    "of no more load was carried, in two trials and none after them disagreed), or serves less and "
    "less (Kendall's S over the trials of its rounds)",
    "what the first and the last trials of that round served that were too much; only trials "
    "since the change count, and of a SUT that serves less and less no load is carried",
)
LOWERED = _rule(
    Part.ANSWER,
    "capacity-lowered",
    "the answer is less than what rounds carried: more than a fifth of the trials up to there "
    "missed the goal",
    "these trials, and those of the answer's own load (docs/methodology.md, the proof)",
)
NOISE = _rule(
    Part.ANSWER,
    "capacity-noise",
    "a load was carried",
    "of the trials of that load and of loads down to 80 % of it, of all rounds, those that missed "
    "the goal; the upper bound of their share (Clopper-Pearson, 95 %)",
)
SET_ASIDE = _rule(
    Part.ANSWER,
    "capacity-set-aside",
    "trials say nothing of any load, or only of their own",
    "how many, and the lowest of them, by rule: the hypervisor explains the loss; nothing was "
    "lost, but no pace is shown; less than 80 % was carried; a lower load carried less than that; "
    "before the SUT began to serve less",
)
ROUNDS_MISSING = _rule(
    Part.ANSWER,
    "capacity-rounds-missing",
    "the budget of the search ended before all its rounds were begun, or ended some too early",
    "rounds that were begun, that were asked for, and that it cut",
)
FRAMES_CUT = _rule(
    Part.ANSWER,
    "frames-cut",
    "frames were cut to the room in the SUT's ring in measured trials: how many in the worst, and "
    "the setting that takes them whole. It changes no bound: a load is carried if no packet is "
    "lost",
    "`cut_packets` of each trial: the SUT's own counter (Suricata's afpacket.trunc_pkt), or the "
    "trace's lengths and the room in the ring",
)
FRAMES_INVALID = _rule(
    Part.ANSWER,
    "frames-invalid",
    "the SUT's decoder calls packets of measured trials invalid: how many in the worst, the "
    "commonest faults, and how many frames of the load a capture had cut",
    "`invalid_packets` of each trial (Suricata's decoder.invalid)",
)

RESTS_ON_TRIALS = _rule(
    Part.RESTS_ON, "trials-counted", "always", "outcomes of all trials; measured trials per cell"
)
RESTS_ON_BOOKS = _rule(
    Part.RESTS_ON,
    "books-closed",
    "always",
    "`books_closed` of each trial whose ledger.json is there: residual 0 at every hop; of an "
    "imported run, which has none, what its record says",
)
SEARCH_COST = _rule(
    Part.RESTS_ON,
    "search-cost",
    "the load was searched",
    "trials of the search, void ones too, the seconds of load they were asked for, and how far "
    "apart the bounds are",
)
COMPARED_AT_ONCE = _rule(
    Part.RESTS_ON,
    "compared-at-once",
    "the run has several setups",
    "how many medians and shares of lossy runs share the error, and how many runs that takes",
)

BEYOND_NOT_TRIED = _rule(
    Part.CANNOT_SAY,
    "beyond-not-tried",
    "no trial lost or failed, and no higher load was asked for, not even in vain",
    "the loads of all trials, void ones too",
)
CANNOT_READ = _rule(
    Part.CANNOT_SAY, "cannot-read", "a file of the run directory is damaged", "the file"
)
TOO_FEW = _rule(
    Part.CANNOT_SAY,
    "too-few-for-an-interval",
    "a cell has fewer measured trials than an interval of the median needs (six)",
    "measured trials per cell",
)
TOO_FEW_STARTS = _rule(
    Part.CANNOT_SAY,
    "too-few-starts",
    'measured trials of a cell share fewer starts of the SUT (`measure.sut = "standing"`) than an '
    "interval needs (six)",
    "starts per cell",
)
TOO_FEW_HOSTS = _rule(
    Part.CANNOT_SAY,
    "too-few-hosts",
    "several hosts measured a cell, and fewer of them than an interval needs (six)",
    "the pairs of each cell",
)
OTHER_HOSTS = _rule(
    Part.CANNOT_SAY,
    "other-hosts",
    "cells of one report were measured by other hosts than each other",
    "the cells of each pair, or of each group of pairs",
)
VOID_SAYS_NOTHING = _rule(
    Part.CANNOT_SAY,
    "void-says-nothing",
    "some trials are void",
    "trials whose outcome is `void`",
)
FAILED_NO_FIGURE = _rule(
    Part.CANNOT_SAY,
    "failed-in-no-figure",
    "the SUT failed in some trials",
    "trials whose outcome is `failed`: they count against the load, but have no loss, CPU or "
    "memory figure",
)
QUIET_HOST = _rule(
    Part.CANNOT_SAY,
    "quiet-host",
    "other programs used more than a quarter of the SUT's CPUs in some trials",
    "CPU time there less that of SUT and generator, per trial (of older runs: of the host)",
)
IDLE_PORT = _rule(
    Part.CANNOT_SAY,
    "idle-port",
    "a port of the SUT received nothing in all measured trials of a cell, and another did",
    "`ports` of each trial",
)
PUBLISHED_CLAIM = _rule(
    Part.CANNOT_SAY,
    "serious-finding",
    "an imported run has a serious finding",
    "the finding's code (findings.md)",
)
FLOWS_DIFFER = _rule(
    Part.CANNOT_SAY,
    "flows-differ",
    "replicas of a trace had flows of their own under one load and the same flows under another, "
    "as those of `replay` and `tcpreplay` do",
    "`flows` of each load of more than one replica, by its generator, in the manifest",
)
NOT_EXTRAPOLATED = _rule(
    Part.CANNOT_SAY, "not-extrapolated", "always", "nothing was measured elsewhere"
)
BEYOND_WINDOW = _rule(
    Part.CANNOT_SAY,
    "beyond-window",
    "the load sends a part of its trace alone",
    "`window` of each trial",
)
FEW_BEGIN = _rule(
    Part.CANNOT_SAY,
    "few-flows-begin",
    "of the packets of a window, fewer than 95 % belong to flows that begin in it",
    "`window.begun_packet_ratio` of each trial (docs/methodology.md)",
)
EMULATED = _rule(
    Part.CANNOT_SAY,
    "emulated",
    "a guest ran under software emulation (TCG)",
    "`accelerator` of each trial",
)

TRIALS_FAILED = _rule(
    Part.TRUST, "trials-failed", "trials failed, one line per reason", "outcome and reason codes"
)
TRIALS_VOID = _rule(
    Part.TRUST, "trials-void", "trials are void, one line per reason", "outcome and reason codes"
)
RULES_NOT_LOADED = _rule(
    Part.TRUST,
    "rules-not-loaded",
    "rules that were named did not load, were skipped, or their files are not there",
    "what Suricata said of its rules in each trial: loaded, failed, skipped, the first by name",
)
TRACE_CHANGED = _rule(
    Part.TRUST,
    "trace-changed",
    "a capture was changed before it was sent, or is odd: one line for each change",
    "what `nodrop-node trace prepare` counted, in the manifest",
)
YAML_REPLACED = _rule(
    Part.TRUST,
    "yaml-replaced",
    "Suricata ran with a user's own yaml, of which nodrop replaced keys",
    "the user's yaml against the one that each trial was given",
)
CALIBRATED = _rule(
    Part.TRUST,
    "calibrated",
    "a setup of the run stands on a certificate whose known answers were all caught",
    "the certificate in the manifest: known answers caught and missed, their figures",
)
CALIBRATION_LACKS = _rule(
    Part.TRUST,
    "calibration-lacks",
    "a setup of the run has no certificate, or one that missed known answers",
    "the same; why there is none",
)
BOOKS_DIFFER = _rule(
    Part.TRUST,
    "books-differ",
    "the record of a trial says otherwise than its books, or than its trial.json",
    "ledger.json, balanced again, against the counts and the loss of the record, trial.json "
    "against its outcome; such a trial is void here",
)
BOOKS_MISSING = _rule(
    Part.TRUST,
    "books-missing",
    "a record says that a trial was measured, and its books are not there or cannot be read",
    "no ledger.json that can be balanced beside the record; such a trial is void here, unless "
    "its run was imported, which has no books",
)
BOOKS_AGAIN = _rule(
    Part.TRUST,
    "books-balanced-again",
    "at least one trial's books closed when the report balanced them again",
    "ledger.json of each trial",
)
SENDER_LATENESS = _rule(
    Part.TRUST,
    "sender-lateness",
    "a measured trial has a schedule error",
    "the largest p99 and the largest single error of all measured trials",
)
SENDER_BURST = _rule(
    Part.TRUST,
    "sender-burst",
    "a late sender sent packets at once in a measured trial",
    "`largest_late_burst` of the measured trials, and how many packets were lost in that trial",
)
SENDER_SHAPED = _rule(
    Part.TRUST,
    "sender-shaped",
    "in a measured trial the trace asks for packets so much faster than the sender sends that at "
    "p99 they left more than 1 ms after the trace's own time",
    "`asked_schedule_error_us` and `shaped_pps` of the measured trials",
)
RULE_REACHED = _rule(
    Part.TRUST,
    "rule-reached",
    "cells were repeated until their figures were known as closely as a rule asked for",
    "`measure.repetitions` of the run, and of each cell the half-width of each metric's interval",
)
RULE_NOT_REACHED = _rule(
    Part.TRUST,
    "rule-not-reached",
    "cells of a run with a rule are not known as closely as it asks for: `max` ended them, or the "
    "run was interrupted",
    "`measure.repetitions` of the run, and of each cell the half-width of each metric's interval",
)
SENDER_SILENT = _rule(
    Part.TRUST,
    "sender-silent",
    "a measured trial has no schedule error",
    "trials whose generator cannot say it, or had no schedule",
)
CPUS_SHARED = _rule(
    Part.TRUST,
    "cpus-shared",
    "in some trials the generator was not pinned, or to a CPU of the SUT's",
    "`generator_cpus` and `sut_cpus` of each trial",
)
CPUS_APART = _rule(
    Part.TRUST,
    "cpus-apart",
    "in some trials the generator was pinned to CPUs that the SUT could not use, or elsewhere",
    "the same; `cpus_parted`: nodrop chose them, the experiment names none; `cpus_in_common`",
)
FOREIGN = _rule(
    Part.TRUST,
    "foreign-packets",
    "packets that the generator did not send were seen",
    "`foreign_packets` of each trial",
)
HOST_CROWDED = _rule(
    Part.TRUST,
    "host-crowded",
    "other programs used more than a quarter of the SUT's CPUs in some trials",
    "CPU time there less that of SUT and generator, per trial (of older runs: of the host)",
)
HOST_QUIET = _rule(
    Part.TRUST,
    "host-quiet",
    "in no trial that measured it did they use so much",
    "the same",
)
OWN_QUOTA = _rule(
    Part.TRUST,
    "own-quota",
    "a CPU quota around nodrop itself held it back in some trials",
    "`disturbed.quota` of each trial: its control group, periods and time",
)
STANDS_APART = _rule(
    Part.TRUST,
    "stands-apart",
    "a trial lies far from the others of its cell in a figure (Hampel's rule, six trials or more)",
    "the value and the median of its cell, per trial and figure",
)
HOSTS_DIFFER = _rule(
    Part.TRUST,
    "hosts-differ",
    "trials of one cell ran on several hosts, which differ in a figure by more than "
    "trials of one pair do (F test; all figures together err in 5 % of reports)",
    "the spread between hosts and within one, per cell and figure",
)
SEVERAL_HOSTS = _rule(
    Part.TRUST,
    "several-hosts",
    "trials of one cell ran on several hosts: each counts once, by the median of its trials",
    "the cells and their pairs",
)
COLD_START = _rule(
    Part.TRUST,
    "cold-start",
    "the first trial took twice the median time to get ready",
    "`activation_s` of each trial",
)
GUEST_WARMED_UP = _rule(
    Part.TRUST,
    "guest-warmed-up",
    "a guest that had just booted carried a load that was discarded",
    "`warm_up` of each trial",
)
RESET = _rule(
    Part.TRUST,
    "reset",
    "the receiver booted, or its driver was loaded anew, before SUTs started",
    "`reset_s` of each trial",
)


def finding_rule(code: str) -> Rule:
    """A finding is a rule of its own: findings.md says when it is raised and on what evidence."""
    return Rule(code=code, part=Part.TRUST, when="findings.md", evidence="findings.md")


def listed(names: Sequence[str]) -> str:
    """`a, b and c`; empty if there is none."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def plural(number: int, thing: str) -> str:
    return f"{number} {noun(number, thing)}"
