"""Images of this machine, in the cache of the receiver: the same bits, copied once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
    host: SshHost, images: Iterable[Image], note: Callable[[str], None]
) -> Iterator[Json]:
    """Those that the receiver lacks, with the path of each tar there."""
    for image in {one.sha256: one for one in images}.values():
        done = host.run(["sh", "-c", LOOK, "nodrop", image.name, image.sha256], check=False)
        if done.returncode != 0:
            note(f"image {image.name} {image.sha256[:12]} is copied to {host.name}")
            tar = copy_of(host, image.folder / "rootfs.tar")
            yield {"manifest": asdict(image), "tar": tar}


def images_of(experiment: Experiment, plan: Plan) -> Mapping[str, Image]:
    """As the experiment names it, or as its SUT does without a word → the image here. If this
    machine has none, the receiver's own is taken, or its own program."""
    found: dict[str, Image] = {}
    for cell in plan.cells:
        sut = plugins.build_sut(cell.sut, base=experiment.base)
        recipe, version = sut.needs_bits(), getattr(sut, "version", None)
        if recipe is None or cell.sut.get("binary"):
            continue
        try:
            bits = resolve_bits(cell.sut, recipe, base=experiment.base, version=version)
            if bits.kind == "image":
                found[str(cell.sut.get("image") or recipe)] = find_image(bits.sha256)
        except (BadInput, LabProblem):
            continue  # it may be there
    return found
