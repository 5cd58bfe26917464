"""The whole experiment: measure what was not measured before, log, summarise, and write page and plots."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import platform
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any, NamedTuple

from cfk_plugin.errors import InputError
from cfk_plugin.records.run import ReportContents, Value, client_of, log_report
from cfk_plugin.reproduction.measure import METHODS, SLOW, Piece, measure, measure_candidates, measure_distances
from cfk_plugin.reproduction.page.plots import draw
from cfk_plugin.reproduction.page.rendering import render
from cfk_plugin.reproduction.prepare import GRIDS, Measurement, Prepared, Scene, Setting, choose, prepare
from cfk_plugin.reproduction.results import Results, aggregate
from cfk_plugin.reproduction.studies import STUDIES
from cfk_plugin.reproduction.tables import NAMES, Table, load

if TYPE_CHECKING:
    from multiprocessing.queues import Queue


KS = (5, 10, 20)
"""The k of the paper's Tables 6, 7 and 9 to 12."""

_STUDIED = {"parameters": 15, "plausibility": 20}  # explanations of GRASP where it is tried with many settings
_SLOWEST_FIRST = ("german", "hospital", "adult", "informs", "cmc", "heart")  # so that processes end together


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """What is measured, and how. The data and the machine are not part of it.

    Parameters
    ----------
    tables : tuple of str
    methods : tuple of str
        Of `METHODS`.
    ks : tuple of int
    studies : tuple of str
        Of `STUDIES`.
    limit : int
        Most explanations of a table. The paper explains what is undesired among 1,000 test rows.
    grasp_limit : int
        Most explanations of GRASP, which is slow: the first ones, by which it is compared with the others.
    effective : int
        Of how many explanations the effective k is measured.
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
        """Refuse what cannot be measured before anything is."""
        known: Mapping[str, tuple[tuple[str, ...], object]] = {
            "tables": (self.tables, NAMES),
            "methods": (self.methods, METHODS),
            "studies": (self.studies, STUDIES),
            "grid": ((self.grid,), GRIDS),
        }
        for what, (asked, names) in known.items():
            if strange := [name for name in asked if name not in names]:  # type: ignore[operator]
                raise InputError(f"{what}: unknown {', '.join(strange)}; known: {', '.join(names)}")  # type: ignore[arg-type]
        if not self.tables or not self.methods:
            raise InputError("name at least one table and one method")
        if not self.ks or min(self.ks) < 2:
            raise InputError("every k must be a whole number of at least 2")
        if self.limit < 1 or self.grasp_limit < 1 or self.effective < 0 or self.seed < 0:
            raise InputError("limits must be at least 1; effective and seed at least 0")

    def pieces(self) -> list[Piece]:
        """Return everything that has to be measured; what several parts need is there once, what is slow is last."""
        found = _distinct([*self.main(), *(piece for name in self.studies for piece in self.study(name))])
        return sorted(found, key=lambda piece: (_SLOWEST_FIRST.index(piece.table), piece.method == SLOW))

    def main(self) -> list[Piece]:
        """Return what Tables 6, 7 and 9 to 12 are made of: every method on every table at every k."""
        return [
            Piece(table=table, method=method, k=k, asked=self._asked(method))
            for table in self.tables
            for method in self.methods
            for k in self.ks
        ]

    def study(self, name: str) -> list[Piece]:
        """Return what a study is made of, without methods that are left out of this experiment."""
        asked = min(self.grasp_limit, self.limit, _STUDIED.get(name, self.limit))
        pieces = STUDIES[name].pieces(self.tables, asked_of_grasp=asked)
        return [piece for piece in pieces if piece.method in self.methods or piece.method not in METHODS]

    def _asked(self, method: str) -> int | None:
        return min(self.grasp_limit, self.limit) if method == SLOW else None


def _distinct(pieces: list[Piece]) -> list[Piece]:
    found: list[Piece] = []
    for piece in pieces:
        if piece not in found:
            found.append(piece)
    return found


_GUESS = {"grasp": 1.0}  # seconds per explanation, until the first piece of the method on the table is measured
_OTHERWISE = 0.05


class Forecast:
    """Learns how many explanations each table has, and seconds per explanation of each method on each table.

    Tables that were not begun are taken to be like those that were.

    Parameters
    ----------
    pieces : iterable of Piece
        Everything that has to be measured.
    limit : int
        Most explanations of a table.
    jobs : int
        Pieces that are measured at the same time.
    """

    def __init__(self, pieces: Iterable[Piece], limit: int, jobs: int) -> None:
        self._left = list(pieces)
        self._limit, self._jobs = limit, max(jobs, 1)
        self._seconds: dict[tuple[str, str], float] = defaultdict(float)
        self._count: dict[tuple[str, str], int] = defaultdict(int)
        self._explained: dict[str, int] = {}

    def done(self, piece: Piece, asked: int, seconds: float | None) -> None:
        """Count a piece with its explanations as done; without seconds it was known before and says nothing of them."""
        self._left.remove(piece)
        self._explained[piece.table] = max(asked, self._explained.get(piece.table, 0))
        if seconds is not None:
            for of in ((piece.table, piece.method), ("", piece.method)):
                self._seconds[of] += seconds
                self._count[of] += asked

    @property
    def left(self) -> float:
        """Seconds until all pieces are done, if the next ones take as long as those of their method took."""
        return sum(self._per_explanation(piece) * self._asked(piece) for piece in self._left) / self._jobs

    def _per_explanation(self, piece: Piece) -> float:
        for of in ((piece.table, piece.method), ("", piece.method)):
            if self._count[of]:
                return self._seconds[of] / self._count[of]
        return _GUESS.get(piece.method, _OTHERWISE)

    def _asked(self, piece: Piece) -> float:
        begun = self._explained.values()
        most = self._explained.get(piece.table, sum(begun) / len(begun) if begun else self._limit)
        return most if piece.asked is None else min(most, piece.asked)


class Workspace:
    """Outcomes, what settings led to, and which runs they were logged to. Figures alone: no row, no model.

    A file appears whole or not at all. One that cannot be read counts as missing: it is measured again.

    Parameters
    ----------
    folder : Path
        Made when something is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __repr__(self) -> str:
        """Name the folder."""
        return f"Workspace({str(self.folder)!r})"

    def outcome(self, key: str) -> Measurement | None:
        """Return what a piece gave, if it was measured; see `Piece.key`."""
        text = self._read(self._outcome(key))
        try:
            return None if text is None else Measurement.from_json(text)
        except (ValueError, TypeError, KeyError):
            return None

    def keep(self, piece: Piece, outcome: Measurement) -> None:
        """Keep what a piece gave."""
        self._write(self._outcome(piece.key(outcome.setting)), outcome.to_json())

    def scene(self, setting: Setting) -> Scene | None:
        """Return what a setting led to, if it is known."""
        text = self._read(self._scene(setting))
        try:
            return None if text is None else Scene(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def keep_scene(self, setting: Setting, scene: Scene) -> None:
        """Keep what a setting led to."""
        self._write(self._scene(setting), json.dumps(asdict(scene), sort_keys=True))

    def runs(self) -> dict[str, Any]:
        """Return what is known of runs of MLflow: whatever was kept last."""
        text = self._read(self.folder / "runs.json")
        try:
            return {} if text is None else dict(json.loads(text))
        except (ValueError, TypeError):
            return {}

    def keep_runs(self, runs: Mapping[str, Any]) -> None:
        """Keep what is known of runs of MLflow."""
        self._write(self.folder / "runs.json", json.dumps(runs, indent=1, sort_keys=True))

    def _outcome(self, key: str) -> Path:
        return self.folder / "outcomes" / f"{key}.json"

    def _scene(self, setting: Setting) -> Path:
        return self.folder / "scenes" / f"{setting.key}.json"

    def _read(self, path: Path) -> str | None:
        try:
            return path.read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError):
            return None

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)


_EXTRA = ("nearest", "nearest_5", "distance")


def log(
    outcomes: Mapping[str, Measurement], workspace: Workspace, *, experiment: str, tracking_uri: str
) -> dict[str, str]:
    """Log every outcome once, to the run of its table and method.

    A run holds the figures of every explanation as ``outcomes/KEY.json`` and their means as metrics: ``ncp``,
    ``pureness`` and so on (`Aggregate`) with k as the step; where settings are not the usual ones, their names come
    first, as in ``alpha-40/ncp``. An experiment that is continued adds to its runs.

    Parameters
    ----------
    outcomes : mapping
        Key of a piece to its outcome.
    workspace : Workspace
        Remembers which runs there are and what they hold.
    experiment, tracking_uri : str

    Returns
    -------
    dict
        Key of a piece to the id of its run.

    Raises
    ------
    TrackingError
        If MLflow does not take them.
    """
    client, known = client_of(tracking_uri), workspace.runs()
    runs: dict[str, str] = {}
    for key, outcome in outcomes.items():
        name = f"{tracking_uri} {experiment} {outcome.setting.key} {outcome.method}"
        held = known.get(name)
        if held is None or not _exists(client, held["run_id"]):
            held = known[name] = {"run_id": None, "keys": []}
        if key not in held["keys"]:
            held["run_id"] = log_report(
                _contents(key, outcome),
                held["run_id"],
                experiment=experiment,
                tracking_uri=tracking_uri,
                run_name=f"{outcome.setting.table} {outcome.method}",
            )
            held["keys"].append(key)
            workspace.keep_runs(known)
        runs[key] = held["run_id"]
    return runs


def prefix(outcome: Measurement) -> str:
    """Return what the names of an outcome's metrics start with: nothing, where everything is as usual."""
    parts = [f"{name}-{value}" for name, value in sorted(outcome.options.items())]
    parts += ["distances"] if "nearest" in outcome.figures else []
    parts += [f"first-{outcome.asked}"] if outcome.asked < outcome.scene.explained else []
    return "".join(f"{part}/" for part in parts)


def _contents(key: str, outcome: Measurement) -> ReportContents:
    setting, scene = asdict(outcome.setting), asdict(outcome.scene)
    scene.pop("seconds")  # of the process that prepared it; a continued experiment may have had another
    params = {
        f"{part}.{name}": value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for part, values in (("setting", setting), ("scene", scene))
        for name, value in values.items()
    }
    return ReportContents(
        text=outcome.to_json(),
        artifact=f"outcomes/{key}.json",
        metrics=list(_metrics(outcome)),
        params=params,
        tags={"cfk.reproduction": "1", "cfk.table": outcome.setting.table, "cfk.method": outcome.method},
    )


def _metrics(outcome: Measurement) -> Iterator[Value]:
    start = prefix(outcome)
    found: dict[str, Any] = asdict(aggregate(outcome))
    for name in _EXTRA:
        values = [value for value in outcome.figures.get(name, ()) if value is not None]
        found[name] = math.fsum(values) / len(values) if values else None
    for name, value in found.items():
        if name != "k" and isinstance(value, (int, float)) and math.isfinite(value):
            yield Value(f"{start}{name}", float(value), outcome.k)


def _exists(client: Any, run_id: str) -> bool:
    """Say whether a run is still there: a store may have been emptied since."""
    from mlflow.exceptions import MlflowException

    try:
        return bool(client.get_run(run_id).info.lifecycle_stage == "active")
    except MlflowException:
        return False


_LIBRARIES = ("cfk-plugin", "numpy", "pandas", "scikit-learn", "numba", "NICEx")


class Event(NamedTuple):
    """What a worker tells: a piece is done, with so many explanations; without seconds it was known before."""

    piece: Piece
    asked: int
    seconds: float | None


Told = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where tables come from and how they are explained; the same for all of them.

    Attributes
    ----------
    data : Path, optional
        Folder of tables; without it OpenML is asked.
    cache : Path, optional
        Where OpenML's answers are kept.
    workspace : Path
    seed : int
    grid : {"small", "paper"}
    explainer : {"nice", "nearest"}
    limit : int
        Most explanations of a table.
    effective : int
        Of how many the effective k is measured.
    """

    data: Path | None
    cache: Path | None
    workspace: Path
    seed: int
    grid: str
    explainer: str
    limit: int
    effective: int


def run(sources: Sources, pieces: Sequence[Piece], *, jobs: int, told: Told) -> dict[str, Measurement]:
    """Measure what was not measured before.

    Parameters
    ----------
    sources : Sources
    pieces : sequence of Piece
    jobs : int
        Tables at the same time. With one table it is the number of processes that tune its forest.
    told : callable
        Called with each `Event`, in this process.

    Returns
    -------
    dict
        `Piece.key` to outcome, in the order of the pieces.

    Raises
    ------
    CFKError
        Of the first table that failed, once the others are done; what they gave is kept.
    """
    of_table: dict[str, list[Piece]] = {}
    for piece in pieces:
        of_table.setdefault(piece.table, []).append(piece)
    if jobs == 1 or len(of_table) == 1:
        found = [_measure_table(sources, name, some, jobs, told) for name, some in of_table.items()]
    else:
        found = _in_processes(sources, of_table, jobs, told)
    return {key: outcome for some in found for key, outcome in some.items()}


def _measure_table(
    sources: Sources, name: str, pieces: Sequence[Piece], jobs: int, told: Told
) -> dict[str, Measurement]:
    """Measure the pieces of one table; it is prepared when the first piece needs it."""
    workspace = Workspace(sources.workspace)
    (table,) = load([name], sources.data, sources.cache)
    setting = Setting(
        table=name,
        table_sha256=table.sha256,
        source=table.source,
        seed=sources.seed,
        grid=sources.grid,
        explainer=sources.explainer,
        limit=sources.limit,
        versions=_versions(),
    )
    prepared: Prepared | None = None
    outcomes = {}
    for piece in pieces:
        key, started, seconds = piece.key(setting), time.perf_counter(), None
        outcome = workspace.outcome(key)
        if outcome is None:
            if prepared is None:
                prepared = _prepared(table, setting, workspace, jobs)
                started = time.perf_counter()
            outcome = _measure(prepared, piece, sources.effective)
            workspace.keep(piece, outcome)
            seconds = time.perf_counter() - started
        outcomes[key] = outcome
        told(Event(piece, outcome.asked, seconds))
    return outcomes


def _prepared(table: Table, setting: Setting, workspace: Workspace, jobs: int) -> Prepared:
    """Prepare a table; its forest is tuned once, also when the experiment goes on later."""
    scene = workspace.scene(setting)
    prepared = prepare(table, setting, scene, jobs=jobs)
    if scene is None:
        workspace.keep_scene(setting, prepared.scene)
    return prepared


def _measure(prepared: Prepared, piece: Piece, effective: int) -> Measurement:
    if piece.kind == "distances":
        return measure_distances(prepared, piece.method, piece.k, options=piece.options, asked=piece.asked)
    if piece.kind == "candidates":
        m = int(piece.options["candidates"])
        return measure_candidates(prepared, piece.k, m, method=piece.method, asked=piece.asked)
    return measure(prepared, piece.method, piece.k, options=piece.options, asked=piece.asked, effective=effective)


def _in_processes(
    sources: Sources, of_table: Mapping[str, Sequence[Piece]], jobs: int, told: Told
) -> list[dict[str, Measurement]]:
    context = multiprocessing.get_context("spawn")  # numba's threads and forked processes do not go together
    queue: Queue[Event] = context.Queue()
    with ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(queue,)) as pool:
        futures = [pool.submit(_work, sources, name, some) for name, some in of_table.items()]
        try:
            while wait(futures, timeout=0.2).not_done:
                _tell(queue, told)
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        _tell(queue, told)
        return [future.result() for future in futures]


_events: list[Queue[Event]] = []  # in a worker: where it tells what it has done


def _begin(queue: Queue[Event]) -> None:
    """Prepare a worker: it ends when the process that started it does, also when that one is killed."""
    _events.append(queue)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(sources: Sources, name: str, pieces: Sequence[Piece]) -> dict[str, Measurement]:
    return _measure_table(sources, name, pieces, 1, _events[0].put)


def _tell(queue: Queue[Event], told: Told) -> None:
    while True:
        try:
            told(queue.get(timeout=0.05))
        except Empty:
            return


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


PAGE, RESULTS, FIGURES = "reproduction.md", "results.json", "figures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an experiment reads and writes.

    Attributes
    ----------
    output : Path
        Folder of page, plots, results and of what is kept in between.
    data : Path, optional
        Folder of tables; without it OpenML is asked.
    cache : Path, optional
        Where OpenML's answers are kept.
    experiment : str
        Of MLflow.
    tracking_uri : str
    """

    output: Path
    data: Path | None = None
    cache: Path | None = None
    experiment: str = "cfk reproduce"
    tracking_uri: str

    @property
    def kept(self) -> Path:
        """Where outcomes are kept, so that a run that was stopped goes on."""
        return self.output / "kept"


def reproduce(
    experiment: Experiment, place: Place, *, command: str, jobs: int = 1, told: Told = lambda _: None
) -> Results:
    """Run an experiment, or what is left of it, and write what came out.

    The output folder then holds ``reproduction.md``, ``results.json`` and ``figures/``; MLflow holds one run per table
    and method. Nothing in any of them is a value of a row.

    Parameters
    ----------
    experiment : Experiment
    place : Place
    command : str
        The command line that asks for the same, as the page says it.
    jobs : int
        Tables at the same time.
    told : callable
        Called with each `running.Event`.

    Returns
    -------
    Results

    Raises
    ------
    InputError
        If a table cannot be had, or the explainer is not installed.
    TrackingError
        If MLflow does not take the runs; what was measured is kept.
    """
    sources = Sources(
        data=place.data,
        cache=place.cache,
        workspace=place.kept,
        seed=experiment.seed,
        grid=experiment.grid,
        explainer=choose(experiment.explainer),
        limit=experiment.limit,
        effective=experiment.effective,
    )
    outcomes = run(sources, experiment.pieces(), jobs=jobs, told=told)
    runs = log(outcomes, Workspace(place.kept), experiment=place.experiment, tracking_uri=place.tracking_uri)
    results = summarise(experiment, outcomes, runs, command)
    write(results, place.output)
    return results


def summarise(
    experiment: Experiment, outcomes: Mapping[str, Measurement], runs: Mapping[str, str], command: str
) -> Results:
    """Return what the outcomes of an experiment say, each with the id of its run.

    Parameters
    ----------
    experiment : Experiment
    outcomes, runs : mapping
        Key of a piece to what it gave, and to its run.
    command : str
    """
    settings = {outcome.setting.table: outcome.setting for outcome in outcomes.values()}

    def of(pieces: Iterable[Piece]) -> dict[str, Measurement]:
        keys = [piece.key(settings[piece.table]) for piece in pieces]
        return {key: outcomes[key] for key in keys}

    def rows(name: str) -> list[dict[str, Any]]:
        found = STUDIES[name].rows(of(experiment.study(name)))
        return [{**row, "run_id": runs.get(row["piece"])} for row in found]

    main = of(experiment.main())
    return Results.of(
        main.values(),
        command=command,
        machine=f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        studies=[{"name": name, "rows": found} for name in experiment.studies if (found := rows(name))],
        runs={(o.setting.table, o.method, o.k): runs[key] for key, o in main.items() if key in runs},
    )


def write(results: Results, output: Path) -> None:
    """Write page, plots and results into a folder."""
    output.mkdir(parents=True, exist_ok=True)
    draw(results, output / FIGURES)
    (output / RESULTS).write_text(results.to_json(), encoding="utf-8")
    (output / PAGE).write_text(render(results), encoding="utf-8")
