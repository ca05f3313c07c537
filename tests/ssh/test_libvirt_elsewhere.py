"""A domain of libvirt on a receiver elsewhere: its own libvirtd and QEMU, reached by its nodrop."""

from __future__ import annotations

import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from nodrop.results.trial import TrialRecord
from tests.e2e.conftest import closes, only
from tests.ssh.pairs import receiver_there, runs_on
from tests.vm.libvirt_host import LOG, answering, bindings, definition, patiently, settle, start
from tests.vm.test_libvirt import LIBVIRT, NAME

# The same domain on this machine is in vm/test_libvirt.py.
pytestmark = [pytest.mark.timeout(600), pytest.mark.depth]


def test_its_domain_gets_a_nic_for_the_trial_alone(
    programs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "bindings").mkdir()
    libvirt = bindings(tmp_path / "bindings")
    with TemporaryDirectory(prefix="libvirtd-", ignore_cleanup_errors=True) as short:
        settle(folder := Path(short))
        (folder / LOG).touch()
        (tmp_path / "sensor1").mkdir()
        (tmp_path / "sensor1/at_boot").write_text(
            f"{shlex.join(start(folder))} >{folder / LOG} 2>&1 &\n"
        )
        with receiver_there(tmp_path) as pair, runs_on(pair, tmp_path) as run:
            uri = answering(folder, lambda: True)
            connection = libvirt.open(uri)
            virtual = connection.createXML(definition(NAME, folder))
            try:
                text = LIBVIRT.replace("{domain}", NAME).replace("{uri}", uri)

                def once() -> TrialRecord:
                    record = only(run(text=text))
                    assert record.valid and closes(record), record.verdict or record.error
                    return record

                record = patiently(virtual, once)
                assert record.offered.sent == record.packets.decoded_packets == 1000
                assert "<interface " not in virtual.XMLDesc()
                assert virtual.isActive(), "it is not ours to end"
            finally:
                virtual.destroy()
                connection.close()
