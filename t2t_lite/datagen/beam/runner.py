"""Apache Beam's runners, by name and with their options."""

import re
from collections.abc import Sequence
from typing import Any

from t2t_lite.errors import T2TLiteError, UsageError, nearest

try:
    import apache_beam as beam
    import cloudpickle  # noqa: F401 (Beam brings it)
    from apache_beam.options.pipeline_options import (
        PipelineOptions,
        StandardOptions,
    )
except ModuleNotFoundError as error:
    raise T2TLiteError(
        f"--runner needs Apache Beam, and there is no {error.name} here: "
        "pip install 't2t-lite[beam]'."
    ) from error


def new_pipeline(runner: str, options: Sequence[str] = ()) -> Any:
    """A pipeline without steps.

    Args:
      runner: "Runner" and capitals optional; or the full name of a class.
      options: Beam's own, such as `["--flink_master=localhost:8081"]`.

    Raises:
      UsageError: Beam has no such runner, or does not take the options.
      T2TLiteError: the runner needs packages that are not there.
    """
    runner = _known_runner(runner)
    parsed = PipelineOptions([f"--runner={runner}", *options])
    if runner in StandardOptions.LOCAL_RUNNERS:
        # The others may have options that only their servers know.
        _refuse_unknown(parsed)
    try:
        return beam.Pipeline(options=parsed)
    except (ImportError, AttributeError) as error:
        raise T2TLiteError(
            f"--runner={runner} cannot be loaded: {error}."
        ) from error
    except ValueError as error:
        reason = "; ".join(str(error).split("\n"))
        raise UsageError(
            f"--runner={runner} does not take the options after --: {reason}"
        ) from error


def run(pipeline: Any, runner: str) -> None:
    """Runs a pipeline to its end.

    Raises:
      T2TLiteError: a worker raised it.
      RuntimeError: the pipeline failed otherwise.
    """
    try:
        state = pipeline.run().wait_until_finish()
    except Exception as error:
        raise _in_one_line(error, runner) from error
    if state not in (None, beam.runners.runner.PipelineState.DONE):
        raise RuntimeError(f"{runner} ended with the state {state}")


def _known_runner(name: str) -> str:
    """Beam's spelling of a runner; the full name of a class stays as it is."""
    if "." in name:
        return name
    names = StandardOptions.KNOWN_RUNNER_NAMES
    short = [runner.removesuffix("Runner") for runner in names]
    asked = name.lower().removesuffix("runner")
    for runner, short_name in zip(names, short, strict=True):
        if short_name.lower() == asked:
            return runner
    raise UsageError(
        f"Apache Beam has no runner {name!r}.{nearest(name, [*names, *short])} "
        f"Its runners: {', '.join(names)}; or the full name of a class."
    )


def _refuse_unknown(options: PipelineOptions) -> None:
    known = options.get_all_options()
    for name in options.get_all_options(retain_unknown_options=True):
        if name not in known:
            raise UsageError(
                f"Apache Beam has no option --{name}.{nearest(name, known)}"
            )


def _in_one_line(error: Exception, runner: str) -> Exception:
    """The error to raise for one that comes from a worker with a traceback."""
    text = str(error)
    ours = re.findall(
        r"(?:T2TLiteError|UsageError): (.*?)(?: \[while running .*)?$",
        text,
        re.MULTILINE,
    )
    if isinstance(error, T2TLiteError) or ours:
        return T2TLiteError(
            ours[-1] if ours else text.partition(" [while running")[0]
        )
    last = (text.strip().splitlines() or [type(error).__name__])[-1]
    return RuntimeError(f"{runner} failed: {last}")
