"""The command ``course race``; as thin as the others."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from course_tools.console import make_console
from course_tools.options import find_images, parse_folder, parse_word
from course_utils.errors import CourseError
from course_utils.files import ROOT

if TYPE_CHECKING:  # these imports take seconds
    from course_tools.race.entries import Entry
    from course_tools.race.leaderboard import Leaderboard, Row
    from course_tools.race.run import Race
    from course_utils.config import Config

__all__ = ["app"]

app = typer.Typer()
console = make_console()
MOST_SEEDS = 100
STEPS_LIMIT_S = 600  # of a training whose budget is steps


def _make_config(profile: str, dataset: str | None, images: int | None) -> "Config":
    from course_utils.config import load_config
    from course_utils.data.sources import NAMED

    config = load_config(profile, dataset=dataset or "", first_seed=0)
    if config.dataset not in NAMED:
        config = config.replace(dataset=find_images(config.dataset))
    return config.replace(num_train=images or config.num_train, progress=False)


def _list_settings(race: "Race", seeds: Sequence[int], reach: float | None) -> dict[str, Any]:
    """What rows of one leaderboard have to share; no path, because a folder may be moved."""
    return {
        "data": race.data.summarize() | {"name": Path(race.data.name).name},
        "hidden": {"images": len(race.hidden.targets), "digest": race.hidden.digest()},
        "budget": asdict(race.budget),
        "seeds": list(seeds),
        "reach": reach,
        "sandbox": race.sandbox,
        "on_trust": list(_list_trust(race)),
    }


def _list_trust(race: "Race") -> Iterator[str]:
    """What this race cannot enforce, in sentences that the leaderboard keeps."""
    from course_utils.data.sources import NAMED

    if not race.sandbox:
        yield "no sandbox: a recipe could read the classes of the hidden images, or this file"
    if race.budget.steps is not None:
        yield "steps are counted in the recipe's own process: only the seconds are enforced"
    if race.data.name in NAMED:
        yield "the hidden images are public: a recipe could bring their classes along"


def _race_one(
    race: "Race", entry: "Entry", seeds: Sequence[int], say: Callable[[str], None]
) -> "Row":
    """Train one recipe at every seed; the first problem ends it."""
    from course_tools.race.leaderboard import Row
    from course_tools.race.run import NotStartedError

    trained = []
    try:
        if entry.problem:
            raise CourseError(entry.problem)
        for number, seed in enumerate(seeds, start=1):
            doing = Text(f"{entry.name}: training {number} of {len(seeds)}")
            with console.status(doing):
                trained.append(race.train(entry.source, seed))
            accuracy, time_s = trained[-1].accuracy, trained[-1].time_s
            say(f"{entry.name} · seed {seed}: {accuracy:.1%} after {time_s:.0f} s")
    except NotStartedError:
        raise
    except CourseError as error:
        say(f"{entry.name}: refused: {error}")
        return Row(entry.name, entry.sha256, problem=str(error))
    measured = [(x.accuracy, x.time_s, x.steps) for x in trained]
    accuracies, times_s, steps = zip(*measured, strict=True)
    return Row(entry.name, entry.sha256, accuracies, times_s, steps)


def _race_all(
    race: "Race",
    entries: Sequence["Entry"],
    seeds: Sequence[int],
    output: Path,
    reach: float | None,
) -> "Leaderboard":
    """Train all recipes, and add a row for each to the leaderboard in the file.

    Raises:
        CourseError, OSError: a row cannot be added; all that was measured is printed.
    """
    from course_tools.interrupts import ending_on_interrupt
    from course_tools.race.leaderboard import put_rows

    def say(sentence: str) -> None:
        console.print(sentence, soft_wrap=True, markup=False)

    settings = _list_settings(race, seeds, reach)
    leaderboard = put_rows(output, settings)  # now: an hour later is too late for "no room"
    say(f"{race.data.describe()}; hidden: {len(race.hidden.targets):,}; {race.budget.describe()}")
    with ending_on_interrupt(console, f"course: interrupted; finished recipes are in {output}"):
        for entry in entries:
            row = _race_one(race, entry, seeds, say)
            source = {entry.name: entry.source.decode("utf-8", errors="replace")}
            leaderboard = put_rows(output, settings, [row], source)  # an interruption loses nothing
    console.print(leaderboard.make_table())
    for sentence in settings["on_trust"]:
        console.print(f"on trust: {sentence}", soft_wrap=True, style="yellow")
    console.print("recipes whose intervals overlap share their places", style="dim")
    for record in leaderboard.records:
        say(f"record: {record.describe()}")
    say(f"leaderboard: {output}")
    return leaderboard


@app.command("race")
def race_recipes(
    recipes: Annotated[
        list[str], typer.Argument(help="files *.py, folders of them, or lesson_12 (ours)")
    ],
    seconds: Annotated[
        float | None, typer.Option(help="for each training; 60, or 600 with --steps")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="of the optimizer, in place of seconds", min=1)
    ] = None,
    seeds: Annotated[int, typer.Option(help="trainings of each recipe", min=1, max=MOST_SEEDS)] = 3,
    reach: Annotated[
        float | None,
        typer.Option(help="records are fewest steps to this accuracy, in %, not the accuracy"),
    ] = None,
    profile: Annotated[str, typer.Option(help="smoke, quick or full")] = "",
    dataset: Annotated[
        str | None,
        typer.Option(
            help="photos if not given; shapes, cifar10 or a folder, whose test images judge",
            parser=parse_word,
            metavar="NAME",
        ),
    ] = None,
    images: Annotated[
        int | None, typer.Option(help="to train on, at most; those of the profile if none", min=20)
    ] = None,
    memory: Annotated[float, typer.Option(help="GiB for one training (Linux)")] = 6,
    output: Annotated[
        Path, typer.Option(help="the leaderboard, JSON", parser=parse_folder, metavar="FILE")
    ] = ROOT / "build" / "leaderboard.json",
    sandbox: Annotated[
        bool,
        typer.Option(
            "--sandbox/--no-sandbox",
            help="bubblewrap (Linux); without it the leaderboard says that recipes could cheat",
        ),
    ] = True,
) -> None:
    """Train recipes on the same images within the same budget, and judge them on hidden images."""
    from course_tools.grade.sandbox import find_sandbox
    from course_tools.race.budget import Budget
    from course_tools.race.entries import find_entries

    if output.exists() and not output.is_file():
        raise CourseError(f"{output} is a folder, a pipe or a device: name a file with --output")
    if reach is not None and not 0 < reach < 100:
        raise CourseError(f"--reach {reach:g}: give an accuracy in %, between 0 and 100")
    entries = find_entries(recipes)
    default_s = Budget.seconds if steps is None else STEPS_LIMIT_S
    budget = Budget(default_s if seconds is None else seconds, steps, memory)
    sandboxed, _ = find_sandbox(sandbox)

    from course_tools.race.run import Race
    from course_tools.race.split import HiddenSplit
    from course_utils.data import load_data

    config = _make_config(profile, dataset, images)
    data = load_data(config)
    race = Race(config, data, HiddenSplit.open(data), budget, sandboxed)
    leaderboard = _race_all(race, entries, range(seeds), output, reach and reach / 100)
    raced = {entry.name for entry in entries}
    raise typer.Exit(1 if any(x.problem for x in leaderboard.rows if x.name in raced) else 0)
