"""The governance report: what was released and at what risk, from logged runs alone.

One direction: `evidence` reads runs, `figures` recomputes what they show, `checks` judges it, `control` hides what a
report must not show, and the result is `ReportData`, which is JSON. Every rendering is a pure function of that.
"""
