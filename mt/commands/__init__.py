"""The table of commands. To add one, write a module like these (slow imports inside functions) and list it here."""

from mt.commands import average, evaluate, export, prepare, train, translate

COMMANDS = {module.COMMAND.name: module.COMMAND for module in (train, prepare, evaluate, translate, average, export)}
