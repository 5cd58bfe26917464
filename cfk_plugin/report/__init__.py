"""The privacy report: what was released and at what risk, from logged runs alone.

One direction: `runs` and `store` give evidence, `figures`, `attacks` and `checks` compute and judge it, `disclosure`
hides what a report must not show, `statements` and `inputs` are what is said besides, by us and by people, and `build`
puts it together as `ReportData`, which is JSON. `compose` lays that out as a document, which `render` writes as HTML or
Markdown; `summaries` are shorter. Each is a pure function of the data. `delivery` takes them to where they are read.
"""
