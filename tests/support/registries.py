"""Registrations that a test can undo."""

from t2t_lite import plugins, registry


def keep_apart(patch):
    """Make the patch undo all later registrations."""
    plugins.load_plugins()
    for module, name in (
        (registry, "PROBLEMS"),
        (registry, "HPARAMS"),
        (plugins, "loaded"),
    ):
        patch.setattr(module, name, getattr(module, name).copy())
