"""Every exercise accepts its solution, explains its known wrong answers, and ships blank."""

import importlib.util
from pathlib import Path

import pytest

from ssmlab.lab import exercises, notebooks

FOLDER = Path(__file__).parent / "solutions"


def load(number):
    spec = importlib.util.spec_from_file_location(f"solutions_{number:02d}", FOLDER / f"nb{number:02d}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NUMBERS = [int(path.stem[:2]) for path in notebooks.sources()]
ANSWERS = {number: load(number) for number in NUMBERS}
RIGHT = [(key, answer) for module in ANSWERS.values() for key, answer in module.SOLUTIONS.items()]
WRONG = [(key, attempt, words) for module in ANSWERS.values() for key, attempts in module.WRONG.items()
         for attempt, words in attempts]


@pytest.mark.parametrize("number", NUMBERS)
def test_every_exercise_of_a_notebook_has_a_solution_and_known_wrong_answers(number):
    keys = exercises.keys(number)
    assert 2 <= len(keys) <= 4
    assert sorted(ANSWERS[number].SOLUTIONS) == keys
    assert sorted(key for key, attempts in ANSWERS[number].WRONG.items() if attempts) == keys


@pytest.mark.parametrize("key, answer", RIGHT, ids=[key for key, _ in RIGHT])
def test_a_solution_passes(key, answer, capsys):
    exercises.check(key, answer)
    assert capsys.readouterr().out.endswith(f"{key} passed\n")


@pytest.mark.parametrize("key, attempt, words", WRONG, ids=[f"{key}-{words[:20]}" for key, _, words in WRONG])
def test_a_known_wrong_answer_is_explained(key, attempt, words):
    with pytest.raises(exercises.WrongAnswer) as error:
        exercises.check(key, attempt)
    assert words in str(error.value)


@pytest.mark.parametrize("number", NUMBERS)
def test_the_committed_notebook_ships_its_exercises_blank(number):
    source = next(path for path in notebooks.sources() if path.stem.startswith(f"{number:02d}"))
    notebook = notebooks.read(notebooks.notebook_of(source))
    for key in exercises.keys(number):
        checks = [cell for cell in notebook.cells if cell.cell_type == "code" and f'check("{key}"' in cell.source]
        assert len(checks) == 1, f"exercise {key} has {len(checks)} check cells"
        assert [output.text for output in checks[0].outputs] == [f"{key} not attempted yet\n"]
