"""Sections of a report: what a question adds to page, csv, markdown, figures and JSON.

They are found by the entry points `nodrop.sections` (a `Section`) and `nodrop.figures` (a
`costs.Figure`, which becomes a column of the cells and a metric of comparisons); those of nodrop's
own questions too.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup
from markupsafe import escape as escaped

import nodrop
from nodrop.answer.finding import WORDS
from nodrop.capacity.card import aside_words, kicker, lost_words, peak_words
from nodrop.config.options import shown
from nodrop.config.units import count_of
from nodrop.errors import NotReady
from nodrop.plugins import Plugin, of_table
from nodrop.report import bounded, escape
from nodrop.report.chart import Chart, tag
from nodrop.report.costs import Figure
from nodrop.report.direct import VerdictCard, verdict_cards
from nodrop.report.hosts import hosts_between, hosts_tables
from nodrop.report.sentences import SHOWN, AnswerText, phrase
from nodrop.report.story import Story
from nodrop.report.tables import Table, empty, without


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart and its numbers: figures/NAME.svg and NAME.csv."""

    name: str
    chart: Chart
    table: Table
    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A question's part of a report; it is left out where the question has nothing to say."""

    id: str
    title: str
    note: str = ""
    """A paragraph about its tables."""
    sentences: Callable[[Story], Iterable[str]] = lambda _: ()
    tables: Callable[[Story], Iterable[Table]] = lambda _: ()
    pictures: Callable[[Story], Iterable[Picture]] = lambda _: ()
    cards: Callable[[Story], Iterable[VerdictCard]] = lambda _: ()
    """Cards, which stand first on the page."""
    lines: Callable[[Story], Iterable[str]] = lambda _: ()
    """Lines for a terminal when a run has ended; `--json` then has its tables."""
    answer: Callable[[Story], AnswerText | None] = lambda _: None
    """The section's answer to a run without trials; None if it has none."""
    page: Callable[[Story], Markup] | None = None
    """HTML of its own; None: sentences, pictures, then tables."""
    place: int = 100
    """Order on the page."""
    with_search: bool = True
    """The page of a single search has it as well."""

    def html(self, story: Story) -> Markup:
        """HTML of the section; empty if it says nothing."""
        if self.page is not None:
            return self.page(story)
        said = [escape.plain(words, longest=2000) for words in self.sentences(story)]
        tables = [bounded.shortened(without(table, empty(table))) for table in self.tables(story)]
        pictures = [picture for picture in self.pictures(story) if picture.chart]
        if not (said or tables or pictures):
            return Markup("")
        return rendered(
            "nodrop.report", "section.html.j2", story,
            section=self, said=said, tables=tables, pictures=pictures,
        )  # fmt: skip

    def as_json(self, story: Story) -> dict[str, Any]:
        """Numbers are raw, None = not measured."""
        tables = {table.name: objects(table) for table in self.tables(story)}
        return {"sentences": [*self.sentences(story)], "tables": tables}


def objects(table: Table) -> list[dict[str, Any]]:
    names = [column.name for column in table.columns]
    return [dict(zip(names, (v.raw for v in row.values), strict=True)) for row in table.rows]


KINDS: Mapping[str, type] = {"section": Section, "figure": Figure}


def sections() -> tuple[Section, ...]:
    """Sections that can be used, in the order of the page."""
    found = map(_found, of_table("section"))
    return tuple(sorted((s for s in found if isinstance(s, Section)), key=lambda one: one.place))


def unusable(*tables: str) -> list[NotReady]:
    """Sections and figures of other packages that cannot be used, and why."""
    found = (_found(plugin) for table in tables or KINDS for plugin in of_table(table))
    return [one for one in found if isinstance(one, NotReady)]


def verdicts(story: Story) -> tuple[VerdictCard, ...]:
    found = [card for section in sections() for card in section.cards(story)]
    return (*found, *verdict_cards(story))


def figures_of_others() -> tuple[Figure, ...]:
    return tuple(one for one in map(_found, of_table("figure")) if isinstance(one, Figure))


def sections_of_others() -> Sequence[Section]:
    built_in = {plugin.kind for plugin in of_table("section") if plugin.built_in}
    return [section for section in sections() if section.id not in built_in]


def _found(plugin: Plugin) -> Any:
    """The section or figure of an entry point, or the reason why it cannot be used."""
    try:
        one = plugin.load()
    except NotReady as error:
        return error
    if isinstance(one, KINDS[plugin.table]):
        return one
    return NotReady(f"{plugin}: {shown(one)} is no {KINDS[plugin.table].__name__}")


@cache
def environment(package: str) -> jinja2.Environment:
    """Templates of a question's package; `macros.html.j2` is the report's."""
    loaders = [*map(jinja2.PackageLoader, dict.fromkeys((package, "nodrop.report")))]
    found = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders), undefined=jinja2.StrictUndefined, autoescape=True,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    own = {
        "plain": escape.plain,
        "source": _source,
        "lost": lost_words,
        "kicker": kicker,
        "peak": peak_words,
        "aside": aside_words,
        "count_of": count_of,
        "unbroken": _unbroken,
        "headings": _headings,
        "thin": _thin,
        "told": _told,
        "begun": partial(re.sub, r"^[a-z](?=[a-z]* )", lambda found: found[0].upper()),
    }
    found.filters |= {**SHOWN, **own}
    return found


def _headings(page: str) -> list[tuple[str, Markup]]:
    """Id and title of each section of a page."""
    found = re.findall(r'<(?:section id="([\w-]+)" aria-label="|h2 id="h-([\w-]+)">)([^"<]+)', page)
    return [(labelled or headed, Markup(title)) for labelled, headed, title in found]


def _thin(words: str) -> str:
    """The page's numbers: narrow spaces before % and before the × of a load."""
    words = re.sub(r"(?<=\d)X\b", f"{escape.THIN}×", words)
    return re.sub(r"(?<=\d) (?=%)", escape.THIN, words)


def _told(words: str) -> Markup:
    """A sentence with the page's numbers, and its commands as such."""
    parts = enumerate(_thin(words).split("`"))
    return Markup("").join(Markup(f"<code>{escaped(p)}</code>") if n % 2 else p for n, p in parts)


def framed(template: str, package: str = "nodrop.report", **values: Any) -> str:
    """A page: one file that needs nothing else, and lets only its own script and style apply."""
    script, css = resource("page.js"), resource("chart.css") + resource("style.css")
    css = Markup(re.sub(r"([{};,:])\s+|\s+(?=[{}])", r"\1", str(css)))  # a tenth of it is space
    frame = {
        "css": css, "css_hash": _csp_hash(css), "js": script, "js_hash": _csp_hash(script),
        "version": nodrop.__version__, "who": (),
    }  # fmt: skip
    page = environment(package).get_template(template)
    return escape.visible(page.render(**frame | values))


def _csp_hash(text: Markup) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def resource(name: str) -> Markup:
    """Our own text, so it is not escaped; it holds no closing tag of its element."""
    return Markup((files("nodrop.report") / "templates" / name).read_text(encoding="utf-8"))


def rendered(package: str, template: str, story: Story, **values: Any) -> Markup:
    """A template with what every section may say."""
    return Markup(environment(package).get_template(template).render(**common(story), **values))


def common(story: Story) -> Mapping[str, Any]:
    between = hosts_between(story)
    return {
        "story": story,
        "told": bounded.told(story),
        # Under drawings with a mark per trial.
        "thinned": phrase("thinned") if len(story.trials) > bounded.MOST_MARKS else "",
        "other_hosts": between.text if between else "",
    }


def _unbroken(command: str) -> Markup:
    """An option stays with its value, and no word is broken after a hyphen in it."""
    parts = re.findall(r"--\S+ (?!-)\S+|\S+|\s+", command)
    return Markup("").join(tag("span", part) if part.strip() else part for part in parts)


def _source(text: str) -> str:
    """A file of the user's, line by line."""
    return "\n".join(escape.plain(line, longest=2000) for line in text.split("\n")[:2000])


HOSTS = Section(
    id="hosts", title="Hosts", note=Markup(WORDS["notes"]["hosts"]), tables=hosts_tables, place=10,
    with_search=False,
)  # fmt: skip
