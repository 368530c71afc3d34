"""The command that imports tensor2tensor checkpoints."""

import json

import numpy as np
import pytest

from support.t2t_reference import reference_logits
from support.t2t_train_dir import PIECES, VALUES, variables_of, write_train_dir
from t2t_lite.interop.tensor2tensor.hparams import DEFAULTS


@pytest.fixture
def train_dir(tmp_path):
    """A training folder of tensor2tensor, and the flags that import it."""
    folder = tmp_path / "train"
    vocabulary = write_train_dir(
        folder,
        VALUES,
        variables_of(VALUES, len(PIECES)),
        flags=["--problem=translate_xxyy_mine", "--train_steps=9"],
    )
    output_dir = tmp_path / "run"
    return folder, [
        f"--t2t_dir={folder}",
        f"--vocabulary={vocabulary}",
        f"--output_dir={output_dir}",
    ]


def test_an_import_is_a_run_that_decodes(train_dir, run_command, tmp_path):
    _, flags = train_dir
    code, out, err = run_command("import_t2t", *flags)
    assert (code, out) == (0, f"{tmp_path / 'run'}\n")
    assert "Target space 0." in err
    assert "with a fresh optimizer" in err
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["problem"] == "text"
    assert config["problem_options"]["name"] == "translate_xxyy_mine"
    assert config["hparams"]["train_steps"] == 9
    _, out, _ = run_command("registry", f"--runs={tmp_path}")
    assert out.splitlines()[1].split()[1:3] == ["text", "7"]
    lines = tmp_path / "lines"
    lines.write_text("abc\n")
    code, out, _ = run_command(
        "decoder",
        f"--output_dir={tmp_path / 'run'}",
        f"--decode_from_file={lines}",
        "--beam_size=2",
    )
    assert code == 0
    assert out.count("\n") == 1


def test_an_import_keeps_the_direction(train_dir, run_command, tmp_path):
    folder, flags = train_dir
    (file,) = folder.glob("flags*.txt")
    file.write_text(file.read_text().replace("_mine", "_mine_rev"))
    code, _, err = run_command("import_t2t", *flags)
    assert code == 0, err
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["problem"] == "text_rev"
    assert config["problem_options"]["name"] == "translate_xxyy_mine"


def test_different_logits_write_nothing(train_dir, run_command, tmp_path):
    _, flags = train_dir
    ids = np.array([[3, 4, 1]])
    np.savez(
        tmp_path / "io.npz",
        inputs=ids,
        targets=ids,
        logits=np.zeros((1, 3, len(PIECES)), np.float32),
    )
    code, out, err = run_command(
        "import_t2t", *flags, f"--verify={tmp_path / 'io.npz'}"
    )
    assert (code, out) == (1, "")
    assert "io.npz" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--t2t_dir": "/nowhere"}, "t2t_dir"),
        ({"--t2t_dir": None}, "--t2t_dir"),
        ({"--vocabulary": None}, "--vocabulary"),
        ({"--problem": "wmt_ended"}, "wmt_ende"),
        ({"--problem": "translate_ende_wmt32k"}, "wmt_ende"),
        ({"--t2t_hparams": "transformer_bas"}, "transformer_base"),
        ({"--verify": __file__}, ".npz"),
        ({"--target_space": "32"}, "target_space"),
        ({"--vocabulary": "a,b"}, "/a"),
    ],
)
def test_wrong_flags_are_a_one_line_error(
    train_dir, run_command, tmp_path, change, message
):
    _, flags = train_dir
    names = [flag.split("=")[0] for flag in flags]
    given = dict(zip(names, flags, strict=True))
    given |= {n: f"{n}={v}" if v else None for n, v in change.items()}
    code, out, err = run_command("import_t2t", *filter(None, given.values()))
    is_file = message in (".npz", "/a")
    assert (code, out) == (1 if is_file else 2, "")
    assert message in err and err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "JSON"), ("[]", "object"), ('{"hidden_size": "8"}', "hidden_size")],
)
def test_an_invalid_hparams_file_is_a_one_line_error(
    train_dir, run_command, tmp_path, content, message
):
    folder, flags = train_dir
    (folder / "hparams.json").write_text(content)
    code, out, err = run_command("import_t2t", *flags)
    assert (code, out) == (1, "")
    assert message in err and err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_missing_hparams_require_a_set(train_dir, run_command):
    folder, flags = train_dir
    (folder / "hparams.json").unlink()
    code, _, err = run_command("import_t2t", *flags)
    assert code == 2 and "--t2t_hparams" in err
    code, _, err = run_command(
        "import_t2t", *flags, "--t2t_hparams=transformer_tiny"
    )
    assert code == 1 and "lacks" in err  # the checkpoint is of another model


def test_an_import_is_verified_with_tensor2tensor_logits(
    train_dir, run_command, tmp_path
):
    folder, flags = train_dir
    ids = np.array([[3, 4, 1], [5, 1, 0]])
    variables = variables_of(VALUES, len(PIECES))
    logits = reference_logits(variables, {**DEFAULTS, **VALUES}, ids, ids)
    arrays = {"inputs_0": ids, "targets_0": ids, "logits_0": logits[:, :, None]}
    np.savez(tmp_path / "io.npz", **arrays)
    code, _, err = run_command(
        "import_t2t", *flags, f"--verify={tmp_path / 'io.npz'}"
    )
    assert code == 0 and "The logits of 5 tokens agree" in err
