"""The privacy report: what was released and at what risk, from logged runs alone.

One direction: `reading` finds runs and gives evidence, `assessment` computes exact figures, judges them and hides what
a report must not show, `statements` and `inputs` are what is said besides, by us and by people, and `build` puts it
together as `ReportData`, which is JSON. Every page of `rendering` is a pure function of that; `delivery` takes it to
where it is read.
"""
