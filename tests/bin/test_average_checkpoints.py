import shutil

import pytest


@pytest.fixture
def run(run_copy):
    """A copy of the tiny run, without its averages."""
    for average in (run_copy / "checkpoints").glob("average-*"):
        shutil.rmtree(average)
    return run_copy


def test_the_decoder_uses_the_new_average(run_command, run):
    code, out, _ = run_command(
        "average_checkpoints", f"--output_dir={run}", "--num_checkpoints=2"
    )
    assert (code, out) == (
        0,
        f"{run / 'checkpoints' / 'average-2-step-00000004'}\n",
    )
    source = run / "in"
    source.write_text("1\n")
    _, _, err = run_command(
        "decoder", f"--output_dir={run}", f"--decode_from_file={source}"
    )
    assert err.startswith("Weights: the average of 2 up to step 4 (")


def test_an_average_that_is_not_the_default_says_how_to_select_it(
    run_command, run_copy
):
    code, out, err = run_command(
        "average_checkpoints", f"--output_dir={run_copy}", "--num_checkpoints=1"
    )
    assert (code, f"--checkpoint={out.strip()}" in err) == (0, True)


def test_fewer_checkpoints_than_requested_are_reported(run_command, run):
    code, out, err = run_command(
        "average_checkpoints", f"--output_dir={run}", "--num_checkpoints=20"
    )
    assert code == 0
    assert "average-2-step" in out
    assert "There are only 2 checkpoints." in err


def test_damaged_checkpoint_is_named(run_command, run):
    (data,) = (run / "checkpoints" / "step-00000002").glob("tensors.data*")
    content = bytearray(data.read_bytes())
    content[::16] = bytes(byte ^ 0xFF for byte in content[::16])
    data.write_bytes(content)
    code, out, err = run_command("average_checkpoints", f"--output_dir={run}")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "step-00000002 is damaged" in err
    assert not list((run / "checkpoints").glob("average-*"))


def test_run_without_checkpoints_is_an_error(run_command, run):
    for checkpoint in (run / "checkpoints").glob("step-*"):
        shutil.rmtree(checkpoint)
    code, _, err = run_command("average_checkpoints", f"--output_dir={run}")
    assert code == 1
    assert "no checkpoint" in err
