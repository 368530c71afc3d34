"""The flags of the decoder that tell more of each answer, or choose one."""

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t2t_lite.bin.cli import flags
from t2t_lite.errors import UsageError

if TYPE_CHECKING:
    from t2t_lite.decoding.engine import Engine
    from t2t_lite.decoding.token_details import TokenDetails


def add_flags(parser: flags.Parser) -> None:
    """Adds the group of these flags."""
    group = parser.add_argument_group("what else is told of an answer")
    told = {
        "--token_scores": "with --format=json, the log-probability and the "
        "piece of each token; --score tells them anyway",
        "--summary": "with --score, only one report on all of the pairs: "
        "cross-entropy and perplexity",
    }
    flags.add(group, told)
    group.add_argument(
        "--alignment",
        choices=["tokens", "words"],
        help="which of the source each token or word is from, as `0-0 1-2` "
        "(source-target) behind ` ||| `, or in JSON",
    )
    layer = "the decoder layer that --alignment asks (default: last but one)"
    flags.add(group, {"--alignment_layer=N": layer}, flags.at_least(1))
    group.add_argument(
        "--mbr",
        choices=["chrf"],
        help="of the --nbest=N translations of a line (default: --beam_size) "
        "give the one that is most like all of them; JSON has them all, with "
        "their utility",
    )


def check(args: argparse.Namespace) -> None:
    """Refuses what does not go together."""
    if args.token_scores and (args.format != "json" or args.score):
        raise UsageError(
            "--token_scores is for hypotheses in JSON: give --format=json, "
            "with which --score tells them by itself."
        )
    if args.summary and (not args.score or args.alignment):
        raise UsageError(
            "--summary reports on pairs: give --score, without --alignment."
        )
    if args.alignment and args.draw:
        raise UsageError("--alignment does not go with --draw.")
    if args.alignment_layer and not args.alignment:
        raise UsageError("--alignment_layer needs --alignment=tokens or words.")
    if args.mbr and args.score:
        raise UsageError("--mbr chooses a translation: leave out --score.")


def token_details(
    translator: "Engine", args: argparse.Namespace
) -> "TokenDetails | None":
    """What the flags ask of each token; None: nothing."""
    pairs_in_json = args.score and args.format == "json" and not args.summary
    if not (args.token_scores or args.alignment or pairs_in_json):
        return None
    from t2t_lite.decoding.token_details import TokenDetails

    return TokenDetails(
        translator,
        token_scores=args.token_scores,
        alignment=args.alignment,
        alignment_layer=args.alignment_layer,
    )


def with_alignment(text: str, alignment: Sequence[Sequence[int]] | None) -> str:
    """The text, and behind it its alignment if there is one."""
    if alignment is None:
        return text
    from t2t_lite.decoding.token_details import pharaoh

    return f"{text} ||| {pharaoh(alignment)}"


def as_text(summary: Mapping[str, Any]) -> str:
    """A summary on one line, to read; "none" stands for None."""
    return "  ".join(
        f"{name} {_shown(value)}" for name, value in summary.items()
    )


def _shown(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
