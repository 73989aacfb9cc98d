"""Power cuts: what a run has promised to be safe is there when the power is back, and the rest does no harm."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from distinct_words import write_corpus


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("options", "earlier", "killed_at"),
    [
        pytest.param({}, None, None, id="in a new folder"),
        pytest.param({"segment_size": "1gb"}, {"input": "earlier"}, None, id="over the results of another corpus"),
        pytest.param({"resume": True, "skip_merge": True}, {"resume": False}, 45, id="after a kill"),
    ],
)
def test_a_run_goes_on_after_a_power_cut_at_any_moment(
    tmp_path: Path, options: dict[str, object], earlier: dict[str, object] | None, killed_at: int | None
) -> None:
    """50 of some 1,500 states of the disk; BPEFLOW_POWER_CUTS says how many to take."""
    seed, cuts = random.randrange(2**32), os.environ.get("BPEFLOW_POWER_CUTS", "50")
    corpus = write_corpus(tmp_path / "corpus")
    (write_corpus(tmp_path / "earlier") / "a").write_text("more words " * 50)
    settings = {
        "input": str(corpus), "vocab_sizes": [300, 330], "backend": "python", "num_counter": 1,
        "segment_size": "6kb", "chunk_size": "2kb", **options,
    }  # fmt: skip
    before = earlier and {"settings": earlier, "killed_at": killed_at}
    script = str(Path(__file__).with_name("runs_after_cuts.py"))
    done = subprocess.run(
        [sys.executable, script, json.dumps(settings), json.dumps(before), cuts, str(seed)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}: {done.stdout}{done.stderr[-3000:]}"
    told = json.loads(done.stdout)
    assert not told["wrong"], f"seed {seed}: {told['wrong'][:5]}"
    assert told["moments"] > 80
    assert told["cases"] >= min(int(cuts), 350)
    assert (told["refused"] > 0) == ("segment_size" in options)
