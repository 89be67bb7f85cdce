"""Which files of a task come home, and where they are put."""

from __future__ import annotations

import pytest

from batchtrain.config.types import Results
from batchtrain.runs.results import Part, destination, select, selects
from batchtrain.service.downloads import FileSeen, node_tree, task_tree

PRIMARY = Part("n0", "tvm-1", task_tree("j", "train"))
SECOND = Part("n1", "tvm-2", node_tree("p", "tvm-2", "workitems/j/job-1/train"))


@pytest.mark.parametrize(
    ("pattern", "path", "means"),
    [
        ("output/**", "output/a/b", True),
        ("output", "output/a/b", True),
        ("output", "outputs/a", False),
        ("*.pt", "model.pt", True),
        ("*.pt", "a/model.pt", False),
        ("**/*.pt", "a/b/model.pt", True),
        ("**/*.pt", "model.pt", True),
        ("model?.pt", "model1.pt", True),
        ("model[0-3].pt", "model2.pt", True),
        ("model[!0-3].pt", "model2.pt", False),
        ("a+b(1).txt", "a+b(1).txt", True),
        ("*", "a\nb", True),
        ("./output/", "output/x", True),
        ("a[", "a[", True),
    ],
)
def test_what_a_pattern_means(pattern: str, path: str, means: bool) -> None:
    assert selects((pattern,), path) is means


@pytest.mark.parametrize(
    ("part", "path", "where"),
    [
        (PRIMARY, "stdout.txt", "logs/train/stdout.txt"),
        (PRIMARY, "wd/ranks/rank-0.stderr.txt", "logs/train/ranks/0.stderr.txt"),
        (SECOND, "wd/ranks/rank-12.stdout.txt", "logs/train/ranks/12.stdout.txt"),
        (SECOND, "wd/ranks/ps-0.stdout.txt", "logs/train/ranks/ps-0.stdout.txt"),
        (SECOND, "wd/ranks/rank-1.metrics.jsonl", "metrics/train/1.jsonl"),
        (PRIMARY, "wd/output/model.pt", "outputs/train/model.pt"),
        (PRIMARY, "output/model.pt", ""),
        (PRIMARY, "wd/data/train.npz", ""),
        (SECOND, "wd/output/model.pt", ""),
        (SECOND, "stdout.txt", ""),
    ],
)
def test_where_a_file_belongs(part: Part, path: str, where: str) -> None:
    assert destination("train", Results(), part, path) == where


def test_results_of_all_nodes_have_a_directory_each() -> None:
    everywhere = Results(from_="all", include=("*.pt",), exclude=("old*",))
    found = [destination("train", everywhere, part, "wd/model.pt") for part in (PRIMARY, SECOND)]
    assert found == ["outputs/train/n0/model.pt", "outputs/train/n1/model.pt"]
    assert destination("train", everywhere, PRIMARY, "wd/old.pt") == ""


def test_results_beyond_their_size_stay_and_logs_have_no_limit() -> None:
    sizes = {"wd/output/a": 600, "wd/output/b": 600, "wd/output/c": 400, "stdout.txt": 10**6}
    files = [(PRIMARY, FileSeen(path, size)) for path, size in sizes.items()]
    chosen = select("train", Results(max_size="1k"), files)
    assert [file.path for _, file, _ in chosen.wanted] == ["wd/output/a", "wd/output/c", "stdout.txt"]
    assert [file.path for _, file in chosen.over] == ["wd/output/b"]
    assert select("train", Results(max_size="1k"), files, everything=True).over == ()


def test_no_remote_name_leaves_the_run_directory() -> None:
    files = [(PRIMARY, FileSeen(path, 1)) for path in ("wd/output/../../../../etc/x", "wd/output//abs", "wd/output/..")]
    names = [name for _, _, name in select("train", Results(), files).wanted]
    assert len(set(names)) == 3
    assert not [name for name in names if ".." in name.split("/") or name.startswith("/")]


def test_two_files_that_would_have_one_name_keep_apart() -> None:
    results = Results(include=("**",))
    files = [(PRIMARY, FileSeen(path, 1)) for path in ("wd/output/model.pt", "wd/model.pt")]
    names = [name for _, _, name in select("train", results, files).wanted]
    assert names[0] == "outputs/train/model.pt"
    assert len(set(names)) == 2
