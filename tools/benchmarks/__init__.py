"""What `tools/bench.py` is made of.

`contender` says what is measured, `process` measures one fresh process, `rounds` alternates them, `machine` says where,
and `report` makes the table and the JSON file. Each subject has a module of its own, which lists its contenders, and
one in `peers/`, which holds what the peers' processes run.
"""
