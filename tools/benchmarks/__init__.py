"""The parts of `tools/bench.py`.

`contender` defines what is measured, `process` measures one fresh process, `rounds` lets the contenders take turns,
`machine` describes the computer, and `report` makes the table and the JSON file. Each subject has its own module, which
lists its contenders, and a module in `peers/` with the code that the peers' processes run.
"""
