#!/usr/bin/env python
"""The command line in a clone, where nothing is installed as `authz`: `manage.py help` lists the commands."""

from authz_project.command_line import main

if __name__ == "__main__":
    main()
