"""A model of tensor2tensor, from its folder to an export."""

import json
import shutil

import pytest

from support.lines import write
from support.places import SHARED_DATA

RECORDED = SHARED_DATA / "t2t"
TEXT = "A man in an orange hat is looking at something."

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not RECORDED.is_dir(),
        reason=f"needs tensor2tensor's recordings in {RECORDED}",
    ),
]


def test_imported_checkpoint_works_with_all_commands(run_command, tmp_path):
    train, data = tmp_path / "t2t_train", tmp_path / "t2t_data"
    shutil.copytree(RECORDED / "decode/ckpt", train)
    shutil.copy(
        RECORDED / "forward/base_v3_small.hparams.json", train / "hparams.json"
    )
    (train / "flags.txt").write_text("--problem=translate_ende_m30k\n")
    data.mkdir()
    for shard in (RECORDED / "records").glob("translate_ende_m30k-*"):
        shutil.copy(shard, data)
    vocabulary = data / "vocab.translate_ende_m30k.1000.subwords"
    shutil.copy(RECORDED / "vocab.m30k_ende.1000.subwords", vocabulary)
    decode = RECORDED / "decode"
    meta = json.loads((decode / "meta.json").read_text("utf-8"))

    def succeed(module, *flags):
        code, out, err = run_command(module, *flags)
        assert code == 0, err
        return out, err

    t2t_flags = [f"--vocabulary={vocabulary}"]
    succeed(
        "datagen",
        f"--import_shards={data}",
        "--problem=translate_ende_m30k",
        *t2t_flags,
    )
    run = f"--output_dir={tmp_path / 'run'}"
    t2t_flags += [f"--t2t_dir={train}", f"--data_dir={data}"]
    _, err = succeed("import_t2t", *t2t_flags, run)
    assert "after update 1200" in err
    texts = write(tmp_path / "texts", [TEXT])
    out, _ = succeed("decoder", run, f"--decode_from_file={texts}")
    assert out.startswith(meta["beam4_a0.6_top1_len50.text"][0][:20])
    out, _ = succeed("evaluator", run, "--split=test", "--json")
    assert json.loads(out)["sentences"] == 5
    export = f"--export_dir={tmp_path / 'export'}"
    _, err = succeed("exporter", run, export, "--verify")
    assert "Verified" in err
    out, _ = succeed("trainer", run, "--train_steps=1202")
    assert "step: 1202" in out
    out, _ = succeed("average_checkpoints", run, "--num_checkpoints=2")
    assert "average-2-step-00001202" in out
