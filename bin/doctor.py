"""Check this machine, the data and a run.

The exit code is 1 if a check fails.
"""

import argparse
import json

from t2t_lite import plugins, registry
from t2t_lite.bin.cli import flags
from t2t_lite.bin.cli.command import Command
from t2t_lite.errors import T2TLiteError
from t2t_lite.training.config import find_config
from t2t_lite.training.options import (
    DATA_DIR,
    TrainingOptions,
    default_output_dir,
)
from t2t_lite.training.problem_choice import choose_problem


def _add_flags(parser: flags.Parser) -> None:
    parser.epilog = (
        "example: t2t-lite-doctor --problem=wmt_ende --hparams=transformer_big"
    )
    where = {
        "--problem=NAME": "also check its data",
        "--hparams=SET": "with --problem, the default --output_dir",
        "--output_dir=DIR": "also check this folder and the run in it",
    }
    flags.add(parser, where)
    flags.add_settings(parser, TrainingOptions, ["data_dir", "usr_dir"])
    flags.add_json(parser)


def examine(args: argparse.Namespace) -> None:
    """Print the finding of each check."""
    plugins.load_plugins(args.usr_dir)
    output_dir, problem = flags.folder(args.output_dir), None
    data_dir = args.data_dir or flags.folder(DATA_DIR)
    if args.hparams:
        registry.hparams(args.hparams)  # an unknown name is an error
    if args.problem and args.hparams and not output_dir:
        output_dir = default_output_dir(args.problem, args.hparams)
    if args.problem:
        config = find_config(output_dir) if output_dir else None
        problem, data_dir = choose_problem(
            args.problem, {}, args.data_dir, output_dir, config
        )
    from t2t_lite import doctor
    from t2t_lite.runtime import start_tensorflow

    start_tensorflow(args.verbose)
    findings = []
    for finding in doctor.examine(data_dir, output_dir, problem, args.usr_dir):
        findings.append(finding)
        if not args.json:
            mark = "ok" if finding.ok else "TO DO"
            text = " ".join(finding.text.split())
            print(f"{mark:6}{finding.name}: {text}", flush=True)
    problems = sum(not finding.ok for finding in findings)
    if args.json:
        checks = [finding._asdict() for finding in findings]
        print(json.dumps({"ok": not problems, "checks": checks}))
    if problems:
        raise T2TLiteError(f"{problems} of {len(findings)} checks failed.")


main = Command("t2t-lite-doctor", __doc__, _add_flags, examine)
