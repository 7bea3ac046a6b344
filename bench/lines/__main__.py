"""`python -m bench.lines`: the lines of each program."""

from pathlib import Path

from bench.lines import count_lines

for program in sorted(Path(__file__).parent.glob("dqn_*.py")):
    print(f"{program.name:20} {count_lines(program)} lines")
