"""The text of `mt --help` and `mt COMMAND --help`."""

import shlex

import pytest

from mt.cli import main
from mt.commands import COMMANDS
from mt.commands.help import help_text, overview
from mt.config.overrides import expand_sweep, options, parse_override


def test_overview_describes_the_commands():
    lines = overview(COMMANDS).splitlines()
    assert all(f"  {command.name:<11}{command.help}" in lines for command in COMMANDS.values())
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_shows_every_key(name, capsys):
    command = COMMANDS[name]
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert out == help_text(command) + "\n"
    lines = out.splitlines()
    assert f"usage: mt {name}" in out and "examples:" in lines
    for key, item in command.keys.items():
        assert any(line.startswith(f"  {key}=") for line in lines)
        assert item.metadata["help"].split()[0] in out
    for group in command.groups:
        assert f"  {group}=" in lines
        assert all(f"    {choice:<16}{description}" in lines for choice, description in options(group).items())
    assert max(map(len, lines)) <= 120


def test_help_of_train_shows_defaults_limits_and_choices():
    text = help_text(COMMANDS["train"])
    assert "optim.warmup_steps=4000" in text and "at least 1" in text and "    tiny " in text
    assert "one of adam, adamw, sgd" in text and "  train.max_updates=null" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_only_what_can_be_swept_or_composed_of_an_experiment_says_so(name):
    command, text = COMMANDS[name], help_text(COMMANDS[name])
    assert ("[-m]" in text) == (command.sweep is not None) == (name == "train")
    assert ("An experiment (experiment=)" in text) == ("experiment" in command.groups) == (name in ("train", "prepare"))


@pytest.mark.parametrize(
    ("name", "example"),
    [(name, example) for name, command in COMMANDS.items() for _, example in command.examples],
)
def test_examples_are_commands(name, example):
    mt, command, *arguments = shlex.split(example.partition(" < ")[0])
    assert (mt, command) == ("mt", name)
    overrides = [argument for argument in arguments if "=" in argument]
    lines = expand_sweep(COMMANDS[name], overrides)[0] if "-m" in arguments else [overrides]
    assert len(lines) == (2 if "-m" in arguments else 1)
    for override in (override for line in lines for override in line):
        assert parse_override(COMMANDS[name], override)
