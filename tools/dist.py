"""Wheel and sdist, built and checked: `make dist`.

Twice the same bytes: the second wheel is built from the unpacked sdist, elsewhere, with a cargo
target folder of its own. Then twine and check-wheel-contents look at them, the node is seen to be
static, the wheel is installed alone and weighed, licences of all packages and crates are held
against a list, and a CycloneDX SBOM of both languages is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import uuid
import venv
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from wheel_node import machine_of_static

ROOT = Path(__file__).parents[1]
MOST_INSTALLED_BYTES = 120_000_000
"""Of nodrop and what it needs: numpy is 60 % of it."""
DEMO = ROOT / "experiments/demo-sink.toml"
COMMANDS_BESIDE = {
    "nodrop_studies": (0, ["import", "cs590", "--help"]),
    "nodrop_fleet": (2, ["run", str(DEMO), "--fleet", "none.toml"]),
}
"""Package beside nodrop → exit code with it, and a command that it brings."""
ALLOWED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause",
    "BSL-1.0", "CC0-1.0", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "Python-2.0",
    "Unicode-3.0", "Unlicense", "Zlib",
}  # fmt: skip
"""SPDX names that go with Apache-2.0 in one program, or in packages beside it."""
OLDER_NAMES = {
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}
"""Trove's words, and such as authors write → SPDX."""
OF_PACKAGES = """
import json
from importlib.metadata import distributions
print(json.dumps([
    {"name": d.metadata["Name"], "version": d.version,
     "license": d.metadata["License-Expression"] or d.metadata["License"] or "",
     "trove": [c for c in d.metadata.get_all("Classifier") or () if c.startswith("License ::")]}
    for d in distributions()
]))
"""


def run(*argv: str | Path, **more: Any) -> str:
    done = subprocess.run([*map(str, argv)], text=True, stdout=subprocess.PIPE, **more)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, argv))}: exit code {done.returncode}\n{done.stdout}")
    return str(done.stdout)


def main() -> None:
    out = ROOT / "dist"
    for old in out.glob("*") if out.is_dir() else ():
        old.unlink()
    epoch = run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    build(ROOT, out, environment)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder)
        with tarfile.open(sdist) as tar:
            tar.extractall(again, filter="data")
        (sources,) = again.iterdir()
        own = {**environment, "CARGO_TARGET_DIR": str(again / "target")}
        build(sources, again / "dist", own)
        for name in (sdist.name, wheel.name):
            must_be_same(out / name, again / "dist" / name)
        node(wheel, again)
        beside = siblings(out, sources, again, environment)
        alone, *_, everything = installed(wheel, beside, again)
    python = Path(sys.executable)
    run(python, "-m", "twine", "check", "--strict", sdist, wheel, *beside)
    run(python.with_name("check-wheel-contents"), wheel, *beside)
    crates = crates_of_node()
    allowed([*everything, *crates])
    sbom = out / f"{sdist.name.removesuffix('.tar.gz')}.cdx.json"
    sbom.write_text(bill(alone, crates, wheel, int(epoch)))
    sums = "".join(f"{sha256(path)}  {path.name}\n" for path in (sdist, wheel, *beside, sbom))
    (out / "SHA256SUMS").write_text(sums)
    print(sums, end="")


def build(sources: Path, out: Path, environment: dict[str, str]) -> None:
    run(sys.executable, "-m", "hatchling", "build", "-d", out, cwd=sources, env=environment)


def siblings(out: Path, sources: Path, scratch: Path, environment: dict[str, str]) -> list[Path]:
    """Wheels of the packages beside nodrop, each built twice."""
    found = []
    for folder in sorted((ROOT / "packages").iterdir()):
        for where, to in ((ROOT, out), (sources, scratch / "beside")):
            run(
                sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", to,
                cwd=where / "packages" / folder.name, env=environment,
            )  # fmt: skip
        (wheel,) = out.glob(f"{folder.name.replace('-', '_')}-*.whl")
        must_be_same(wheel, scratch / "beside" / wheel.name)
        found.append(wheel)
    return found


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def must_be_same(one: Path, other: Path) -> None:
    if sha256(one) != sha256(other):
        raise SystemExit(f"{one.name}: two builds have different bytes: {one}, {other}")
    print(f"{one.name}: two builds, the same {one.stat().st_size:,} bytes")


def node(wheel: Path, scratch: Path) -> None:
    """The node that is in the wheel is static, for the wheel's machine, and may be executed."""
    with zipfile.ZipFile(wheel) as archive:
        (entry,) = (e for e in archive.infolist() if e.filename.endswith("/nodrop-node"))
        program = Path(archive.extract(entry, scratch))
    machine = machine_of_static(program)
    if f"_{machine}.whl" not in wheel.name or not entry.external_attr >> 16 & 0o111:
        raise SystemExit(f"{wheel.name}: its node is for {machine}, or may not be executed")
    print(f"node: static, {machine}, {program.stat().st_size:,} bytes")


def installed(wheel: Path, beside: list[Path], scratch: Path) -> list[list[dict[str, Any]]]:
    """Packages of the wheel installed as locked: alone, with each package beside it, and with all.
    Each is weighed; without a package its command names it."""
    found = []
    for more in ([], *([one] for one in beside), beside):
        names = [one.name.partition("-")[0] for one in (wheel, *more)]
        folder = scratch / "+".join(names)
        packages = environment(folder, [wheel, *more])
        (site,) = folder.glob("lib/python3*/site-packages")
        weight = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
        print(f"{', '.join(names)}: {weight / 1e6:.0f} MB installed, {len(packages)} packages")
        found.append(packages)
        if not more:
            print(run(folder / "bin/nodrop", "--version").strip())
            if weight > MOST_INSTALLED_BYTES:
                raise SystemExit(f"more than {MOST_INSTALLED_BYTES / 1e6:.0f} MB")
        for package, (right, words) in COMMANDS_BESIDE.items():
            argv = [folder / "bin/nodrop", *words]
            done = subprocess.run(argv, cwd=scratch, capture_output=True, text=True)
            missing = package not in names
            if (package.replace("_", "-") in done.stderr) != missing or done.returncode != (
                2 if missing else right
            ):
                raise SystemExit(f"{names}: {words}: {done.returncode}: {done.stderr}")
    return found


def environment(folder: Path, wheels: list[Path]) -> list[dict[str, Any]]:
    """A new one, without pip, as pipx and uv make it; what is in it then."""
    venv.create(folder)
    locked = folder / "locked"
    text = (ROOT / "requirements.lock").read_text()
    locked.write_text(re.sub(r" *\\\n( +--hash=\S+( \\)?\n)+", "\n", text))
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    run(*pip, "--constraint", locked, *wheels)
    found: list[dict[str, Any]] = json.loads(run(python, "-c", OF_PACKAGES))
    return found


def crates_of_node() -> list[dict[str, Any]]:
    """Crates that are linked into the node."""
    metadata = json.loads(
        run("cargo", "metadata", "--format-version=1", "--locked", "--quiet", cwd=ROOT)
    )
    nodes = {one["id"]: one for one in metadata["resolve"]["nodes"]}
    crates = {one["id"]: one for one in metadata["packages"]}
    wanted = [one["id"] for one in metadata["packages"] if one["name"] == "nodrop-node"]
    seen: set[str] = set()
    while wanted:
        here = wanted.pop()
        if here not in seen:
            seen.add(here)
            wanted += [
                dep["pkg"]
                for dep in nodes[here]["deps"]
                if any(kind["kind"] is None for kind in dep["dep_kinds"])
            ]
    return [
        {"name": one["name"], "version": one["version"], "license": one["license"], "crate": True}
        for one in sorted((crates[each] for each in seen), key=lambda one: str(one["name"]))
    ]


def spdx(one: dict[str, Any]) -> str:
    """The licence by its SPDX names, from whichever field has it."""
    text = one["license"] or ""
    if not text or len(text) > 80:
        text = " AND ".join(words.rpartition(" :: ")[2] for words in one.get("trove", ()))
    return OLDER_NAMES.get(text, text).replace("/", " OR ")


def allowed(parts: list[dict[str, Any]]) -> None:
    wrong = []
    for one in parts:
        choices = [choice.strip(" ()") for choice in re.split(r" OR ", spdx(one))]
        if not any(
            all(each.strip(" ()") in ALLOWED for each in choice.split(" AND "))
            for choice in choices
        ):
            wrong.append(f"{one['name']} {one['version']}: {spdx(one) or 'no licence'}")
    if wrong:
        raise SystemExit("licences that are not in the list:\n" + "\n".join(wrong))
    print(f"licences: {len(parts)} packages and crates, all allowed")


def bill(packages: list[dict[str, Any]], crates: list[dict[str, Any]], wheel: Path, at: int) -> str:
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, sha256(wheel)))
    bom.metadata.timestamp = datetime.fromtimestamp(at, UTC)
    for one in [*packages, *crates]:
        words = spdx(one)
        plain = " " not in words
        licence = DisjunctiveLicense(id=words) if plain else LicenseExpression(words)
        kind = "cargo" if "crate" in one else "pypi"
        purl = PackageURL(kind, name=one["name"].lower(), version=one["version"])
        bom.components.add(
            Component(
                name=one["name"],
                version=one["version"],
                type=ComponentType.LIBRARY,
                purl=purl,
                bom_ref=str(purl),
                licenses=[licence],
            )
        )
    made = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    return str(made.output_as_string(indent=1)) + "\n"


if __name__ == "__main__":
    main()
