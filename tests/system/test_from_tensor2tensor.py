"""A model of tensor2tensor, from its folder to an export."""

import json
import shutil

import pytest

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


def test_imported_checkpoint_works_with_all_commands(run_process, tmp_path):
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
        done = run_process(module, *flags)
        assert done.returncode == 0, done.stderr
        return done

    succeed(
        "datagen",
        f"--import_shards={data}",
        "--problem=translate_ende_m30k",
        f"--vocabulary={vocabulary}",
    )
    run = tmp_path / "run"
    done = succeed(
        "import_t2t",
        f"--t2t_dir={train}",
        f"--vocabulary={vocabulary}",
        f"--data_dir={data}",
        f"--output_dir={run}",
    )
    assert "after update 1200" in done.stderr
    texts = tmp_path / "texts"
    texts.write_text(f"{TEXT}\n")
    done = succeed(
        "decoder", f"--output_dir={run}", f"--decode_from_file={texts}"
    )
    before = done.stdout
    assert before.startswith(meta["beam4_a0.6_top1_len50.text"][0][:20])
    done = succeed("evaluator", f"--output_dir={run}", "--split=test", "--json")
    assert json.loads(done.stdout)["sentences"] == 5
    export = succeed(
        "exporter",
        f"--output_dir={run}",
        f"--export_dir={tmp_path / 'export'}",
        "--verify",
    )
    assert "Verified" in export.stderr
    done = succeed("trainer", f"--output_dir={run}", "--train_steps=1202")
    assert "step: 1202" in done.stdout
    done = succeed(
        "average_checkpoints", f"--output_dir={run}", "--num_checkpoints=2"
    )
    assert "average-2-step-00001202" in done.stdout
