"""A problem of made-up words, hyperparameters of a very small model, runs."""

from t2t_lite.datagen.generate import DataGenerator
from t2t_lite.hparam import HParams
from t2t_lite.problem import Text2TextProblem
from t2t_lite.training.run import Run

HPARAMS = HParams(
    hidden_size=8,
    filter_size=16,
    num_heads=2,
    num_hidden_layers=1,
    max_length=32,
    batch_tokens=256,
    gradient_accumulation_steps=2,
)


class Words(Text2TextProblem):
    """Words of two letters and their reversals."""

    vocab_size = 280
    letters = "ab"

    def samples(self, split, raw):
        first = {"train": 0, "dev": 100, "test": 120}[split]
        for number in range(first, first + (100 if not first else 20)):
            zero, one = self.letters
            word = f"{number:b}".replace("0", zero).replace("1", one)
            yield word, word[::-1] + " ."


def create_run(output_dir, problem, data_dir, **options):
    """Create a run of a problem; generate its data if there is none."""
    manifest = DataGenerator(problem, data_dir, progress=False).run()
    options = {"hparams": HPARAMS, "seed": 3, **options}
    return Run.create(
        output_dir,
        problem=problem,
        data_dir=data_dir,
        manifest=manifest,
        **options,
    )
