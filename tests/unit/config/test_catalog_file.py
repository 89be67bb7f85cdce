"""What a person's own catalog.yaml may say, and how its mistakes are told."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from batchtrain.catalog import sizes
from batchtrain.catalog.offer import Catalog
from batchtrain.config import catalog_file
from batchtrain.errors import ConfigError, Problem, UsageError

NEW = """\
sizes:
- {name: Standard_ND256isr_X_v9, family: ND X v9, cores: 256, memory_gib: 2048, gpus: 8, gpu_model: X, infiniband: xdr}
images:
- publisher: Microsoft-DSVM
  offer: ubuntu-hpc
  sku: "2604"
  node_agent: batch.node.ubuntu 26.04
  capabilities: [docker, rdma, nvidia, gen2]
"""


def written(place: Path, text: str) -> Path:
    file = place / "catalog.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def problems(place: Path, text: str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as raised:
        catalog_file.read(written(place, text))
    return raised.value.problems


def test_an_entry_adds_a_size_and_an_image(tmp_path: Path) -> None:
    catalog = catalog_file.read(written(tmp_path, NEW))
    size = catalog.size("STANDARD_ND256ISR_X_V9")
    image = catalog.image("microsoft-dsvm", "ubuntu-hpc", "2604")
    assert size is not None
    assert (size.cores, size.gpus, size.gpu_vendor, size.rdma, size.hcas) == (256, 8, "nvidia", "sr-iov", 1)
    assert image is not None
    assert image.node_agent == "batch.node.ubuntu 26.04"


def test_an_entry_corrects_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    catalog = catalog_file.read(written(tmp_path, "sizes: [{name: nc24rs_v3, retired: never, memory_gib: 440.5}]"))
    known, corrected = sizes.find("NC24rs_v3"), catalog.size("NC24rs_v3")
    assert known is not None
    assert corrected == known._replace(retired=None, memory_gib=440.5)


def test_a_day_of_retirement_is_read(tmp_path: Path) -> None:
    catalog = catalog_file.read(written(tmp_path, "sizes: [{name: Standard_ND40rs_v2, retired: 2027-09-30}]"))
    size = catalog.size("ND40rs_v2")
    assert size is not None
    assert size.retired == date(2027, 9, 30)


@pytest.mark.parametrize(
    ("text", "line", "path", "said"),
    [
        ("sizes:\n- {name: A1, corse: 4}\n", 2, "sizes[0].corse", "`corse` is not known here."),
        ("sizes:\n- name: A1\n  cores: four\n", 3, "sizes[0].cores", "expected `int`, got `str`"),
        ("sizes:\n- name: A1\n  cores: 0\n", 3, "sizes[0].cores", "expected `int` >= 1"),
        ("sizes:\n- cores: 4\n", 2, "sizes[0]", "`name` is missing"),
        ("sizes:\n- {name: X9, cores: 4}\n", 2, "sizes[0]", "Standard_X9 is not in the tables, so `cores` and"),
        ("sizes:\n- name: A1\n  retired: soon\n", 3, "sizes[0].retired", "`soon` is neither a date such as"),
        ("sizes:\n- name: 'a b'\n", 2, "sizes[0].name", "expected `str` matching regex"),
        ("sizes: {}\n", 1, "sizes", "`sizes` must be a list"),
        ("sizes:\n- A1\n", 2, "sizes[0]", "a size must be a mapping"),
        ("images:\n- {publisher: a, offer: b, sku: c}\n", 2, "images[0]", "a:b:c is not in the tables"),
        ("prices:\n- {currency: USD}\n", 2, "prices[0]", "`region` is missing"),
        ("prices:\n- {region: x, spot: {A1: -1}}\n", 2, "prices[0].spot", "expected `float` >= 0"),
        ("size: []\n", 1, "size", "`size` is not known here."),
        ("- 1\n", 1, "", "the file must be a mapping"),
    ],
)
def test_a_mistake_is_reported_with_its_position(tmp_path: Path, text: str, line: int, path: str, said: str) -> None:
    (problem,) = problems(tmp_path, text)
    assert (problem.line, problem.path, problem.file) == (line, path, str(tmp_path / "catalog.yaml"))
    assert problem.message.startswith(said)


def test_a_mistake_is_shown_in_its_line(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "sizes:\n- name: A1\n  corse: 4\n")
    assert problem.rendered().splitlines()[1:3] == [" 3 |   corse: 4", "   |   ^^^^^"]


def test_every_mistake_is_reported_at_once(tmp_path: Path) -> None:
    found = problems(tmp_path, "sizes:\n- {name: A1, corse: 4, gpus: many}\n- {cores: 1}\nimage: []\n")
    assert [problem.line for problem in found] == [2, 2, 3, 4]


def test_a_misspelt_key_comes_with_the_nearest(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "sizes: [{name: A1, memory_gb: 4}]")
    assert problem.hint == "did you mean `memory_gib`?"


def test_the_recipe_s_own_file_wins_over_the_user_s(tmp_path: Path) -> None:
    recipe, user = tmp_path / "recipe", tmp_path / "home" / "batchtrain"
    recipe.mkdir()
    user.mkdir(parents=True)
    written(user, "sizes: [{name: A1, cores: 2}, {name: A2, cores: 3}]")
    written(recipe, "sizes: [{name: A1, cores: 9}]")
    catalog = catalog_file.load(recipe, {"XDG_CONFIG_HOME": str(tmp_path / "home")})
    cores = [size.cores for name in ("A1", "A2", "A3") if (size := catalog.size(name))]
    assert cores == [9, 3, 4]


def test_the_variable_takes_the_place_of_the_user_s_file(tmp_path: Path) -> None:
    user = tmp_path / "home" / ".config" / "batchtrain"
    user.mkdir(parents=True)
    written(user, "sizes: [{name: A1, cores: 2}]")
    chosen = written(tmp_path, "sizes: [{name: A2, cores: 7}]")
    variables = {"HOME": str(tmp_path / "home"), "BATCHTRAIN_CATALOG": str(chosen)}
    assert catalog_file.files(None, variables) == (chosen,)


def test_a_variable_that_names_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"BATCHTRAIN_CATALOG is .*gone\.yaml, which is not a file"):
        catalog_file.load(None, {"BATCHTRAIN_CATALOG": str(tmp_path / "gone.yaml")})


def test_no_file_is_the_tables_alone(tmp_path: Path) -> None:
    assert catalog_file.load(tmp_path, {"HOME": str(tmp_path)}) == Catalog()


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    catalog = catalog_file.read(written(tmp_path, NEW))
    text = catalog_file.text_of(catalog, "written by a test\nin two lines")
    assert text.startswith("# written by a test\n# in two lines\n")
    assert catalog_file.read(written(tmp_path, text)) == catalog


def test_an_empty_catalogue_is_written_so_that_it_can_be_read(tmp_path: Path) -> None:
    assert catalog_file.read(written(tmp_path, catalog_file.text_of(Catalog(), "nothing"))) == Catalog()
