"""Images of this machine, in the cache of the receiver: the same bits, copied once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict

from nodrop import plugins
from nodrop.config.experiment import Experiment
from nodrop.elsewhere.inputs import copy_of
from nodrop.errors import BadInput, LabProblem
from nodrop.hosts.seam import Json
from nodrop.hosts.ssh import SshHost
from nodrop.images.choice import find_image, resolve_bits
from nodrop.images.image import Image
from nodrop.measure.plan import Plan

LOOK = 'test -f "/root/.cache/nodrop/images/$1/$2/manifest.json"'


def copied_images(
    host: SshHost, experiment: Experiment, plan: Plan, note: Callable[[str], None]
) -> Iterator[Json]:
    """Those that the receiver lacks, with the path of each tar there. If this machine has none,
    the receiver's own are taken, or its own program."""
    for image in _images(experiment, plan):
        done = host.run(["sh", "-c", LOOK, "nodrop", image.name, image.sha256], check=False)
        if done.returncode != 0:
            note(f"image {image.name} {image.sha256[:12]} is copied to {host.name}")
            tar = copy_of(host, image.folder / "rootfs.tar")
            yield {"manifest": asdict(image), "tar": tar}


def _images(experiment: Experiment, plan: Plan) -> list[Image]:
    found: dict[str, Image] = {}
    for cell in plan.cells:
        recipe = plugins.build_sut(cell.sut, base=experiment.base).needs_bits()
        if recipe is None or cell.sut.get("binary"):
            continue
        try:
            bits = resolve_bits(cell.sut, recipe, base=experiment.base)
            if bits.kind == "image":
                found[bits.sha256] = find_image(bits.sha256)
        except (BadInput, LabProblem):
            continue  # it may be there
    return list(found.values())
