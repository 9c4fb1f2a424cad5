"""The table of commands. A new command is a module like the others here, and a line in the table.

Imports that take time are inside the functions of these modules, so that `--help` is instant.
"""

from mt.commands import average, evaluate, export, prepare, train, translate

COMMANDS = {module.COMMAND.name: module.COMMAND for module in (train, prepare, evaluate, translate, average, export)}
