"""The command that makes tensor2tensor's folders."""

from support.t2t_train_dir import (
    PIECES,
    VALUES,
    variables_of,
    write_train_dir,
)


def test_an_import_is_exported_again(tmp_path, run_command):
    train_dir, run, new = (tmp_path / name for name in ("t2t", "run", "new"))
    variables = variables_of(VALUES, len(PIECES))
    vocabulary = write_train_dir(train_dir, VALUES, variables, step=7)
    code, _, _ = run_command(
        "import_t2t",
        f"--t2t_dir={train_dir}",
        f"--vocabulary={vocabulary}",
        f"--output_dir={run}",
    )
    assert code == 0
    flags = str(run), f"--t2t_dir={new}", "--problem=translate_xxyy"
    code, out, err = run_command("export_t2t", *flags)
    assert (code, out) == (0, f"{new}\n")
    assert f"Weights: step 7 ({run}/checkpoints/step-00000007)." in err
    assert "--problem=translate_xxyy\n" in (new / "flags.txt").read_text()
    code, out, err = run_command("export_t2t", *flags)
    assert (code, out, err.count("\n")) == (2, "", 1)
    code, _, err = run_command("export_t2t", str(run))
    assert code == 2 and "--t2t_dir is required." in err
