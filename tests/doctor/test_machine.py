import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from t2t_lite.doctor import machine
from t2t_lite.reports import hardware
from t2t_lite.training.fit import memory


@pytest.mark.parametrize(
    "version,fits",
    [((3, 10, 9), False), ((3, 11, 0), True), ((3, 13, 1), True)]
    + [((3, 14, 0), False)],
)
def test_pythons_that_are_tested_are_in_order(monkeypatch, version, fits):
    monkeypatch.setattr(sys, "version_info", version)
    (found,) = machine.check_python(None)
    assert found.ok == fits
    assert found.text.startswith(".".join(map(str, version)))
    assert ("use 3.11, 3.12 or 3.13" in found.text) != fits


def test_the_packages_that_are_here_fit_each_other():
    (found,) = machine.check_packages(None)
    assert found.ok, found.text
    assert f"tensorflow {metadata.version('tensorflow')}" in found.text


def test_packages_that_do_not_fit_are_named():
    installed = {"a": "1.5", "b": "2.0", "c": "3.0"}
    needed = {
        "top": ["a>=1,<2", "b>=1,<2", "gone>=4", 'c; extra == "dev"'],
        "a": ["c<3"],
    }

    def version(name):
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    assert list(machine.unmet("top", version, needed.get)) == [
        "top needs b<2,>=1; 2.0 is installed",
        "top needs gone>=4, which is not installed",
        "a needs c<3; 3.0 is installed",
    ]


def test_a_missing_package_is_something_to_do(monkeypatch):
    monkeypatch.setattr(machine, "unmet", lambda *a: iter(["x needs y"]))
    (found,) = machine.check_packages(None)
    assert (found.ok, found.text.startswith("x needs y. Install")) == (
        False,
        True,
    )


@pytest.mark.parametrize("there,ok", [(0, True), (1, True), (2, False)])
def test_a_gpu_that_tensorflow_does_not_see_is_something_to_do(
    monkeypatch, tmp_path, there, ok
):
    for number in range(there):
        (tmp_path / f"nvidia{number}").touch()
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(machine, "_DEVICES", tmp_path)
    monkeypatch.setattr(hardware, "gpu_names", lambda: ["H100"])
    (found,) = machine.check_devices(None)
    assert (found.ok, "pip install 't2t-lite[gpu]'" in found.text) == (
        ok,
        not ok,
    )


@pytest.mark.parametrize("kibibytes,ok", [(8 << 20, True), (1 << 20, False)])
def test_too_little_memory_is_something_to_do(
    monkeypatch, tmp_path, kibibytes, ok
):
    info = tmp_path / "meminfo"
    info.write_text(f"MemTotal: 9 kB\nMemAvailable: {kibibytes} kB\nHuge: 0\n")
    monkeypatch.setattr(memory, "_PROC", tmp_path)
    (found,) = machine.check_memory(None)
    assert (found.ok, "--dry_run" in found.text) == (ok, not ok)


def test_without_a_table_of_memory_all_of_it_is_free(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_PROC", tmp_path)
    monkeypatch.setattr(hardware, "memory_bytes", lambda: 7)
    assert machine.available_memory() == 7


def test_the_hardware_is_what_python_says_without_a_table(monkeypatch):
    def no_file(path, *rest):
        raise FileNotFoundError(path)

    monkeypatch.setattr(hardware.pathlib.Path, "read_text", no_file)
    platform = SimpleNamespace(processor=lambda: "", machine=lambda: "arm64")
    monkeypatch.setattr(hardware, "platform", platform)
    assert hardware.processor_name() == "arm64"
