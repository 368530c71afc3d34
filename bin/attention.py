"""Visualize the attention of a trained model in a web page.

The page shows all layers and heads of encoder, decoder and cross-attention for
one text and its translation. It works without a server and a network.
"""

import argparse

from t2t_lite.bin.cli import flags, runs
from t2t_lite.bin.cli.command import Command
from t2t_lite.validators import condition


def _add_flags(parser: flags.Parser) -> None:
    texts = {
        "--text=TEXT": "source text",
        "--target=TEXT": "its translation (default: the model's)",
    }
    flags.add(parser, texts, condition("a text that is not blank", str.strip))
    help_text = "output file (default: OUTPUT_DIR/attention.html)"
    flags.add(parser, {"--html_file=FILE": help_text})
    flags.add_run_flags(parser)
    flags.add_search_flags(parser, batches=False)


def show(args: argparse.Namespace) -> None:
    """Write the page and print its path."""
    flags.require(args, "text")
    run = runs.open_run(args)
    translator, _ = runs.make_translator(run, args)
    from t2t_lite import files
    from t2t_lite.serving.page.attention_page import (
        compute_attention,
        render_page,
    )

    path = flags.folder(args.html_file) or run.output_dir / "attention.html"
    page = render_page(compute_attention(translator, args.text, args.target))
    files.write_text(path, page)
    print(path)


main = Command("t2t-lite-attention", __doc__, _add_flags, show)
