"""The whole experiment: measure what is new, log, summarise, and write page and plots."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import platform
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from cfk_plugin.errors import InputError, whole_file
from cfk_plugin.plots import load_matplotlib
from cfk_plugin.records.reading import if_there
from cfk_plugin.records.run import ReportContents, Value, client_of, log_report
from cfk_plugin.records.stores import check_store
from reproduction.measure import METHODS, SLOW, Job, Measurement, measure
from reproduction.page import render
from reproduction.plots import draw
from reproduction.prepare import (
    GRIDS,
    Config,
    DataSummary,
    Prepared,
    choose_explainer,
    prepare,
)
from reproduction.results import Results, aggregate, mean
from reproduction.studies import KS, STUDIES
from reproduction.tables import NAMES, load

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

T = TypeVar("T")
PAGE, RESULTS, FIGURES = "index.md", "results.json", "figures"

# explanations by GRASP in studies of many settings
_STUDIED = {"parameters": 15, "plausibility": 20}
# so that parallel processes end together
_SLOWEST_FIRST = ("german", "hospital", "adult", "informs", "cmc", "heart")
_LIBRARIES = ("cfk-plugin", "numpy", "pandas", "scikit-learn", "numba", "NICEx")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What is measured, and how, independent of data and machine.

    Parameters
    ----------
    tables : tuple of str
    methods : tuple of str
        Of `METHODS`.
    ks : tuple of int
    studies : tuple of str
        Of `STUDIES`.
    limit : int
        Most explanations per table. The paper explains the undesired among 1,000 test rows.
    grasp_limit : int
        Most explanations by GRASP, which is slow: the first ones, on which methods are compared.
    effective : int
        Number of explanations whose effective k is measured.
    grid : {"small", "paper"}
    explainer : {"auto", "nice", "nearest"}
    seed : int

    Raises
    ------
    InputError
        If a name is unknown or a number impossible.
    """

    tables: tuple[str, ...] = NAMES
    methods: tuple[str, ...] = tuple(METHODS)
    ks: tuple[int, ...] = KS
    studies: tuple[str, ...] = tuple(STUDIES)
    limit: int = 100
    grasp_limit: int = 100
    effective: int = 20
    grid: str = "small"
    explainer: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        known: Mapping[str, tuple[tuple[str, ...], Iterable[str]]] = {
            "tables": (self.tables, NAMES),
            "methods": (self.methods, METHODS),
            "studies": (self.studies, STUDIES),
            "grid": ((self.grid,), GRIDS),
        }
        for what, (asked, names) in known.items():
            if strange := [name for name in asked if name not in names]:
                raise InputError(f"{what}: unknown {', '.join(strange)}; known: {', '.join(names)}")
        if not self.tables or not self.methods:
            raise InputError("name at least one table and one method")
        if not self.ks or min(self.ks) < 2:
            raise InputError("every k must be a whole number of at least 2")
        if self.limit < 1 or self.grasp_limit < 1 or self.effective < 0 or self.seed < 0:
            raise InputError("limits must be at least 1; effective and seed at least 0")

    def jobs(self) -> list[Job]:
        """Return everything to measure: shared jobs once, slow ones last."""
        found: list[Job] = []
        for job in [*self.main(), *(job for name in self.studies for job in self.study(name))]:
            found += [job] if job not in found else []
        return sorted(found, key=lambda job: (_SLOWEST_FIRST.index(job.table), job.method == SLOW))

    def main(self) -> list[Job]:
        """Return the jobs for Tables 6, 7 and 9 to 12: every method on every table at every k."""
        of_grasp = min(self.grasp_limit, self.limit)
        return [
            Job(table=table, method=method, k=k, asked=of_grasp if method == SLOW else None)
            for table in self.tables
            for method in self.methods
            for k in self.ks
        ]

    def study(self, name: str) -> list[Job]:
        """Return the jobs of a study, without methods that this experiment leaves out."""
        jobs = STUDIES[name].jobs(
            self.tables, min(self.grasp_limit, self.limit, _STUDIED.get(name, self.limit))
        )
        return [job for job in jobs if job.method in self.methods or job.method not in METHODS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an experiment reads and writes.

    `output` gets page, plots, results and kept measurements. Without `data`, a folder of tables,
    tables come from OpenML and are kept in `cache`.
    """

    output: Path
    data: Path | None = None
    cache: Path | None = None
    experiment: str = "reproduction"
    tracking_uri: str

    @property
    def kept(self) -> Path:
        return self.output / "kept"


class Event(NamedTuple):
    """A finished job and its number of explanations; no seconds if it was measured before."""

    job: Job
    asked: int
    seconds: float | None


OnEvent = Callable[[Event], None]


def reproduce(
    experiment: Experiment,
    place: Place,
    *,
    command: str,
    jobs: int = 1,
    told: OnEvent = lambda _: None,
) -> Results:
    """Run an experiment, or the rest of it, and write the results.

    The output folder then holds ``reproduction.md``, ``results.json`` and ``figures/``; MLflow
    holds one run per table and method. Nothing in any of them is a value of a row.

    Parameters
    ----------
    experiment : Experiment
    place : Place
    command : str
        The command line for the same experiment, shown on the page.
    jobs : int
        Tables at the same time.
    told : callable
        Called with each `Event`.

    Returns
    -------
    Results

    Raises
    ------
    InputError
        If a table cannot be loaded, or the explainer is not installed.
    MissingDependencyError
        If matplotlib, which draws the plots, is not installed.
    TrackingError
        If MLflow does not take the runs; what was measured is kept.
    """
    experiment = replace(experiment, explainer=choose_explainer(experiment.explainer))
    check_store(place.tracking_uri)  # these two now, rather than when everything has been measured
    load_matplotlib()
    measured = run(experiment, place, jobs=jobs, told=told)
    runs = log(measured, place)
    configs = {found.config.table: found.config for found in measured.values()}

    def of(some: list[Job]) -> dict[str, Measurement]:
        return {(key := job.key(configs[job.table])): measured[key] for job in some}

    studies = {}
    for name in experiment.studies:
        rows = STUDIES[name].rows(of(experiment.study(name)))
        studies[name] = [{**row, "run_id": runs.get(row["piece"])} for row in rows]
    results = Results.of(
        of(experiment.main()),
        command=command,
        machine=f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        studies={name: rows for name, rows in studies.items() if rows},
        runs=runs,
    )
    place.output.mkdir(parents=True, exist_ok=True)
    draw(results, place.output / FIGURES)
    (place.output / RESULTS).write_text(results.to_json(), encoding="utf-8")
    (place.output / PAGE).write_text(render(results), encoding="utf-8")
    return results


class Forecast:
    """How long an experiment will still take, from the times of its jobs; tables not begun count as
    alike.
    """

    def __init__(self, jobs: Iterable[Job], limit: int, at_once: int) -> None:
        self._left = list(jobs)
        self._limit, self._at_once = limit, max(at_once, 1)
        self._seconds: dict[tuple[str, str], float] = defaultdict(float)
        self._count: dict[tuple[str, str], int] = defaultdict(int)
        self._explained: dict[str, int] = {}

    def done(self, event: Event) -> None:
        """Count a job as done; one that was measured before gives no time."""
        job, asked, seconds = event
        self._left.remove(job)
        self._explained[job.table] = max(asked, self._explained.get(job.table, 0))
        if seconds is not None:
            for of in ((job.table, job.method), ("", job.method)):
                self._seconds[of] += seconds
                self._count[of] += asked

    @property
    def left(self) -> float:
        """Seconds until all jobs are done, if the rest take as long as earlier ones of their
        method.
        """
        return (
            sum(self._per_explanation(job) * self._asked(job) for job in self._left) / self._at_once
        )

    def _per_explanation(self, job: Job) -> float:
        for of in ((job.table, job.method), ("", job.method)):
            if self._count[of]:
                return self._seconds[of] / self._count[of]
        return 1.0 if job.method == SLOW else 0.05  # a guess until the method is first measured

    def _asked(self, job: Job) -> float:
        begun = self._explained.values()
        most = self._explained.get(job.table, sum(begun) / len(begun) if begun else self._limit)
        return most if job.asked is None else min(most, job.asked)


class Workspace:
    """Measured figures in a folder of complete files; unreadable ones are measured again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str, parse: Callable[[str], T]) -> T | None:
        try:
            return parse((self.folder / name).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None

    def keep(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as draft:
            draft.write_text(text, encoding="utf-8")


def run(
    experiment: Experiment, place: Place, *, jobs: int, told: OnEvent
) -> dict[str, Measurement]:
    """Measure what is new; return measurements by `Job.key`.

    A table's error is raised when the others are done.
    """
    of_table: dict[str, list[Job]] = {}
    for job in experiment.jobs():
        of_table.setdefault(job.table, []).append(job)
    if jobs == 1 or len(of_table) == 1:
        found = [
            _measure_table(experiment, place, name, some, jobs, told)
            for name, some in of_table.items()
        ]
    else:
        found = _in_processes(experiment, place, of_table, jobs, told)
    return {key: measurement for some in found for key, measurement in some.items()}


def _measure_table(
    experiment: Experiment,
    place: Place,
    name: str,
    jobs: Sequence[Job],
    processes: int,
    told: OnEvent,
) -> dict[str, Measurement]:
    """Do the jobs of one table, which is prepared when first needed, with its forest tuned once."""
    workspace = Workspace(place.kept)
    (table,) = load([name], place.data, place.cache)
    config = Config(
        table=name,
        table_sha256=table.sha256,
        source=table.source,
        seed=experiment.seed,
        grid=experiment.grid,
        explainer=experiment.explainer,
        limit=experiment.limit,
        versions=_versions(),
    )
    prepared: Prepared | None = None
    scene, measured = f"scenes/{config.key}.json", {}
    for job in jobs:
        key, seconds = job.key(config), None
        found = workspace.read(f"outcomes/{key}.json", Measurement.from_json)
        if found is None:
            if prepared is None:
                known = workspace.read(scene, lambda text: DataSummary(**json.loads(text)))
                prepared = prepare(table, config, known, jobs=processes)
                if known is None:
                    workspace.keep(scene, json.dumps(asdict(prepared.summary), sort_keys=True))
            started = time.perf_counter()
            found = measure(prepared, job, effective=experiment.effective)
            workspace.keep(f"outcomes/{key}.json", found.to_json())
            seconds = time.perf_counter() - started
        measured[key] = found
        told(Event(job, found.asked, seconds))
    return measured


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _in_processes(
    experiment: Experiment,
    place: Place,
    of_table: Mapping[str, Sequence[Job]],
    jobs: int,
    told: OnEvent,
) -> list[dict[str, Measurement]]:
    context = multiprocessing.get_context("spawn")  # numba's threads do not survive a fork
    queue: Queue[Event] = context.Queue()
    with ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(queue,)) as pool:
        futures = [
            pool.submit(_work, experiment, place, name, some) for name, some in of_table.items()
        ]
        try:
            while wait(futures, timeout=0.2).not_done:
                _pass_on(queue, told)
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        _pass_on(queue, told)
        return [future.result() for future in futures]


_events: list[Queue[Event]] = []  # in a worker: where it reports finished jobs


def _begin(queue: Queue[Event]) -> None:
    """Prepare a worker: it ends with the process that started it, even if that is killed."""
    _events.append(queue)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(
    experiment: Experiment, place: Place, name: str, jobs: Sequence[Job]
) -> dict[str, Measurement]:
    return _measure_table(experiment, place, name, jobs, 1, _events[0].put)


def _pass_on(queue: Queue[Event], told: OnEvent) -> None:
    while True:
        try:
            told(queue.get(timeout=0.05))
        except Empty:
            return


def log(measured: Mapping[str, Measurement], place: Place) -> dict[str, str]:
    """Log every measurement once, to the run of its table and method (k is the step); return runs
    by key.
    """
    workspace, client = Workspace(place.kept), client_of(place.tracking_uri)
    known, runs = workspace.read("runs.json", lambda text: dict(json.loads(text))) or {}, {}
    for key, found in measured.items():
        name = f"{place.tracking_uri} {place.experiment} {found.config.key} {found.method}"
        held = known.get(name)
        there = held and if_there(partial(client.get_run, held["run_id"]))
        # the store may have been emptied
        if held is None or there is None or there.info.lifecycle_stage != "active":
            held = known[name] = {"run_id": None, "keys": []}
        if key not in held["keys"]:
            held["run_id"] = log_report(
                _contents(key, found),
                held["run_id"],
                experiment=place.experiment,
                tracking_uri=place.tracking_uri,
                run_name=f"{found.config.table} {found.method}",
            )
            held["keys"].append(key)
            workspace.keep("runs.json", json.dumps(known, indent=1, sort_keys=True))
        runs[key] = held["run_id"]
    return runs


def _contents(key: str, found: Measurement) -> ReportContents:
    setting, scene = asdict(found.config), asdict(found.summary)
    scene.pop("seconds")  # of whichever process prepared it, so not reproducible
    params = {
        f"{part}.{name}": value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for part, values in (("setting", setting), ("scene", scene))
        for name, value in values.items()
    }
    return ReportContents(
        text=found.to_json(),
        artifact=f"outcomes/{key}.json",
        metrics=list(_metrics(found)),
        params=params,
        tags={"cfk.reproduction": "1", "cfk.table": found.config.table, "cfk.method": found.method},
    )


def _metrics(found: Measurement) -> Iterator[Value]:
    parts = [f"{name}-{value}/" for name, value in sorted(found.options.items())]
    parts += ["distances/"] if "nearest" in found.figures else []
    parts += [f"first-{found.asked}/"] if found.asked < found.summary.explained else []
    figures = asdict(aggregate(found)) | {
        name: mean(found.known(name)) for name in ("nearest", "nearest_5")
    }
    for name, value in figures.items():
        if name != "k" and isinstance(value, (int, float)) and math.isfinite(value):
            yield Value(f"{''.join(parts)}{name}", float(value), found.k)


def format_duration(seconds: float) -> str:
    """Write a time for people: ``40 seconds``, ``3 minutes``, ``1.5 hours``."""
    if seconds < 1:
        return "less than a second"
    if seconds < 90:
        whole = round(seconds)
        plural = "s" if whole > 1 else ""
        return f"{whole} second{plural}"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"


def main() -> None:
    """Run everything on the tables in the folder that the command line names."""
    data = Path(sys.argv[1])
    output = Path(__file__).parent
    place = Place(output=output, data=data, tracking_uri=f"sqlite:///{output / 'mlflow.db'}")
    experiment = Experiment(limit=1000)
    results = reproduce(experiment, place, command="make reproduction DATA=FOLDER")
    findings = (output / "findings.md.j2").read_text(encoding="utf-8")
    (output / PAGE).write_text(render(results, template=findings), encoding="utf-8")


if __name__ == "__main__":
    main()
