"""`python -m headrace`: the command line, where the script `headrace` is not on the path."""

from headrace.cli import run

if __name__ == "__main__":
    run(prog_name="python -m headrace")
