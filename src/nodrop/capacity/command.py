"""The command that answers the README's first line: capacity."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nodrop.errors import BadInput, BadKey
from nodrop.terminal.arguments import (
    AsJson,
    ImageName,
    LabName,
    OutFolder,
    OwnBinary,
    OwnConfig,
    Resume,
    Rules,
    Settings,
    SetupKind,
    SutKind,
    Threads,
    TolerateTruncated,
    TraceNames,
    Window,
    Yes,
    all_settings,
    blaming_options,
    reporting,
    say_in_a_pipe,
    say_json,
)

MADE_OF = Path("nodrop capacity")
"""Name that errors blame: there is no file."""


def add_to(app: typer.Typer) -> None:
    app.command("capacity")(capacity)


def capacity(
    traces: TraceNames,
    rules: Rules = None,
    config: OwnConfig = None,
    binary: OwnBinary = None,
    image: ImageName = None,
    threads: Threads = None,
    setup: SetupKind = "bare",
    sut: SutKind = "suricata",
    goals: Annotated[
        list[str] | None,
        typer.Option(
            "--goal", metavar="SHARE", help="Tolerated loss, such as 0 or 0.5%. Repeatable."
        ),
    ] = None,
    goals_of_detections: Annotated[
        list[str] | None,
        typer.Option(
            "--goal-detections",
            metavar="SHARE",
            help="Instead of loss: tolerated share of missed detections, such as 1%.",
        ),
    ] = None,
    budget: Annotated[
        str,
        typer.Option("--budget", metavar="TIME", help="Time for all trials, such as 90s or 10m."),
    ] = "4m",
    window: Window = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="SCALE", help="How load grows: multiplier, speed or pps."),
    ] = None,
    need: Annotated[
        str | None,
        typer.Option(
            "--need",
            metavar="LOAD",
            help="A load that has to be carried, such as 1Gbit/s, 20000pps or 1X: yes or no first.",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help="How the next load is chosen: nodrop, mlrsearch or bisection.",
        ),
    ] = None,
    soak: Annotated[
        str | None,
        typer.Option(
            "--soak",
            metavar="TIME",
            help="After the search: one trial of this length at the carried load.",
        ),
    ] = None,
    loop: Annotated[
        str | None,
        typer.Option(
            "--loop",
            metavar="FLOWS",
            help="A capture shorter than a trial is sent again: distinct (the default) gives each "
            "pass addresses of its own, same does not.",
        ),
    ] = None,
    lab: LabName = None,
    out: OutFolder = Path("results"),
    settings: Settings = None,
    tolerate_truncated: TolerateTruncated = False,
    resume: Resume = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> int:
    """Search for how much of TRACE is carried before a packet drops, and say how sure that is.

    \b
    nodrop capacity my.pcap --rules my.rules
    nodrop capacity my.pcap0 my.pcap1 my.pcap2
    nodrop capacity my.pcap --goal 0 --goal 0.5% --budget 10m
    nodrop capacity my.pcap --rules my.rules --goal-detections 1% --budget 15m
    nodrop capacity my.pcap --need 1Gbit/s

    Exit code 0: each goal has its figure, and what --need asks for is carried; 2: bad input, or
    something is missing here, and nothing was touched; 3: the lab failed; 5: what --need asks for
    is too much; 6: no load is shown to be carried for one of the goals, or it is not shown of
    --need's.
    """
    from nodrop.config.asked import CapacityQuestion, UserSensor
    from nodrop.config.experiment import asked_experiment
    from nodrop.config.lab_file import load_lab
    from nodrop.measure.plan import make_plan
    from nodrop.remote.dispatch import measuring
    from nodrop.terminal.progress import shown

    question = CapacityQuestion(
        trace=traces[0],
        pieces=traces[1:],
        rules=rules or (),
        setup=setup,
        sut=sut,
        sensor=UserSensor(config=config, binary=binary, image=image, threads=threads),
        goals=goals or (),
        goals_of_detections=goals_of_detections or (),
        budget=budget,
        by=by,
        method=method,
        window=window,
        soak=soak,
        need=need,
        loop=loop,
    )
    changes = all_settings(settings, tolerate_truncated=tolerate_truncated)
    asked = asked_experiment(question.table(Path.cwd()), changes, path=MADE_OF)
    if asked.matrix:
        raise BadInput("nodrop capacity: searches one cell; a matrix wants an experiment file")
    if asked.search is None:
        raise BadKey(
            "measure.mode", 'a search has mode "capacity"', given=f'"{asked.measure.mode}"'
        )
    # What is wrong with the question is said before anything is asked of the host.
    where = load_lab(lab)
    plan = blaming_options(asked, lambda: make_plan(asked))
    measured = measuring(where)
    with shown(quiet=False, as_json=False) as progress:
        outcome = measured(
            asked, where, out=out, resume=resume, progress=progress, yes=yes, plan=plan
        )

    with reporting(outcome.directory):
        return _answer(outcome.directory, as_json=as_json)


def _answer(run: Path, *, as_json: bool) -> int:
    """Prints the answer; returns the exit code."""
    from nodrop.capacity.answer_cards import cards
    from nodrop.capacity.json_answer import capacity_answer
    from nodrop.capacity.searched_cells import searches
    from nodrop.capacity.terminal import ends_with, print_answers
    from nodrop.report.story import read_story
    from nodrop.report.trust import decoder_sentences, trace_changes
    from nodrop.report.write import write_report

    story = read_story([run])
    page = write_report(story)
    cells = searches(story)
    code = ends_with(cells)
    if as_json:
        answers = (
            capacity_answer(
                cell,
                card,
                run_directory=run,
                report=page,
                exit_code=code,
                changes=[said.text for said in trace_changes(story)],
                decoder=[said.text for said in decoder_sentences(story)],
            )
            for cell, card in zip(cells, cards(story), strict=True)
        )
        say_json(next((answer.model_dump() for answer in answers), None))
        return code
    print_answers(story, page)
    say_in_a_pipe(run)
    return code
