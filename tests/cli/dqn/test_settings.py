"""Every hyperparameter is checked, and is an option of the command."""

import dataclasses

import pytest

from headrace.cli.dqn.settings import IMAGE_SETTINGS, VECTOR_SETTINGS, DqnSettings
from headrace.cli.train import command


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gamma", 1.5),
        ("n_step", 0),
        ("learning_rate", 0.0),
        ("batch_size", 0),
        ("samples_per_insert", -1.0),
        ("epsilon_end", -0.1),
        ("epsilon_frames", 0),
        ("priority_exponent", -0.5),
        ("priority_exponent", float("nan")),
        ("learning_rate", float("nan")),
        ("frame_stack", 0),
        ("learning_starts", 60_000),
    ],
)
def test_a_number_outside_its_range_names_the_option(name, value):
    with pytest.raises(ValueError, match=f"--{name.replace('_', '-')}: expected"):
        DqnSettings(**{name: value})


def test_each_field_is_an_option_with_help():
    options = {option.name: option for option in command.params}
    for field in dataclasses.fields(DqnSettings):
        assert str(getattr(VECTOR_SETTINGS, field.name)) in options[field.name].help
        assert str(getattr(IMAGE_SETTINGS, field.name)) in options[field.name].help


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        VECTOR_SETTINGS.gamma = 0.5
