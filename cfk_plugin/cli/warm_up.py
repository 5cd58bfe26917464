"""cfk warm-up: compile numerical code before it is needed."""

from __future__ import annotations

from cfk_plugin.cli.frame import command, say


@command("warm-up", "cfk warm-up\nNUMBA_CACHE_DIR=/opt/kernels cfk warm-up")
def warm_up() -> int:
    """Compile what protection needs, once for this machine or image, so that the first request need
    not wait.

    Exit code 1 if the compiled code cannot be kept, as no folder is writable.
    """
    from cfk_plugin._protect import warm_up

    folders = warm_up()
    for folder in sorted(filter(None, folders)):
        say(f"compiled kernels are kept in {folder}")
    return 1 if None in folders else 0
