"""Workbooks of the studies: one sheet per sample, beside a `Summary` of uncomputed formulas."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from python_calamine import CalamineError, CalamineWorkbook

from nodrop.imports.archive import UnsafeArchiveError, check_archive
from nodrop.imports.names import BadNameError, parse_epoch
from nodrop.imports.samples import Sample, Samples, Skip, sample_of_rows
from nodrop.untrusted.folder import Folder

# Its cells are =MEDIAN(..) with a cached 0: a reader that trusts them reports an idle machine.
SUMMARY_SHEET = "Summary"


def read_workbook(path: Path) -> Samples:
    """Reads all samples of one workbook; no formula is evaluated, `Summary` is never opened."""
    try:
        content = Folder(path.parent).read(path.name)
        check_archive(content)
    except (OSError, UnsafeArchiveError) as error:
        return Samples(
            samples=(),
            skips=(Skip(reason="unreadable workbook", where=path.name, detail=str(error)),),
        )
    samples: list[Sample] = []
    skips: list[Skip] = []
    try:
        workbook = CalamineWorkbook.from_filelike(io.BytesIO(content))
        for sample, problems in _sheets(workbook, path.name):
            skips += problems
            if sample is not None:
                samples.append(sample)
    except (CalamineError, ValueError, OSError) as error:
        skips.append(Skip(reason="unreadable workbook", where=path.name, detail=str(error)))
    if not samples and not skips:
        skips.append(Skip(reason="workbook without samples", where=path.name))
    return Samples(samples=tuple(samples), skips=tuple(skips))


def _sheets(
    workbook: CalamineWorkbook, file_name: str
) -> Iterator[tuple[Sample | None, list[Skip]]]:
    seen: set[int] = set()
    for name in workbook.sheet_names:
        if name == SUMMARY_SHEET:
            continue
        where = f"{file_name}, sheet {name}"
        try:
            epoch_s = parse_epoch(name)
        except BadNameError:
            yield None, [Skip(reason="sheet is not a sample", where=where)]
            continue
        if epoch_s in seen:
            yield None, [Skip(reason="duplicate sample", where=where)]
            continue
        seen.add(epoch_s)
        header, *rows = workbook.get_sheet_by_name(name).to_python() or [[]]
        yield sample_of_rows(epoch_s, header, rows, where)
