"""A wrong experiment file, --set or lab file is one line of words before anything is touched."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodrop.config.experiment import Experiment, load_experiment
from nodrop.config.lab_file import find_lab, load_lab
from nodrop.config.options import parse_setting, put, read_toml
from nodrop.config.units import format_seconds, parse_bytes, parse_cpus
from nodrop.errors import BadInput, BadKey
from nodrop.plugins import build_lab

GOOD = """\
name = "demo"
question = "How much?"
[matrix]
"load.multiplier" = [1, 2, 4]
[sut]
kind = "sink"
service_rate_pps = 1000
[load]
kind = "replay"
trace = "make:demo"
"""


def written(tmp_path: Path, text: str = GOOD) -> Path:
    path = tmp_path / "demo.toml"
    path.write_text(text)
    return path


def load(tmp_path: Path, *settings: str, text: str = GOOD) -> Experiment:
    return load_experiment(written(tmp_path, text), settings)


def line(tmp_path: Path, *settings: str, text: str = GOOD) -> str:
    """The error, with the path of the file as F."""
    with pytest.raises(BadInput) as caught:
        load(tmp_path, *settings, text=text)
    assert "\n" not in str(caught.value)
    return caught.value.message.replace(str(tmp_path / "demo.toml"), "F")


def test_a_good_file(tmp_path: Path) -> None:
    found = load(tmp_path)
    assert (found.name, found.question, found.base) == ("demo", "How much?", tmp_path)
    assert found.matrix.dimensions == {"load.multiplier": (1, 2, 4)}
    assert (found.setup, found.sut) == (
        {"kind": "bare"},
        {"kind": "sink", "service_rate_pps": 1000},
    )
    assert found.load == {"kind": "replay", "trace": "make:demo"}
    assert (found.measure.repetitions, found.trial_count) == (3, 9)
    assert found.text == GOOD


def test_a_matrix_of_bare_keys_means_the_same(tmp_path: Path) -> None:
    text = GOOD.replace('"load.multiplier"', "load.multiplier")
    assert load(tmp_path, text=text).matrix.dimensions == {"load.multiplier": (1, 2, 4)}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"demo"', '"demo', "F: line 1, column "),
        ('name = "demo"', "", "F: name: "),
        ('"demo"', '"De mo"', 'F: name = "De mo": '),
        ("question", "qestion", "F: qestion: "),
        ('"How much?"', "3", "F: question = 3: "),
        ('kind = "sink"', "", "F: sut.kind: "),
        ("[1, 2, 4]", "[]", "F: matrix.load.multiplier = []: "),
        ("[1, 2, 4]", "3", "F: matrix.load.multiplier = 3: "),
        ("[1, 2, 4]", "[1, 2, 1.0]", "F: matrix.load.multiplier: 1.0 "),
        ('"load.multiplier"', '"laod.multiplier"', "F: matrix.laod.multiplier: "),
        ('"load.multiplier"', '"measure.seed"', "F: matrix.measure.seed: "),
        ('"load.multiplier"', '"setup"', "F: matrix.setup: "),
        (
            "[sut]",
            '"load.multiplier.x" = [1]\n[sut]',
            "F: matrix.load.multiplier and matrix.load.multiplier.x ",
        ),
        ("[sut]", "load.multiplier = [1]\n[sut]", "F: matrix.load.multiplier: "),
        ("[sut]", "[measure]\nrepetitons = 1\n[sut]", "F: measure.repetitons: "),
        ("[sut]", "[measure]\nrepetitions = 0\n[sut]", "F: measure.repetitions = 0: "),
        ("[sut]", "[measure]\nwarmup_s = -1\n[sut]", "F: measure.warmup_s = -1: "),
        ("[sut]", '[limits]\ncpus = "2-0"\n[sut]', 'F: limits.cpus = "2-0": '),
        ("[1, 2, 4]", str(list(range(400))), "F: 400 cells x 3 "),
    ],
)
def test_each_error_line_names_the_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert line(tmp_path, text=GOOD.replace(old, new)).startswith(said)


def test_many_trials_can_be_meant(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD.replace("[1, 2, 4]", str(list(range(400)))))
    assert load_experiment(path, most_trials=None).trial_count == 1200


@pytest.mark.parametrize("repetitions", [33_334, 1_000_000, 10**9, 9 * 10**18])
def test_no_yes_allows_more_than_a_report_is_made_of(tmp_path: Path, repetitions: int) -> None:
    path, setting = written(tmp_path), f"measure.repetitions={repetitions}"
    with pytest.raises(BadInput, match="100,000") as caught:
        load_experiment(path, [setting], most_trials=None)
    assert f"are {3 * repetitions:,} trials" in caught.value.message
    most = load_experiment(path, ["measure.repetitions=33333"], most_trials=None)
    assert most.trial_count == 99_999


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "F: "), (b"name = '\xff'", "F: not a TOML file: byte 8 ")],
)
def test_a_file_that_is_none(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "demo.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        load_experiment(path)
    assert caught.value.message.replace(str(path), "F").startswith(said)


def test_a_folder_is_no_experiment(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Is a directory"):
        load_experiment(tmp_path)


def test_set_changes_a_key_and_pins_it(tmp_path: Path) -> None:
    found = load(tmp_path, "load.multiplier=4", "measure.repetitions=2", "sut.rules=a b")
    assert found.matrix.dimensions == {}
    assert found.load["multiplier"] == 4
    assert found.measure.repetitions == 2
    assert found.sut["rules"] == "a b"


def test_set_changes_the_matrix(tmp_path: Path) -> None:
    found = load(tmp_path, "matrix.load.multiplier=[1, 8]", 'matrix.sut.defrag=["yes", "no"]')
    assert found.matrix.dimensions == {"load.multiplier": (1, 8), "sut.defrag": ("yes", "no")}
    assert load(tmp_path, "matrix.load.multiplier=").matrix.dimensions == {}


def test_an_empty_value_takes_a_key_away(tmp_path: Path) -> None:
    assert "service_rate_pps" not in load(tmp_path, "sut.service_rate_pps=").sut


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("load", ""),
        ("a b=1", "'a b' "),
        ("measure.repetitons=2", "measure.repetitons: "),
        ("lod.pps=2", "lod: "),
        ("measure.repetitions=two", 'measure.repetitions = "two": '),
        ("matrix.load.multiplier=[]", "matrix.load.multiplier = []: "),
        ("matrix.measure.seed=[1]", "matrix.measure.seed: "),
        ("measure.warmup_s=1e300", "measure.warmup_s = 1e+300: "),
        ("name.x=1", "name "),
    ],
)
def test_a_setting_and_its_key_are_named(tmp_path: Path, setting: str, said: str) -> None:
    assert line(tmp_path, setting).startswith(f"--set {setting}: {said}")


def test_a_set_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^--set load\.trace=.*: is not UTF-8"):
        parse_setting("load.trace=t\udcff")


def test_of_two_settings_of_a_key_the_last_is_blamed(tmp_path: Path) -> None:
    said = line(tmp_path, "measure.seed=-2", "measure.seed=-1")
    assert said.startswith("--set measure.seed=-1: measure.seed = -1")


def test_of_keys_that_do_not_fit_together_the_last_set_is_blamed(tmp_path: Path) -> None:
    capacity = ("measure.mode=capacity", "search.rounds=2")
    said = line(tmp_path, *capacity, "search.min=5", "search.max=3", "search.by=pps")
    assert said.startswith("--set search.max=3: search = ")
    said = line(tmp_path, "search.min=5", *capacity, text=GOOD + "[search]\nmax = 3\n")
    assert said.startswith("--set search.min=5: search = ")


def test_an_error_keeps_its_data_when_its_place_is_named() -> None:
    error = BadKey("sut.x", "no such key", hint="leave it out", unknown=True).at("my.toml")
    assert str(error) == "my.toml: sut.x: no such key; leave it out"
    assert (error.key, error.keys, error.unknown) == ("sut.x", ("sut.x",), True)


def test_counters_of_the_cpu_are_the_profilers(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"measure.hardware = true: .*measure.profile = true"):
        load(tmp_path, "measure.hardware=true")
    asked = load(tmp_path, "measure.hardware=true", "measure.profile=true")
    assert asked.measure.hardware and asked.measure.profile


def test_put_meets_a_key_with_dots_as_a_whole() -> None:
    table = {"overrides": {"stream.memcap": "1gb"}}
    put(table, ("overrides", "stream", "memcap"), "2gb")
    assert table == {"overrides": {"stream.memcap": "2gb"}}


def test_the_default_lab() -> None:
    lab = load_lab()
    assert lab.path.name == "netns.toml"
    assert (lab.kind, lab.table["mtu"]) == ("netns", 9000)
    assert build_lab(lab).ports == ("ndtx0", "ndrx0")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('name = "x"\nkind = "vlan"', 'F: kind = "vlan": '),
        ('name = "x"\nkind = "netns"\nmtu = 10', "F: mtu = 10: "),
        ('name = "x"\nkind = "netns"\n[sender]\nhst = "a"\nport = "p"', "F: sender.hst: "),
        (
            'name = "x"\nkind = "netns"\n[sender]\nhost = "rx"\nport = "p"',
            'F: receiver.host = "rx": ',
        ),
    ],
)
def test_lab_error_lines(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "lab.toml"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        build_lab(load_lab(str(path)))
    assert caught.value.message.replace(str(path), "F").startswith(said)


def test_an_unknown_lab_names_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"--lab netsn: no such lab; did you mean netns\?"):
        find_lab("netsn")


def test_units() -> None:
    assert [parse_bytes(t) for t in ("7", "512MiB", "1.5 kB")] == [7, 536870912, 1500]
    assert [format_seconds(s) for s in (1.23, 59.6, 75, 7300)] == [
        "1.2 s",
        "1 min 0 s",
        "1 min 15 s",
        "2 h 1 min",
    ]
    for beyond in (1e300, float("inf")):  # of a trace at a speed of 1e-320
        assert format_seconds(beyond) == "more than 1,000 years"
    assert parse_cpus("0-2,5,1") == (0, 1, 2, 5)
    for wrong in ("", "a", "3-1", "1-", "99999999"):
        with pytest.raises(ValueError, match="list of CPUs"):
            parse_cpus(wrong)


KEYS = st.sampled_from(
    ["load", "sut", "limits", "measure", "matrix", "kind", "name", "multiplier", "x", '"a.b"']
)
VALUES = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["1", "-1", "1e400", "[]", "[1, 1]", "[[1], [1]]", "{a = 1}", "{a = {b = []}}"]
    ),
    st.sampled_from(["nan", "1979-05-27", "07:32:00", "true", "[[[]]]", '"512MiB"', "1\nx = 2"]),
)


@given(st.lists(st.tuples(st.lists(KEYS, min_size=1, max_size=4), VALUES), max_size=4))
def test_no_setting_ends_in_anything_but_one_line(
    tmp_path_factory: pytest.TempPathFactory, settings: list[tuple[list[str], str]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.toml"
    path.write_text(GOOD)
    try:
        load_experiment(path, [f"{'.'.join(keys)}={value}" for keys, value in settings])
    except BadInput as error:
        assert len(error.message.splitlines()) == 1


@pytest.mark.parametrize("text", ['name = "x"\n[a]\nb = 1\n', "# only words\n"])
def test_a_byte_order_mark_is_no_part_of_a_toml_file(tmp_path: Path, text: str) -> None:
    """Editors of other systems begin a file with one; labs and fleets are read the same way."""
    plain, marked = tmp_path / "plain.toml", tmp_path / "marked.toml"
    plain.write_text(text)
    marked.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert read_toml(marked) == read_toml(plain)


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("a.cap", b"\xd4\xc3\xb2\xa1"),
        ("a b", b"\xa1\xb2\x3c\x4d"),
        ("a", b"\n\r\r\n"),
        ("a", b"snoop"),
        ("a.pcap.gz", b"\x1f\x8b"),
    ],
)
@pytest.mark.parametrize("size", [0, 2 << 20])
def test_a_capture_in_place_of_an_experiment_leads_to_capacity(
    tmp_path: Path, name: str, begin: bytes, size: int
) -> None:
    path = tmp_path / name
    path.write_bytes(begin + bytes(size))
    with pytest.raises(BadInput, match="is a capture") as said:
        load_experiment(path)
    assert said.value.hint == f"to measure with it: nodrop capacity {shlex.quote(str(path))}"
