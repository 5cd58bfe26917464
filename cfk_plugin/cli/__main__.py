"""The command line as ``python -m cfk_plugin.cli``."""

from cfk_plugin.cli import main

main()
