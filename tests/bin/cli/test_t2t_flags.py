"""Errors for flags, hparams and problems of tensor2tensor name ours."""

import pytest


@pytest.mark.parametrize(
    ("command", "flag", "ours"),
    [
        ("trainer", "--hparams_set=transformer_base", "--hparams"),
        ("trainer", "--problems=wmt_ende", "--problem"),
        ("trainer", "--worker_gpu=2", "--replicas"),
        ("trainer", "--nouse_tpu", "remove it"),
        ("trainer", "--model=transformer", "remove it"),
        ("trainer", "--hparams=hidden_size=64", "--hparams_override"),
        ("trainer", "--hparams_override=batch_size=9", "batch_tokens"),
        ("trainer", "--hparams_override=pos=emb", "position_encoding"),
        ("trainer", "--problem=translate_ende_wmt32k", "wmt_ende"),
        ("datagen", "--problem=translate_enfr_wmt32k_rev", "wmt_enfr_rev"),
        ("datagen", "--tmp_dir=raw", "--raw_dir"),
        ("decoder", "--problem=parsing_english_ptb8k", "wsj_parsing"),
        ("decoder", "--decode_hparams=beam_size=4", "--beam_size"),
        ("evaluator", "--eval_use_test_set", "--split=test"),
        ("bleu", "--translation=hypotheses.txt", "--hypothesis"),
    ],
)
def test_the_error_for_a_tensor2tensor_name_has_our_name(
    run_command, command, flag, ours
):
    flags = [flag]
    if command in ("trainer", "decoder"):
        flags = ["--problem=wmt_ende", "--hparams=transformer_toy", flag]
    code, out, err = run_command(command, *flags)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert ours in err
