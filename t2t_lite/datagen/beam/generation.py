"""A generation whose splits Apache Beam writes, on all its machines."""

import dataclasses
from collections.abc import Sequence

from t2t_lite.data.manifest import SplitRecord
from t2t_lite.datagen.beam.pipeline import add_steps, not_shared, read_report
from t2t_lite.datagen.beam.runner import new_pipeline, run
from t2t_lite.datagen.generate import Generation
from t2t_lite.datagen.split_job import SplitJob
from t2t_lite.datagen.unfinished import Work


@dataclasses.dataclass
class BeamGeneration(Generation):
    """A generation whose splits are written by Apache Beam.

    Attributes:
      runner, beam_options: see `new_pipeline`.
    """

    runner: str = "DirectRunner"
    beam_options: Sequence[str] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        # If something is wrong with them, say so before work begins.
        new_pipeline(self.runner, self.beam_options)

    def write_split(self, job: SplitJob, work: Work) -> SplitRecord:
        """As in `Generation`.

        Raises:
          T2TLiteError: the corpus is missing or bad.
          RuntimeError: the pipeline failed otherwise.
        """
        raw = work.raw
        if raw.raw_dir is None:
            for name in raw.files:
                raw.path(name)  # downloads it, once and not on every worker
        job.folder.mkdir(exist_ok=True)
        report = job.folder / "report.json"
        report.unlink(missing_ok=True)
        pipeline = new_pipeline(self.runner, self.beam_options)
        add_steps(pipeline, job, raw, report)
        run(pipeline, self.runner)
        if not report.exists():
            raise not_shared(job.folder)
        return read_report(job, report)
