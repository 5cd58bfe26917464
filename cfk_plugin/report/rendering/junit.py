"""The checks of a report as JUnit XML, which any CI shows."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from cfk_plugin.report.data import Check, ReportData
from cfk_plugin.report.rendering.escaping import one_line
from cfk_plugin.report.rendering.text import STATUS_TEXTS, kind_of, shown


def render_junit(data: ReportData) -> str:
    """Write each check as a test case.

    Parameters
    ----------
    data : ReportData

    Returns
    -------
    str
        XML. A check that fails is a failure. JUnit has no word for a check that a person has to look at, or that was
        not measured: it is `skipped`, with a message, which is the only state that is neither green nor red.
    """
    checks = data.checks
    counts = {
        "tests": str(len(checks)),
        "failures": str(sum(check.status == "fail" for check in checks)),
        "errors": "0",
    }
    name, open_ = one_line(str(data.report["title"])), sum(check.status not in ("pass", "fail") for check in checks)
    suites = ET.Element("testsuites", {"name": name, **counts})
    suite = ET.SubElement(suites, "testsuite", {"name": name, **counts, "skipped": str(open_)})
    properties = ET.SubElement(suite, "properties")
    for key in ("id", "verdict", "edition", "as_of"):
        value = one_line(str(data.report[key]))
        ET.SubElement(properties, "property", {"name": f"cfk.report.{key}", "value": value})
    for check in checks:
        _add(suite, check)
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _add(suite: ET.Element, check: Check) -> None:
    case = ET.SubElement(suite, "testcase", {"name": one_line(check.id), "classname": "cfk.report"})
    if check.status == "pass":
        return
    kind = kind_of(check.id)
    said = f"{STATUS_TEXTS[check.status]}: {one_line(check.text)}"
    figures = f"measured: {shown(check.measured, kind)}; threshold: {shown(check.threshold, kind)}"
    if check.status == "fail":
        found = ET.SubElement(case, "failure", {"type": check.status, "message": said})
        found.text = one_line(f"{figures}; source: {check.source or 'none'}; section {check.section}")
    else:
        ET.SubElement(case, "skipped", {"message": one_line(f"{said} ({figures})")})
