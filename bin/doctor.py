"""Check this machine, the data and a run.

The exit code is 1 if a check fails.
"""

import argparse
import contextlib
import functools
import shutil
import tempfile
from pathlib import Path

import psutil

from t2t_lite import plugins, registry
from t2t_lite.bin.cli import flags
from t2t_lite.bin.cli.command import Command
from t2t_lite.bin.cli.output import print_json
from t2t_lite.errors import T2TLiteError, UsageError, format_error
from t2t_lite.problem import Problem
from t2t_lite.progress import gib
from t2t_lite.tf_setup import num_cpus, start_tensorflow
from t2t_lite.training import options
from t2t_lite.training.config import find_config
from t2t_lite.training.problem_choice import choose_problem

_MIN_BYTES = 2 << 30  # of memory and of disk space, for a small training run


def _add_flags(parser: flags.Parser) -> None:
    parser.epilog = (
        "example: t2t-lite-doctor --problem=wmt_ende --hparams=transformer_big"
    )
    table = {
        "--problem=NAME": "problem whose data is checked",
        "--hparams=SET": "with --problem, for the default --output_dir",
        "--output_dir=DIR": "folder to check, with its run",
    }
    flags.add(parser, table)
    flags.add_settings(parser, options.TrainingOptions, ["data_dir", "usr_dir"])
    flags.add_json(parser)


def _run_checks(args: argparse.Namespace) -> None:
    plugins.load_plugins(args.usr_dir)
    output_dir = flags.folder(args.output_dir)
    data_dir = args.data_dir or flags.folder(options.DATA_DIR)
    if args.hparams:
        registry.hparams(args.hparams)  # raises an error for unknown names
    if args.problem and args.hparams and not output_dir:
        output_dir = options.default_output_dir(args.problem, args.hparams)
    checks = {"devices": _check_devices, "memory": _check_memory}
    config = None
    with contextlib.suppress(T2TLiteError):  # `_check_run` reports it
        config = find_config(output_dir) if output_dir else None
    if args.problem or config:
        try:
            problem, data_dir = choose_problem(
                args.problem, {}, args.data_dir, output_dir, config
            )
            checks["data"] = functools.partial(_check_data, data_dir, problem)
        except T2TLiteError as error:  # the run's data is missing
            if args.problem and isinstance(error, UsageError):
                raise
            finding = False, flags.options_to_flags(str(error))
            checks["data"] = lambda: finding
    checks["data_dir"] = functools.partial(_check_folder, data_dir)
    if output_dir:
        checks["output_dir"] = functools.partial(_check_folder, output_dir)
        checks["run"] = functools.partial(_check_run, output_dir, args.usr_dir)
    start_tensorflow(args.verbose)
    findings = []
    for name, check in checks.items():
        try:
            ok, text = check()
        except Exception as error:  # the other checks still run
            ok, text = False, flags.options_to_flags(format_error(error))
        findings.append({"name": name, "ok": ok, "text": text})
        if not args.json:
            mark = "ok" if ok else "FAIL"
            print(f"{mark:6}{name}: {' '.join(text.split())}", flush=True)
    failed = sum(not finding["ok"] for finding in findings)
    if args.json:
        print_json({"ok": not failed, "checks": findings})
    if failed:
        raise T2TLiteError(f"{failed} of {len(findings)} checks failed.")


def _check_devices() -> tuple[bool, str]:
    from t2t_lite.training import distribute

    usable = distribute.gpu_names()
    present = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if present > len(usable):
        return False, (
            f"TensorFlow can use {len(usable)} of {present} NVIDIA GPU(s): "
            "install 't2t-lite[gpu]', and check nvidia-smi and "
            "CUDA_VISIBLE_DEVICES"
        )
    cores = f"{num_cpus()} core(s) of {distribute.processor_name()}"
    return True, f"{', '.join(usable) or 'no GPU'}; {cores}"


def _check_memory() -> tuple[bool, str]:
    free = psutil.virtual_memory().available
    return free >= _MIN_BYTES, f"{gib(free)} available, 2 required"


def _check_folder(folder: Path) -> tuple[bool, str]:
    while not folder.exists():
        folder = folder.parent
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".doctor-"):
        free = shutil.disk_usage(folder).free
    return free >= _MIN_BYTES, f"{folder}: {gib(free)} free, 2 required"


def _check_data(data_dir: Path, problem: Problem) -> tuple[bool, str]:
    from t2t_lite.data.manifest import Manifest, check_data, check_shards

    if not Manifest.path(data_dir, problem).exists():
        return True, f"{data_dir} has no data of {problem.name} yet"
    manifest = Manifest.load(data_dir, problem)
    check_data(data_dir, problem, manifest)
    check_shards(data_dir, problem, manifest)
    pairs = sum(split.examples for split in manifest.splits.values())
    return True, f"{pairs:,} pairs; all checksums match"


def _check_run(output_dir: Path, usr_dir: str | None) -> tuple[bool, str]:
    from t2t_lite.training import checkpoints
    from t2t_lite.training.config import CONFIG
    from t2t_lite.training.run import Run

    if not (output_dir / CONFIG).exists():
        return True, f"{output_dir} has no run yet"
    run = Run.open(output_dir, usr_dir, to_decode=True)
    saved = checkpoints.list_checkpoints(run.checkpoints_dir)
    if not saved:
        return True, f"{output_dir} has no checkpoint yet"
    reader = checkpoints.Reader(saved[-1].path)
    reader.verify()
    tensors = len(reader.shapes)
    return True, f"step {saved[-1].step:,}: {tensors} tensors are readable"


main = Command("t2t-lite-doctor", __doc__, _add_flags, _run_checks)
