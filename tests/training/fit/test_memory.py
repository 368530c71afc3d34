"""What a process takes, and what the kernel lets it take."""

import numpy as np
import pytest

from t2t_lite.training.fit import memory


def test_what_a_process_takes_is_seen():
    memory.restart_peak()
    before = memory.peak_bytes()
    taken = np.ones(50 * 2**20 // 8)
    assert memory.peak_bytes() - before > 40 * 2**20
    del taken


def test_there_is_more_than_is_taken():
    assert memory.limit_bytes() > 2**20


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A made-up /proc of a process with 100 MB, on a machine with 900 free."""
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self/status").write_text("VmHWM:\t 200 kB\nVmRSS:\t 100000 kB\n")
    (proc / "meminfo").write_text("MemFree: 1 kB\nMemAvailable:  900000 kB\n")
    groups.mkdir()
    monkeypatch.setattr(memory, "_PROC", proc)
    monkeypatch.setattr(memory, "_CGROUPS", groups)
    return proc, groups


def group(folder, limit, usage, limit_name, usage_name, stat):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / limit_name).write_text(limit)
    (folder / usage_name).write_text(usage)
    (folder / "memory.stat").write_text(stat)


def test_without_a_control_group_the_machine_is_the_limit(system):
    assert memory.limit_bytes() == 1_000_000 * 1024
    assert memory.peak_bytes() == 200 * 1024


def test_the_narrowest_control_group_is_the_limit(system):
    proc, groups = system
    (proc / "self/cgroup").write_text("0::/pod/job\n")
    names = ("memory.max", "memory.current", "inactive_file 50\nfile 70\n")
    group(groups / "pod", "3000", "1000", *names)
    group(groups / "pod/job", "max", "1000", *names)
    assert memory.limit_bytes() == 100_000 * 1024 + 2050
    assert memory.free_bytes() == 2050


def test_control_groups_of_version_1_count(system):
    proc, groups = system
    (proc / "self/cgroup").write_text("3:cpu:/a\n2:memory:/a\n0::/\n")
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    stat = "inactive_file 1\ntotal_inactive_file 7\n"
    group(groups / "memory/a", "5000", "4000", *names, stat)
    assert memory.limit_bytes() == 100_000 * 1024 + 1007


def test_a_system_that_tells_nothing_sets_no_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_PROC", tmp_path)
    assert memory.limit_bytes() is None
    memory.restart_peak()
    assert memory.peak_bytes() > 2**20
