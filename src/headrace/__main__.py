"""`python -m headrace`: the command line, where the script `headrace` is not on the path."""

from headrace.cli import main

if __name__ == "__main__":
    main(prog_name="python -m headrace")
