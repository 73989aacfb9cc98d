"""The page about a training run, `report.html`."""
