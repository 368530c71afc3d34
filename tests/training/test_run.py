import gc
import json
import types

import keras
import numpy as np
import pytest

from support.words import HPARAMS, Words
from t2t_lite.datagen import generate
from t2t_lite.errors import T2TLiteError, UsageError
from t2t_lite.problem import Option, Text2TextProblem
from t2t_lite.registry import register_problem
from t2t_lite.training.checkpoints import checkpoint
from t2t_lite.training.run import Run
from t2t_lite.training.validation import (
    DevEvaluation,
    LossEvaluation,
    spread_over_lengths,
)
from t2t_lite.values import true_or_false, whole_number


@pytest.fixture
def problem(forget_plugins):
    @register_problem("run_letters")
    class Letters(Words):
        pass

    from t2t_lite import registry

    return registry.problem("run_letters")


@pytest.fixture
def create(problem, tmp_path):
    """Makes the run, or another one that differs by what is given."""
    data_dir = tmp_path / "data"
    manifest = generate.Generation(problem, data_dir, progress=False).run()

    def make(**changes):
        values = {
            "problem": problem,
            "hparams": HPARAMS,
            "seed": 3,
            "data_dir": data_dir,
            "manifest": manifest,
            **changes,
        }
        return Run.create(tmp_path / "run", **values)

    return make


def test_a_run_describes_itself_without_its_data(create, tmp_path):
    created = create(hparams_set="some_set")
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    run = Run.open(tmp_path / "run")
    assert run.problem.name == "run_letters"
    assert run.hparams == HPARAMS
    assert run.seed == 3
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config == created.config
    assert config["hparams_set"] == "some_set"
    assert config["hparams"] == HPARAMS.to_dict()
    assert {"python", "tensorflow", "keras"} <= config["versions"].keys()
    text = "abba ."
    (ids,) = run.encoders["inputs"].encode([text])
    assert run.encoders["inputs"].decode([ids]) == [text]


def test_a_run_moves_with_its_folder(create, tmp_path):
    create()
    (tmp_path / "run").rename(tmp_path / "moved")
    assert Run.open(tmp_path / "moved").hparams == HPARAMS


def test_weights_come_back_by_name(create):
    run = create()
    model = run.model()
    for variable in model.weights:
        variable.assign(np.full(variable.shape, 0.25, np.float32))
    checkpoint.save(
        run.checkpoints_dir, checkpoint.model_tensors(model), {"step": 9}
    )
    other, found = run.load_model("latest")
    assert found.step == 9
    assert found.averaged is None
    for weight in other.get_weights():
        np.testing.assert_array_equal(weight, np.full(weight.shape, 0.25))


def test_no_weight_is_drawn_where_all_are_read(create, monkeypatch):
    run = create()
    state = {"step": 9}
    tensors = checkpoint.model_tensors(run.model())
    checkpoint.save(run.checkpoints_dir, tensors, state)

    def draw(*args, **kwargs):
        raise AssertionError("A weight was drawn.")

    for name in ("RandomNormal", "GlorotUniform"):
        monkeypatch.setattr(getattr(keras.initializers, name), "__call__", draw)
    run.load_model()
    with pytest.raises(AssertionError, match="was drawn"):
        run.model()


def test_the_same_run_may_go_on_longer_and_decode_otherwise(create, tmp_path):
    create()
    longer = HPARAMS.replace(train_steps=7, beam_size=2)
    assert create(hparams=longer).hparams == longer
    assert Run.open(tmp_path / "run").hparams == longer


def test_a_run_that_goes_on_keeps_what_was_recorded_of_it(create, tmp_path):
    create().record(has_checkpoints=True, training_cost={"seconds": 1})
    create(hparams=HPARAMS.replace(beam_size=2))
    config = Run.open(tmp_path / "run").config
    assert config["has_checkpoints"] and config["training_cost"]
    assert config["hparams"]["beam_size"] == 2


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"hparams": HPARAMS.replace(hidden_size=16, batch_tokens=512)},
            "hidden_size is 8 there and 16 here; batch_tokens is 256 there",
        ),
        ({"seed": 4}, "seed is 3 there and 4 here"),
    ],
)
def test_another_run_in_the_folder_is_refused(
    create, tmp_path, changes, message
):
    create()
    before = (tmp_path / "run" / "config.json").read_text()
    with pytest.raises(T2TLiteError) as caught:
        create(**changes)
    assert f"{tmp_path / 'run'} holds another run" in str(caught.value)
    assert message in str(caught.value)
    assert "another --output_dir" in str(caught.value)
    assert (tmp_path / "run" / "config.json").read_text() == before


def test_the_other_direction_is_another_run(create, problem):
    create()
    with pytest.raises(T2TLiteError, match="'run_letters_rev' here"):
        create(problem=problem.reverse())


def test_other_data_and_vocabulary_are_another_run(create, problem, tmp_path):
    create()
    type(problem).vocab_size = 281
    manifest = generate.Generation(
        problem, tmp_path / "other", progress=False, seed=5
    ).run()
    with pytest.raises(T2TLiteError) as caught:
        create(data_dir=tmp_path / "other", manifest=manifest)
    for part in ("problem definition is", "data is", "vocabulary "):
        assert part in str(caught.value)


def test_checkpoints_without_a_config_are_not_trained_on(create, tmp_path):
    checkpoint.save(tmp_path / "run" / "checkpoints", {"model/x": 1.0}, {
        "step": 1
    })  # fmt: skip
    with pytest.raises(T2TLiteError, match="holds checkpoints but no config"):
        create()


def test_a_folder_without_a_run_is_one_clear_error(tmp_path):
    with pytest.raises(T2TLiteError, match="no run in .*t2t-lite-trainer"):
        Run.open(tmp_path)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"hparams": {}}', "[" * 100_000, "\0", "7", "\udcff"],
)
def test_a_damaged_config_is_one_clear_error(create, tmp_path, content):
    create()
    path = tmp_path / "run" / "config.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(T2TLiteError, match="config.json is damaged"):
        Run.open(tmp_path / "run")


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("problem", 3, "problem must be text; got 3"),
        ("problem", "no_such", "problem: Unknown problem 'no_such'"),
        ("problem_options", [], "problem_options must be an object; got []"),
        ("problem_options", {"x": 1}, "problem_options: run_letters has no o"),
        ("problem_fingerprint", None, "problem_fingerprint must be text; got"),
        ("hparams", [1], "hparams must be an object; got [1]"),
        ("hparams", {"hiden_size": 8}, "hparams: Unknown hparam 'hiden_size'"),
        ("hparams", {"num_heads": [2]}, "hparams: num_heads must be a whole"),
        ("hparams", {"num_heads": "two"}, "hparams: num_heads must be a whol"),
        ("seed", "1", "seed must be a whole number; got '1'"),
        ("seed", True, "seed must be a whole number; got True"),
        ("data", "here", "data must be an object; its seed"),
        ("data", {"dir": 3, "fingerprint": ""}, "data.dir must be text; got 3"),
        ("data", {"dir": "a"}, "it has no data.fingerprint"),
        ("vocabulary", ["a"], "vocabulary must be one or two names of files"),
        ("vocabulary", {}, "vocabulary must be one or two names of files"),
        ("vocabulary", {"../x": "0"}, "vocabulary must be one or two names"),
        ("vocabulary", {"x": 0}, "vocabulary must be one or two names of fil"),
        ("usr_dir", ["a"], "usr_dir must be text or null; got ['a']"),
        ("usr_dir", "a\0b", "usr_dir must be text or null; got 'a\\x00b'"),
        ("format", 2, "has format 2, and this version reads format 1: use"),
        ("format", [], "has format [], and this version reads format 1"),
    ],
)
def test_a_wrong_value_of_a_config_is_named(create, tmp_path, key, value, told):
    create()
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text()) | {key: value, "versions": []}
    path.write_text(json.dumps(config))
    with pytest.raises(T2TLiteError) as caught:
        Run.open(tmp_path / "run")
    assert str(caught.value).startswith(str(path))
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_vocabulary_that_is_gone_is_copied_and_not_made(create, tmp_path):
    (name,) = create().config["vocabulary"]
    copy = f"copy {name} from {tmp_path / 'data'} again, or from a copy of the"
    for content in (b"damaged", None):
        (tmp_path / "run" / name).unlink()
        if content:
            (tmp_path / "run" / name).write_bytes(content)
        with pytest.raises(T2TLiteError) as caught:
            Run.open(tmp_path / "run")
        assert copy in str(caught.value)
        assert "datagen" not in str(caught.value)


def test_data_that_is_gone_is_put_back_first_of_all(create, tmp_path):
    create()
    (tmp_path / "data").rename(tmp_path / "moved")
    with pytest.raises(T2TLiteError) as caught:
        Run.open(tmp_path / "run").data.texts("dev")
    assert str(caught.value) == (
        f"{tmp_path / 'data'} holds no data of run_letters, which the run was "
        "trained on: put it back, or say with --data_dir where it is. If it "
        "is lost, t2t-lite-datagen --problem=run_letters --data_dir="
        f"{tmp_path / 'data'} makes the same again."
    )


def test_a_vocabulary_of_another_run_is_noticed(create, problem, tmp_path):
    create()
    type(problem).vocab_size = 281
    generate.Generation(problem, tmp_path / "other", progress=False).run()
    theirs = set(problem.vocabulary_files().values())
    type(problem).vocab_size = 280
    (ours,) = set(problem.vocabulary_files().values())
    other = (tmp_path / "other" / next(iter(theirs))).read_bytes()
    (tmp_path / "run" / ours).write_bytes(other)
    with pytest.raises(T2TLiteError, match="vocabulary in .* not the one"):
        Run.open(tmp_path / "run")


class WithOptions(Text2TextProblem):
    """As many letters as the option says."""

    known_options = (
        Option("letters", "N", "how many", whole_number(1)),
        Option("separate", "BOOL", "two vocabularies", true_or_false),
    )
    vocab_size = 280

    def samples(self, split, raw):
        del raw
        for number in range(1, 40):
            yield "ab" * number, "c" * self.options["letters"] + "d" * number

    def vocabulary_files(self):
        names = "st" if self.options.get("separate") else "ss"
        return dict(zip(("inputs", "targets"), names, strict=True))

    def train_encoders(self, raw, data_dir, seed):
        from t2t_lite.text.sentencepiece_encoder import SentencePieceEncoder

        for name in set(self.vocabulary_files().values()):
            lines = [f"{name} abcd" * 9]
            SentencePieceEncoder.train(lines, 270, data_dir / name, seed)


@pytest.fixture
def create_with(forget_plugins, tmp_path):
    """Makes a run of a problem with options."""
    from t2t_lite import registry

    register_problem("run_options")(WithOptions)

    def make(name="run_options", hparams=HPARAMS, **options):
        problem = registry.problem(name, options)
        data_dir = tmp_path / f"data {options}"
        manifest = generate.Generation(problem, data_dir, progress=False).run()
        return Run.create(
            tmp_path / "run",
            problem=problem,
            hparams=hparams,
            seed=3,
            data_dir=data_dir,
            manifest=manifest,
        )

    return make


def test_a_run_keeps_the_options_of_its_problem(create_with, tmp_path):
    create_with("run_options_rev", letters=3)
    run = Run.open(tmp_path / "run")
    assert run.problem.name == "run_options_rev"
    assert run.problem.options == {"letters": 3}
    assert run.data.manifest.options == {"letters": 3}
    assert run.data.texts("dev", 1) == (["cccd"], ["ab"])


def test_other_options_are_another_run(create_with):
    create_with(letters=3)
    create_with(letters=3)
    with pytest.raises(T2TLiteError, match="option letters is 3 there and 4 h"):
        create_with(letters=4)


def test_a_config_without_options_opens_and_has_none(create, tmp_path):
    create()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert "problem_options" not in config
    assert Run.open(tmp_path / "run").problem.options == {}


def test_options_that_are_no_mapping_are_one_clear_error(create, tmp_path):
    create()
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"problem_options": 7}))
    with pytest.raises(T2TLiteError, match="config.json is damaged"):
        Run.open(tmp_path / "run")


def test_one_embedding_is_not_for_two_vocabularies(create_with):
    with pytest.raises(UsageError) as error:
        create_with(letters=3, separate=True)
    assert str(error.value) == (
        "shared_embedding needs one vocabulary for both sides; got s and t. "
        "Add --hparams_override=shared_embedding=false, or let the problem "
        "have one vocabulary."
    )
    hparams = HPARAMS.replace(shared_embedding=False)
    run = create_with(letters=3, separate=True, hparams=hparams)
    assert run.encoders["inputs"] is not run.encoders["targets"]


def test_the_end_of_a_cooldown_may_not_move(create, tmp_path):
    create(hparams=HPARAMS.replace(cooldown=0.5, train_steps=10))
    with pytest.raises(T2TLiteError, match="train_steps is 10 there and 12"):
        create(hparams=HPARAMS.replace(cooldown=0.5, train_steps=12))


def test_a_run_older_than_a_hparam_has_its_default(create, tmp_path):
    create()
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    del config["hparams"]["attention_window"]
    path.write_text(json.dumps(config))
    assert create().hparams.attention_window is None
    with pytest.raises(T2TLiteError, match="window is absent there and 8 here"):
        create(hparams=HPARAMS.replace(attention_window=8))


def test_an_output_dir_that_cannot_be_made_is_one_clear_error(create, tmp_path):
    (tmp_path / "run").write_text("a file in the way")
    with pytest.raises(T2TLiteError, match="run cannot be written: "):
        create()


def test_a_dry_run_writes_nothing_but_still_refuses(create, tmp_path):
    create(dry_run=True)
    assert not (tmp_path / "run").exists()
    create()
    with pytest.raises(T2TLiteError, match="another run"):
        create(seed=4, dry_run=True)


def test_data_that_was_made_anew_is_not_the_runs_data(
    create, problem, tmp_path
):
    create()
    generate.Generation(problem, tmp_path / "data", progress=False, seed=9).run(
        overwrite=True
    )
    with pytest.raises(T2TLiteError, match="data in .* has changed since"):
        Run.open(tmp_path / "run").data.manifest  # noqa: B018


def test_training_goes_on_in_the_data_where_it_stopped(create):
    run = create()
    batches = run.data.training_batches()
    seen = [next(batches) for _ in range(8)]
    again = run.data.training_batches(seen[4]["position"].numpy())
    for expected in seen[5:]:
        found = next(again)
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])


def test_a_damaged_shard_is_named(create, tmp_path):
    run = create()
    (shard,) = (tmp_path / "data").glob("run_letters-dev-*")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(T2TLiteError, match="dev-00000-of-00001 is damaged"):
        list(run.data.batches("dev"))


def test_texts_of_a_split_are_those_of_the_problem(create, problem):
    run = create()
    sources, references = run.data.texts("dev")
    expected = list(problem.samples("dev", None))
    assert sorted(zip(sources, references, strict=True)) == sorted(expected)
    assert run.data.texts("dev", 3) == (sources[:3], references[:3])


def test_loss_on_dev_is_per_real_target_token(create):
    run = create()
    model = run.model()
    report = LossEvaluation(model)(run.data.batches("dev"))
    total = tokens = 0.0
    for batch in run.data.batches("dev"):
        total -= float(np.sum(model.token_log_probs(batch)))
        tokens += np.count_nonzero(batch["targets"])
    assert report["tokens"] == tokens
    assert report["loss"] == pytest.approx(total / tokens, rel=1e-5)
    assert report["perplexity"] == pytest.approx(np.exp(report["loss"]))


def _planners():
    """How many Python functions that plan batches are kept."""
    return sum(
        isinstance(each, types.FunctionType)
        and each.__qualname__ == "planner.<locals>.plan"
        for each in gc.get_objects()
    )


def test_a_split_is_planned_once_however_often_it_is_read(create):
    data = create().data
    first = [batch["inputs"].numpy() for batch in data.batches("dev")]
    kept = _planners()
    again = [batch["inputs"].numpy() for batch in data.batches("dev")]
    for ours, theirs in zip(again, first, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert _planners() == kept


def test_dev_is_translated_and_scored_with_the_problems_metric(create):
    run = create()
    evaluation = DevEvaluation(run, run.model())
    scores = evaluation.scores([evaluation.share()])
    assert scores.keys() == {"dev_loss", "dev_perplexity", "dev_bleu"}
    assert 0 <= scores["dev_bleu"] <= 100
    # Samples: at most ten lines of it, from the shortest to the longest.
    sources, references = run.data.texts("dev")
    pairs = [(each.source, each.reference) for each in evaluation.samples]
    assert len(pairs) == min(10, len(sources))
    assert set(pairs) <= set(zip(sources, references, strict=True))
    lengths = [len(source) for source, _ in pairs]
    assert lengths == sorted(lengths)
    assert (lengths[0], lengths[-1]) == (
        min(map(len, sources)),
        max(map(len, sources)),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "workers", [2, pytest.param(3, marks=pytest.mark.slow)]
)
def test_workers_share_out_dev_and_find_the_same(create, workers):
    run = create()
    model = run.model()
    alone = DevEvaluation(run, model)
    parts = [
        DevEvaluation(run, model, index=index, workers=workers)
        for index in range(workers)
    ]
    # As it comes through the connection between them.
    shares = json.loads(json.dumps([part.share() for part in parts]))
    assert all(share["translations"] for share in shares)
    scores = alone.scores([alone.share()])
    assert parts[0].scores(shares) == pytest.approx(scores, rel=1e-6)
    assert parts[0].samples == alone.samples


@pytest.mark.parametrize(
    "lengths,count,chosen",
    [
        ([3, 1, 2], 10, [1, 2, 0]),
        (range(100), 3, [0, 49, 99]),
        ([5], 10, [0]),
        ([4, 4, 4, 4], 2, [0, 3]),
        (range(19, 0, -1), 10, range(18, -1, -2)),
    ],
)
def test_samples_are_spread_evenly_over_the_lengths(lengths, count, chosen):
    texts = ["x" * length for length in lengths]
    assert spread_over_lengths(texts, count) == list(chosen)
