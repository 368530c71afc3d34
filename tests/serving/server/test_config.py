import pathlib

import pytest

from t2t_lite.errors import UsageError
from t2t_lite.serving.server.config import read_config_file
from t2t_lite.serving.server.models import ModelConfig, Policy

# Put together from the examples of TensorFlow Serving's documentation.
DOCUMENTED = """
model_config_list {
  config {
    name: 'my_first_model'
    base_path: '/tmp/my_first_model/'
    model_platform: 'tensorflow'
  }
  config {
    name: 'my_second_model'
    base_path: '/tmp/my_second_model/'
    model_platform: 'tensorflow'
    model_version_policy {
      specific {
        versions: 42
        versions: 43
      }
    }
    version_labels {
      key: 'stable'
      value: 42
    }
    version_labels {
      key: 'canary'
      value: 43
    }
  }
}
"""


def read(tmp_path, text):
    file = tmp_path / "models.config"
    file.write_text(text)
    return read_config_file(file)


def test_the_documented_file_is_read(tmp_path):
    assert read(tmp_path, DOCUMENTED) == (
        ModelConfig("my_first_model", pathlib.Path("/tmp/my_first_model")),
        ModelConfig(
            "my_second_model",
            pathlib.Path("/tmp/my_second_model"),
            Policy(only=frozenset({42, 43})),
            {"stable": 42, "canary": 43},
        ),
    )


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("latest { num_versions: 2 }", Policy(newest=2)),
        ("latest {}", Policy(newest=1)),
        ("all {}", Policy(newest=None)),
    ],
)
def test_policies_are_read(tmp_path, policy, expected):
    text = (
        "model_config_list { config { name: 'm' base_path: '/m' "
        f"model_version_policy {{ {policy} }} }} }}"
    )
    (model,) = read(tmp_path, text)
    assert model.policy == expected


def one(fields):
    return f"model_config_list {{ config {{ {fields} }} }}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "must have a model_config_list"),
        ("custom_model_config {}", "must have a model_config_list"),
        ("model_config_list {}", "at least one model"),
        (one("nam: 'm'"), '"nam"'),
        (one("name: 'm'"), "needs a name and a base_path"),
        (
            one(
                "name: 'm' base_path: '/m' } config { name: 'm' base_path: '/n'"
            ),
            "each once",
        ),
        (
            one("name: 'm' base_path: '/m' model_platform: 'caffe'"),
            "model_platform must be 'tensorflow'; got 'caffe'",
        ),
        (
            one("name: 'm' base_path: '/m' logging_config {}"),
            "logging_config is not served",
        ),
        (
            one(
                "name: 'm' base_path: '/m' model_version_policy { specific {} }"
            ),
            "specific is empty",
        ),
    ],
)
def test_what_this_server_does_not_have_is_refused_by_name(
    tmp_path, text, reason
):
    with pytest.raises(UsageError, match=reason):
        read(tmp_path, text)


def test_a_file_that_is_no_text_says_where(tmp_path):
    file = tmp_path / "models.config"
    file.write_bytes(b"ab\xff")
    with pytest.raises(UsageError, match="must be UTF-8 text; .* at byte 2"):
        read_config_file(file)
