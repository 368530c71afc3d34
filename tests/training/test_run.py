import json

import numpy as np
import pytest

from support.lines import write
from support.words import HPARAMS, Words, create_run
from t2t_lite import registry
from t2t_lite.datagen import generate
from t2t_lite.errors import T2TLiteError
from t2t_lite.training import checkpoints
from t2t_lite.training.evaluation import DevEvaluation
from t2t_lite.training.run import Run


@pytest.fixture
def problem(forget_plugins):
    @registry.register_problem("run_letters")
    class Letters(Words):
        pass

    return registry.problem("run_letters")


@pytest.fixture
def create(problem, tmp_path):
    """Return a function that creates the run, with changed arguments."""

    def create(**changes):
        values = {"problem": problem, "data_dir": tmp_path / "data", **changes}
        return create_run(tmp_path / "run", **values)

    return create


def test_moved_run_opens_without_its_data(create, tmp_path):
    created = create(hparams_set="some_set")
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    (tmp_path / "run").rename(tmp_path / "moved")
    run = Run.open(tmp_path / "moved")
    assert run.problem.name == "run_letters"
    assert run.hparams == HPARAMS
    assert run.seed == 3
    assert run.problem.options == {}
    assert run.config == created.config
    assert run.config["hparams_set"] == "some_set"
    assert {"python", "tensorflow", "keras"} <= run.config["versions"].keys()
    text = "abba ."
    (ids,) = run.encoders["inputs"].encode([text])
    assert run.encoders["inputs"].decode([ids]) == [text]


def test_resumed_run_keeps_its_recorded_facts(create, tmp_path):
    create().update_config(has_checkpoints=True, training_cost={"seconds": 1})
    longer = HPARAMS.replace(train_steps=7, beam_size=2)
    assert create(hparams=longer).hparams == longer
    run = Run.open(tmp_path / "run")
    assert run.config["has_checkpoints"] and run.config["training_cost"]
    assert run.hparams == longer


def test_create_refuses_a_folder_with_another_run(create, problem, tmp_path):
    create()
    before = (tmp_path / "run" / "config.json").read_text()
    for changes, difference in (
        (
            {"hparams": HPARAMS.replace(hidden_size=16)},
            "hidden_size is 8 in",
        ),
        ({"seed": 4}, "seed is 3 in the run, but 4 "),
        ({"problem": problem.reverse()}, "'run_letters_rev' is requested"),
    ):
        with pytest.raises(T2TLiteError, match=difference):
            create(**changes)
    assert (tmp_path / "run" / "config.json").read_text() == before


def test_other_data_and_vocabulary_are_refused(create, problem, tmp_path):
    create()
    type(problem).vocab_size = 281
    other = tmp_path / "other"
    generate.DataGenerator(problem, other, progress=False, seed=5).run()
    with pytest.raises(T2TLiteError) as caught:
        create(data_dir=other)
    for part in ("problem definition is", "data is", "vocabulary "):
        assert part in str(caught.value)


def test_checkpoints_without_a_config_are_refused(create, tmp_path):
    folder = tmp_path / "run" / "checkpoints"
    checkpoints.save(folder, {"model/x": 1.0}, {"step": 1})
    with pytest.raises(T2TLiteError, match="holds checkpoints but no config"):
        create()


@pytest.fixture
def config_file(create, tmp_path):
    create()
    return tmp_path / "run" / "config.json"


@pytest.mark.parametrize(
    "content", ["", "[]", '{"hparams": {}}', "[" * 100_000, "\0", "\udcff"]
)
def test_damaged_config_is_named_in_the_error(config_file, content):
    config_file.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(T2TLiteError, match="config.json"):
        Run.open(config_file.parent)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("problem", 3, "problem must be text; got 3"),
        ("problem", "no_such", "problem: .*'no_such'"),
        ("problem_options", {"x": 1}, "problem_options: .* option x"),
        ("problem_fingerprint", None, "problem_fingerprint"),
        ("hparams", [1], "hparams must be an object"),
        ("hparams", {"hiden_size": 8}, "hiden_size"),
        ("seed", True, "seed must be a whole number"),
        ("data", {"dir": "a"}, "data.fingerprint"),
        ("vocabulary", {}, "vocabulary"),
        ("vocabulary", {"../x": "0"}, "vocabulary"),
        ("vocabulary", {"x": 0}, "vocabulary"),
        ("usr_dir", "a\0b", "usr_dir"),
        ("format", 2, "format 2"),
    ],
)
def test_invalid_value_in_a_config_is_named(config_file, key, value, named):
    config = json.loads(config_file.read_text()) | {key: value, "versions": []}
    config_file.write_text(json.dumps(config))
    with pytest.raises(T2TLiteError, match=f"{config_file}.*{named}"):
        Run.open(config_file.parent)


def test_lost_vocabulary_must_be_copied_from_the_data(create, tmp_path):
    (name,) = create().config["vocabulary"]
    for content in (b"damaged", None):
        (tmp_path / "run" / name).unlink()
        if content:
            (tmp_path / "run" / name).write_bytes(content)
        with pytest.raises(T2TLiteError, match=f"copy {name} from {tmp_path}"):
            Run.open(tmp_path / "run")


@pytest.fixture
def create_text(forget_plugins, tmp_path):
    """Return a function that creates a run of own text, with options."""
    pairs = write(
        tmp_path / "pairs.tsv", [f"{n}\t{n} {n % 7}" for n in range(50)]
    )

    def create_text(name="text", **options):
        options = {"pairs": pairs, "vocab_size": 270, "holdout": 2, **options}
        data_dir = tmp_path / f"data {len(list(tmp_path.glob('data*')))}"
        problem = registry.problem(name, options)
        return create_run(tmp_path / "run", problem, data_dir)

    return create_text


def test_run_keeps_the_options_of_its_problem(create_text, tmp_path):
    options = create_text("text_rev", holdout=3).problem.options
    run = Run.open(tmp_path / "run")
    assert run.problem.name == "text_rev"
    assert run.problem.options == run.data.manifest.options == options
    (source,), (target,) = run.data.texts("dev", 1)
    assert source.split()[0] == target


def test_other_problem_options_are_refused(create_text):
    create_text(holdout=3)
    create_text(holdout=3)
    with pytest.raises(T2TLiteError, match="option holdout is 3 in .* 4 is"):
        create_text(holdout=4)


def test_hparam_that_does_not_fit_the_data_leaves_no_run(create, tmp_path):
    with pytest.raises(T2TLiteError, match="No pair is usable"):
        create(hparams=HPARAMS.replace(max_length=1))
    assert not (tmp_path / "run").exists()


def test_dev_without_a_usable_pair_leaves_no_run(
    create, problem, monkeypatch, tmp_path
):
    def samples(self, split, raw):
        for source, target in Words.samples(self, split, raw):
            yield source * (1 if split == "train" else 40), target

    monkeypatch.setattr(type(problem), "samples", samples)
    with pytest.raises(T2TLiteError, match="Raise max_length"):
        create()
    assert not (tmp_path / "run").exists()


def test_train_steps_cannot_change_with_a_cooldown(create):
    create(hparams=HPARAMS.replace(cooldown=0.5, train_steps=10))
    with pytest.raises(T2TLiteError, match="train_steps is 10 in .* 12 "):
        create(hparams=HPARAMS.replace(cooldown=0.5, train_steps=12))


def test_hparam_missing_in_an_old_config_has_its_default(create, tmp_path):
    config = create().config
    del config["hparams"]["attention_window"]
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert create().hparams.attention_window is None
    with pytest.raises(T2TLiteError, match="window is absent in .* 8 is"):
        create(hparams=HPARAMS.replace(attention_window=8))


def test_dry_run_writes_nothing_and_refuses_another_run(create, tmp_path):
    create(dry_run=True)
    assert not (tmp_path / "run").exists()
    create()
    with pytest.raises(T2TLiteError, match="another run"):
        create(seed=4, dry_run=True)


def test_regenerated_data_is_refused(create, problem, tmp_path):
    create()
    data = tmp_path / "data"
    generator = generate.DataGenerator(problem, data, progress=False, seed=9)
    generator.run(overwrite=True)
    with pytest.raises(T2TLiteError, match="data in .* has changed since"):
        Run.open(tmp_path / "run").data.manifest  # noqa: B018


def test_training_batches_resume_at_a_position(create):
    run = create()
    batches = run.data.training_batches()
    seen = [next(batches) for _ in range(8)]
    resumed = run.data.training_batches(seen[4]["position"].numpy())
    for expected in seen[5:]:
        found = next(resumed)
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])


def test_texts_of_a_split_equal_the_samples_of_the_problem(create, problem):
    run = create()
    sources, references = run.data.texts("dev")
    expected = list(problem.samples("dev", None))
    assert sorted(zip(sources, references, strict=True)) == sorted(expected)
    assert run.data.texts("dev", 3) == (sources[:3], references[:3])


@pytest.mark.slow
def test_dev_loss_is_per_real_target_token(create):
    run = create()
    model = run.model()
    evaluation = DevEvaluation(run, model)
    report = evaluation.scores([evaluation.evaluate_shard()])
    total = tokens = 0.0
    for batch in run.data.batches("dev"):
        total -= float(np.sum(model.token_log_probs(batch)))
        tokens += np.count_nonzero(batch["targets"])
    assert report["dev_loss"] == pytest.approx(total / tokens, rel=1e-5)
    assert report["dev_perplexity"] == pytest.approx(np.exp(report["dev_loss"]))


def test_dev_is_translated_and_scored_with_the_problems_metric(create):
    run = create()
    evaluation = DevEvaluation(run, run.model())
    scores = evaluation.scores([evaluation.evaluate_shard()])
    metrics = {"dev_bleu", "dev_chrf"}
    assert scores.keys() == {"dev_loss", "dev_perplexity", *metrics}
    assert all(0 <= scores[metric] <= 100 for metric in metrics)
    # There are at most ten samples, from the shortest to the longest.
    sources, references = run.data.texts("dev")
    pairs = [(s["source"], s["reference"]) for s in evaluation.samples]
    assert len(pairs) == min(10, len(sources))
    assert set(pairs) <= set(zip(sources, references, strict=True))
    lengths = [len(source) for source, _ in pairs]
    assert lengths == sorted(lengths)
