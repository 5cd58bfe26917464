"""What the commands of `cfk` do, one module each, imported when it runs so that `cfk --help` is quick."""
