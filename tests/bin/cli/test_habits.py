"""tensor2tensor's names are understood, or refused with what to use."""

import importlib
import json
import shutil

import pytest

from t2t_lite import plugins, registry
from t2t_lite.bin.cli import habits, old_names
from t2t_lite.bin.cli.old_hparams import hparams_here
from t2t_lite.errors import UsageError


def todays(command, *words):
    parser = importlib.import_module(f"t2t_lite.bin.{command}").make_parser()
    return habits.todays_words(parser, words)


def test_todays_flags_are_left_alone():
    words = [
        "--problem=wmt_ende",
        *("--hparams", "transformer_base", "--hparams_override=num_heads=4"),
        *("--train_steps=5", "--data_dir", "x", "--output_dir=y"),
    ]
    assert todays("trainer", *words) == (words, "")
    words = ["--problem=x", "--runner=DirectRunner", "--", "--model=lstm"]
    assert todays("datagen", *words) == (words, "")


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [
        (
            "trainer",
            "--hparams_set=transformer_toy",
            "--hparams=transformer_toy",
        ),
        ("trainer", "--t2t_usr_dir=me", "--usr_dir=me"),
        ("trainer", "--tmp_dir=raw", "--raw_dir=raw"),
        ("trainer", "--local_eval_frequency=50", "--eval_steps_every=50"),
        ("trainer", "--keep_checkpoint_max=3", "--keep_checkpoints=3"),
        ("trainer", "--save_checkpoints_secs=90", "--save_minutes=1.5"),
        ("trainer", "--save_checkpoints_secs=0", ""),
        ("trainer", "--random_seed=7", "--seed=7"),
        ("trainer", "--warm_start_from=old", "--init_from=old"),
        ("trainer", "--model=transformer", ""),
        ("trainer", "--eval_steps=10", ""),
        ("trainer", "--schedule=continuous_train_and_eval", ""),
        ("trainer", "--generate_data", ""),
        ("trainer", "--nogenerate_data", ""),
        ("trainer", "--xla_compile", "--jit"),
        ("trainer", "--xla_compile=false", ""),
        ("trainer", "--nouse_tpu", ""),
        ("trainer", "--worker_replicas=1", ""),
        ("trainer", "--ps_replicas=0", ""),
        ("datagen", "--max_cases=0", ""),
        ("datagen", "--num_concurrent_processes=2", "--processes=2"),
        (
            "decoder",
            "--decode_hparams=beam_size=4,alpha=0.6",
            "--beam_size=4 --alpha=0.6",
        ),
        (
            "decoder",
            "--decode_hparams=batch_size=0,return_beams=True,beam_size=2",
            "--nbest=2 --beam_size=2",
        ),
        ("decoder", "--decode_interactive", "--interactive"),
        ("decoder", "--score_file=a.tsv", "--score --decode_from_file=a.tsv"),
        ("decoder", "--worker_gpu=2", "--replicas=2"),
        ("decoder", "--data_dir=d", ""),
        ("exporter", "--checkpoint_path=r/model.ckpt-70", "--checkpoint=70"),
        ("evaluator", "--eval_use_test_set", "--split=test"),
        ("average_checkpoints", "--model_dir=r", "--output_dir=r"),
        ("average_checkpoints", "--n=8", "--num_checkpoints=8"),
        ("bleu", "--translation=a", "--hypothesis=a"),
        ("bleu", "--bleu_variant=uncased", "--lowercase"),
        ("query", "--servable_name=ende", "--model_name=ende"),
    ],
)
def test_an_old_flag_is_todays_and_one_remark_says_so(command, old, new):
    words, remark = todays(command, old)
    assert words == new.split()
    flag = old.replace("--no", "--")
    assert remark.startswith("tensor2tensor's words in ours: --")
    assert f"is {new or 'not needed'}" in remark
    assert flag.partition("=")[0][2:] in remark
    assert "\n" not in remark
    flag, equals, value = old.partition("=")
    if equals and old_names.FLAGS[flag].values:
        assert todays(command, flag, value)[0] == words


def test_a_gpu_needs_no_flag_to_be_trained_on(monkeypatch):
    for there, words in ((False, ["--replicas=4"]), (True, [])):
        monkeypatch.setattr(old_names, "_has_gpu", lambda there=there: there)
        assert todays("trainer", "--worker_gpu=4")[0] == words


def test_hparams_of_both_senses_are_told_apart():
    old = "--hparams=hidden_size=64,batch_size=1024"
    words, remark = todays(
        "trainer", "--hparams_set=transformer_base", old, "--worker_gpu=2"
    )
    assert words[:2] == [
        "--hparams=transformer_base",
        "--hparams_override=hidden_size=64,batch_tokens=2048,micro_batches=2",
    ]
    assert "tensor2tensor's are transformer_base_v3" in remark
    assert todays("trainer", *old.split("=", 1))[0][0].startswith("--hparams_o")
    assert todays("trainer", "--hparams_set=x", "--hparams=")[0] == [
        "--hparams=x"
    ]
    with pytest.raises(UsageError, match="a run keeps its hparams; leave it"):
        todays("decoder", old)
    with pytest.raises(UsageError, match="--hparams_override or tensor2tenso"):
        todays("trainer", old, "--hparams_override=num_heads=2")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("layer_prepostprocess_dropout=0.3", "residual_dropout=0.3"),
        (
            "num_encoder_layers=0,num_heads=2",
            "num_encoder_layers=none,num_heads=2",
        ),
        ("clip_grad_norm=0.", "clip_norm=none"),
        ("clip_grad_norm=1.0", "clip_norm=1.0"),
        ("pos=timing", "position_encoding=concatenated"),
        (
            "layer_preprocess_sequence=n,layer_postprocess_sequence=da",
            "norm_placement=pre",
        ),
        ("optimizer=Adafactor", "optimizer=adafactor"),
        (
            "batch_size=100,optimizer=multistep_adam,"
            "optimizer_multistep_accumulate_steps=4",
            "batch_tokens=400,micro_batches=4,optimizer=adam",
        ),
        ("learning_rate_constant=0.5", "learning_rate=0.5"),
        ("use_pad_remover=false,prepend_mode=none", ""),
    ],
)
def test_hparams_get_their_names_here(old, new):
    assert hparams_here(old, {}) == new


def test_the_rate_of_the_first_sets_is_ten_times_as_much_here():
    given = {"--hparams_set": "transformer_base_v1"}
    assert hparams_here("learning_rate=0.2", given) == "learning_rate=2"
    assert registry_rate("transformer_base_v1") == 1.0  # there 0.1


def registry_rate(name):
    plugins.load_plugins()
    return registry.hparams(name).learning_rate


@pytest.mark.parametrize(
    ("command", "old", "message"),
    [
        (
            "trainer",
            "--model=lstm_seq2seq",
            "--model=lstm_seq2seq of tensor2te",
        ),
        ("trainer", "--schedule=run_std_server", "use --workers, see docs/clu"),
        ("trainer", "--schedule=evaluate", "use t2t-lite-evaluator."),
        ("trainer", "--worker_replicas=2", "use --workers=HOST:PORT"),
        ("trainer", "--use_tpu", "it trains on GPUs and CPUs"),
        ("trainer", "--hparams_set=transformer_prepend_v1", "one stack reads"),
        (
            "trainer",
            "--hparams=prepend_mode=prepend_inputs_full_attention",
            "one stack reads the source and the target",
        ),
        ("trainer", "--hparams=ffn_layer=local_moe", "leave it out."),
        ("trainer", "--hparams=weight_decay=0.1", "optimizer=adamw,weight_dec"),
        (
            "trainer",
            "--hparams=learning_rate=0.1",
            "its sets but transformer_b",
        ),
        ("trainer", "--hparams=batch_size=many", "batch_size must be a number"),
        ("decoder", "--decode_hparams=extra_length=50", "--max_new_tokens=N"),
        ("decoder", "--decode_hparams=num_samples=5", "use --decode_from_file"),
        ("bleu", "--translations_dir=d", "t2t-lite-report draws it"),
        ("bleu", "--bleu_variant=both", "once more with --lowercase"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(command, old, message):
    with pytest.raises(UsageError) as error:
        todays(command, old)
    text = str(error.value)
    assert message in text
    assert "\n" not in text


def test_a_rate_by_its_peak_is_no_factor():
    with pytest.raises(UsageError, match="use the peak rate, as in --hparams_"):
        todays(
            "trainer",
            "--hparams_set=transformer_base_single_gpu",
            "--hparams=learning_rate_constant=0.2",
        )


def test_a_flag_without_its_counterpart_here_stays_unknown(run_command):
    code, _, err = run_command("bleu", "--hparams_set=transformer_base")
    assert (code, err.count("\n")) == (2, 1)
    assert "Unknown flag --hparams_set." in err


def test_a_command_goes_on_after_its_remark(run_command):
    code, out, err = run_command(
        "trainer",
        *("--hparams_set=transformer_tiny", "--hparams=filter_size=64"),
        "--print_hparams",
    )
    assert (code, err.count("\n")) == (0, 1)
    assert "--hparams_set=transformer_tiny is --hparams=transformer_tiny" in err
    assert "filter_size=64" in out.split()


def test_problems_are_taken_by_the_names_of_tensor2tensor(
    run_command, tmp_path
):
    plugins.load_plugins()
    assert registry.name_here("translate_ende_wmt32k_rev") == "wmt_ende_rev"
    assert registry.name_here("parsing_english_ptb16k") == "wsj_parsing"
    assert registry.name_here("wsj_parsing") == "wsj_parsing"
    assert not registry._other_names.keys() & {*registry.problem_names()}
    assert {*registry._other_names.values()} <= {*registry.problem_names()}
    with pytest.raises(UsageError, match="Unknown problem .* Here it is wmt_e"):
        registry.problem("translate_ende_wmt32k")
    code, _, err = run_command(
        "datagen",
        "--problem=translate_ende_wmt32k_rev",
        f"--raw_dir={tmp_path / 'none'}",
        f"--data_dir={tmp_path}",
    )
    assert code == 1
    assert err.startswith(
        "--problem=translate_ende_wmt32k_rev is --problem=wmt_ende_rev here.\n"
    )


def test_own_text_is_found_by_the_name_of_its_data(run_command, tmp_path):
    from support import t2t_shards

    folder = t2t_shards.write_shards(tmp_path, t2t_shards.ROWS, name="old")
    run_command(
        "datagen",
        *(f"--adopt={folder}", "--problem=old"),
        f"--vocabulary={folder / t2t_shards.VOCABULARY}",
    )
    code, out, err = run_command(
        "datagen",
        *("--problem=old_rev", f"--data_dir={folder}", "--inspect", "--json"),
    )
    assert code == 0
    assert "--problem=old_rev is --problem=text_rev --name=old here.\n" in err
    assert json.loads(out)["problem"] == "old_rev"


def test_a_run_is_found_by_the_old_name_of_its_problem(
    run_command, tiny_run, tmp_path, forget_plugins, monkeypatch
):
    shutil.copytree(tiny_run, tmp_path / "run")
    names = {**registry._other_names, "digits_of_old": "tiny_digits"}
    monkeypatch.setattr(registry, "_other_names", names)
    flags = f"--output_dir={tmp_path / 'run'}", "--num_checkpoints=1"
    code, _, err = run_command("average_checkpoints", *flags, "--problem=bad")
    assert (code, err.count("\n")) == (2, 1)
    code, _, err = run_command(
        "average_checkpoints", *flags, "--problem=digits_of_old"
    )
    assert code == 0, err
