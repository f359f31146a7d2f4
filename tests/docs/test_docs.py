"""The documentation works: its Python runs, its commands parse, the tutorial does what it says.

A block of Python runs as a script, in a folder of its page's own, with the file backend there. Its
first line may name the file that it is saved as (``# etl.py``), for the blocks and commands behind
it. One that needs more than that is marked ``python by-test``, with the test that runs it in a
comment in front of it: ``<!-- by-test: tests/docs/… -->``. One that no test can run is marked
``no-run``, with the reason: ``<!-- no-run: … -->``. Every block has to compile, and its imports and
names of jrs have to exist.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import operator
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import click
import pytest

import jrs
from jrs.cli import cli
from jrs.recovery.attempt import attempt_run
from tests.docs import session
from tests.support import BOUND

PAGES = [session.ROOT / "README.md", *sorted((session.ROOT / "docs").glob("*.md"))]
TUTORIAL = session.ROOT / "docs" / "tutorial.md"
SESSIONS = (TUTORIAL, *(session.ROOT / "docs" / name for name in ("operations.md", "recipes.md")))
PLACES = ("/var/lib/jrs", "/tmp/tutorial")
"""What the pages call the reader's folders; each is a folder of the test here."""
SLEEP = "time.sleep(600 if job.attempt == 1 else 0)"
"""In the tutorial's job: the first attempt ends with its master, and by nothing else."""
RUN = "import runpy, sys; [runpy.run_path(path, run_name='__main__') for path in sys.argv[1:]]"
KEY = "/etc/jrs/spec.key"
MARKS = ("", "by-test", "no-run")
KINDS = {"bash", "console", "python", "text", "{eval-rst}", "{jrs-commands}", "{toctree}"}


@attrs.frozen
class Block:
    """A block of code in a page."""

    page: Path
    line: int
    kind: str
    mark: str
    """Who runs it: "" the tests here, "by-test" the one that its comment names, "no-run" nobody."""
    text: str
    before: str
    """The last line with text in front of it."""

    @property
    def where(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def name(self) -> str:
        """The file that it is saved as."""
        named = re.match(r"# ([a-z_]+\.py)\b", self.text)
        return named[1] if named else f"line_{self.line}.py"


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page; those inside of lists, too."""
    lines = page.read_text(encoding="utf-8").splitlines()
    number, before = 0, ""
    while number < len(lines):
        opened = re.match(r"( *)```(.*)$", lines[number])
        number += 1
        if opened is None:
            before = lines[number - 1].strip() or before
            continue
        first, inside = number, []
        while lines[number].strip() != "```":
            inside.append(lines[number].removeprefix(opened[1]))
            number += 1
        number += 1
        kind, _, mark = opened[2].partition(" ")
        assert mark in MARKS, f"{page.name}:{first}: what does {mark!r} mean?"
        yield Block(page, first, kind, mark, "\n".join(inside) + "\n", before)


BLOCKS = [block for page in PAGES for block in blocks(page)]
PYTHON = [block for block in BLOCKS if block.kind == "python"]
CONSOLE = [block for block in BLOCKS if block.kind == "console"]


def of(page: Path) -> list[Block]:
    return [block for block in PYTHON if block.page == page]


def marked(page: str) -> list[str]:
    """Return the blocks of a page that a test of their own runs."""
    return [block.text for block in PYTHON if block.page.name == page and block.mark == "by-test"]


def localized(text: str, folder: Path) -> str:
    """Return the text with the reader's folders inside of `folder`."""
    for place in PLACES:
        text = text.replace(place, str(folder / Path(place).name))
    return text


def commands(block: Block) -> Iterator[list[str]]:
    """Yield the commands of a console, without what they print."""
    whole = re.sub(r"\\\n *", " ", block.text)
    for line in whole.splitlines():
        if line.startswith("$ "):
            yield from split(line[2:])


def split(line: str) -> Iterator[list[str]]:
    """Yield the simple commands of a line of the shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set(";&|"):
            yield words
            words = []
        elif set(word) <= set("<>&"):
            next(lexer)  # The file that the output goes to.
            if word == ">&":  # In 2>&1.
                words.pop()
        else:
            words.append(word)
    yield words


# -- Python ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if of(page) and page not in SESSIONS],  # Those need their masters.
    ids=lambda page: page.name,
)
def test_python_runs(page: Path, tmp_path: Path) -> None:
    """Each block runs, behind those that come before it in its page."""
    scripts = []
    for block in of(page):
        if not block.mark:
            scripts.append(tmp_path / block.name)
            scripts[-1].write_text(localized(block.text, tmp_path))
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, *scripts],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(session.ROOT)])},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ended.returncode == 0, f"{page.name}:\n{ended.stderr}"


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.where)
def test_python_names_what_exists(block: Block) -> None:
    """Each block compiles, and what it imports, and names of `jrs`, exists."""
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            names = [alias.name for alias in node.names if alias.name != "*"]
            assert all(hasattr(module, name) for name in names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert node.value.id != "jrs" or node.attr in jrs.__all__, f"no jrs.{node.attr}"


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.mark == "no-run"], ids=lambda block: block.where
)
def test_a_block_that_does_not_run_says_why(block: Block) -> None:
    assert re.match(r"<!-- no-run: .+ -->$", block.before)


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.mark == "by-test"], ids=lambda block: block.where
)
def test_a_block_that_another_test_runs_names_it(block: Block) -> None:
    """That test unpacks `marked` of the page, so that it fails on a block that it does not know."""
    named = re.match(r"<!-- by-test: (tests/docs/test_\w+\.py) -->$", block.before)
    assert named
    assert f'marked("{block.page.name}")' in (session.ROOT / named[1]).read_text()


def test_every_block_has_a_known_kind() -> None:
    """A block of a kind that is not in this list would not be tested; nor would an indented one."""
    assert [f"{block.where}: {block.kind}" for block in BLOCKS if block.kind not in KINDS] == []
    fenced = {
        (block.page, block.line + n) for block in BLOCKS for n in range(block.text.count("\n"))
    }
    for page in PAGES:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines()):
            indented = re.match(r" {4,}(\$ |jrs )", line) and (page, number) not in fenced
            assert not indented, f"{page.name}:{number + 1}: give it a fence"


def test_the_readme_is_short() -> None:
    """It shows a driver in 15 lines, and leads to every page but the index of the site."""
    readme = PAGES[0].read_text(encoding="utf-8")
    (driver,) = (block for block in of(PAGES[0]) if block.name == "driver.py")
    linked = set(re.findall(r"\]\((docs/[a-z-]+\.md)", readme))

    assert len(readme.splitlines()) < 190
    assert len(driver.text.splitlines()) <= 15
    assert {f"docs/{page.name}" for page in PAGES[1:]} - linked == {"docs/index.md"}


# -- commands -------------------------------------------------------------------------------


@pytest.mark.parametrize("block", CONSOLE, ids=lambda block: block.where)
def test_commands_parse(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each `jrs …` names a command that exists, with options and arguments that it takes."""
    key = tmp_path / "spec.key"
    key.write_text("0" * 64 + "\n")
    key.chmod(0o600)
    monkeypatch.setattr(click.Command, "invoke", lambda command, context: None)
    for words in commands(block):
        if words[:1] == ["jrs"]:
            parse([word.replace(KEY, str(key)) for word in words[1:]])


def parse(arguments: list[str]) -> None:
    try:
        cli.main(arguments, prog_name="jrs", standalone_mode=False)
    except click.ClickException as error:
        pytest.fail(f"jrs {shlex.join(arguments)}: {error.format_message()}")


@pytest.mark.parametrize(
    "arguments", [["no-such"], ["list", "--no-such"], ["show"], ["list", "--limit", "x"]]
)
def test_a_wrong_command_is_found(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    monkeypatch.setattr(click.Command, "invoke", lambda command, context: None)
    with pytest.raises(pytest.fail.Exception):
        parse(arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_text_exist(page: Path) -> None:
    """Commands that the text names exist, and have the options that it gives them."""
    for words in re.findall(r"`jrs ([^`]+)`", page.read_text(encoding="utf-8")):
        command: click.Command = cli
        for word in words.split():
            if not isinstance(command, click.Group) or word.startswith("-"):
                break
            with click.Context(command) as context:
                found = command.get_command(context, word)
            assert found is not None, f"{page.name}: jrs {words}"
            command = found
        known = {name for each in (cli, command) for param in each.params for name in param.opts}
        assert set(re.findall(r"(?<!\S)--[a-z-]+", words)) <= {*known, "--help"}, f"jrs {words}"


def leaves(group: click.Group = cli, name: str = "jrs") -> Iterator[str]:
    """Yield the whole name of each command that does something itself."""
    with click.Context(group) as context:
        for part in group.list_commands(context):
            command = group.get_command(context, part)
            if isinstance(command, click.Group):
                yield from leaves(command, f"{name} {part}")
            else:
                yield f"{name} {part}"


def test_each_command_has_its_call() -> None:
    """The reference names the Python for each command, and a client takes each of these calls."""
    page = (session.ROOT / "docs" / "reference.md").read_text()
    table = page.partition("\n### The same from Python\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| `(jrs [a-z -]+)` \| (.*) \|$", table, re.MULTILINE)

    assert [command for command, _ in rows] == list(leaves())
    with jrs.connect("memory://calls") as client:
        roots = {"jrs": jrs, "client": client, "job": client.job("job")}
        for command, python in rows:
            calls = [call for code in re.findall("`([^`]+)`", python) for call in calls_in(code)]
            assert calls or python.startswith(("none: ", "as `jrs ")), command
            for call in calls:
                root, _, path = ast.unparse(call.func).partition(".")
                function = operator.attrgetter(path)(roots[root])
                given = {str(keyword.arg): keyword.value for keyword in call.keywords}
                inspect.signature(function).bind(*call.args, **given)


def calls_in(code: str) -> Iterator[ast.Call]:
    """Yield the calls of what a reader has, as `job.cancel(reason=…)`."""
    if "(" in code:
        for node in ast.walk(ast.parse(code.replace("…", "..."))):
            if isinstance(node, ast.Call) and not any(
                isinstance(part, ast.Call) for part in ast.walk(node.func)
            ):
                yield node


# -- the tutorial ---------------------------------------------------------------------------


def test_the_tutorial_works(tmp_path: Path) -> None:
    """Its commands, run one after the other with real masters, end as it says."""
    folder = tmp_path / "tutorial"
    folder.mkdir()
    script = ["trap 'kill -9 $m1 $m2 2> /dev/null' EXIT"]
    for block in blocks(TUTORIAL):
        if block.kind == "python":
            text = localized(block.text, tmp_path).replace("time.sleep(seconds)", SLEEP)
            (folder / block.name).write_text(text)
        elif block.kind == "console" and not block.mark:
            for line in re.findall(r"^\$ (.*)$", block.text, re.MULTILINE):
                line = localized(line, tmp_path)
                if line == "jrs explain first":  # Until it shows that.
                    line = f"until {line} | grep 'write is finished'; do sleep 0.1; done"
                if line.startswith("kill $"):
                    line += "; wait " + line.removeprefix("kill ")
                script.append(line)
    programs = session.environment(tmp_path / "bin")
    output = session.shell("\n".join(script), folder, programs, timeout=4 * BOUND)

    assert '"attempt": 2' in output, output
    skipped = r"stage write: attempt 1, \d+\.\d s, skipped by the last attempt"
    assert re.search(skipped, output), output
    assert "\nFINISHED {'numbers': 4, 'sum': 10, 'attempt': 2} stages skipped: 1" in output
    assert "job 'first' has ended already; choose another job id to run it again" in output
    assert "first was submitted before (FINISHED)" in output
    assert "first FINISHED" in output
    log, page = (
        re.sub(r"\d+\.\d s", "some s", path.read_text()) for path in (folder / "m2.log", TUTORIAL)
    )
    for line in re.findall(r"epoch 2  (.*)", page):
        assert line in log, log
    assert not (folder / "cluster").exists()


# -- words, events, links -------------------------------------------------------------------


AVOIDED = (
    "anew|at last|be it|beside|belongs? into|can not|for ever|for want of|go on|goes on|inside of|"
    "its like|mend(?:s|ed|ing)?|nobody|outside of|somebody|what is told|whoever"
)
"""Use: again, in the end, whether, next to, belong in, cannot, forever, out of,
continue or resume, inside, similar, fix, nouns, outside."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_plain_words(page: Path) -> None:
    """The text of a page, its code aside, uses none of the words that are avoided."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)

    assert re.findall(rf"\b(?:{AVOIDED})\b", text, re.IGNORECASE) == []


def test_every_kind_of_event_is_listed() -> None:
    """docs/concepts.md has the kinds of events that the code emits, and no others."""
    text = (session.ROOT / "docs" / "concepts.md").read_text().partition("\n## Events")[2]
    code = (path.read_text() for path in (session.ROOT / "recovery").rglob("*.py"))
    names = {name for each in code for name in re.findall(r"\bEventKind\.([A-Z_]+)\b", each)}
    kinds = {jrs.EventKind[name].value for name in names}
    reported = {kind.value for kind in jrs.EventKind if kind.value.startswith("stage-")}
    reported |= {"batch-committed", "published", "dropped"}  # What attempts report.
    assert kinds | reported == {kind.value for kind in jrs.EventKind}
    assert set(re.findall(r"^\| `([a-z -]+)` \|", text, re.MULTILINE)) == kinds | reported


def test_how_many_streams_one_commit_marks() -> None:
    """docs/stopping.md says where a drain takes several commits."""
    text = (session.ROOT / "docs" / "stopping.md").read_text()
    assert f"More than {attempt_run._MARKS} streams take several commits" in text


def test_each_word_has_one_meaning() -> None:
    """The tables of words in docs/concepts.md define each word once."""
    text = (session.ROOT / "docs" / "concepts.md").read_text().partition("\n## Words")[2]
    cells = re.findall(r"^\| (.*?) \|", text.partition("\n## Events")[0], re.MULTILINE)
    words = [word for cell in cells if cell != "word" for word in cell.split(", ")]

    assert {"cursor", "format (of a snapshot)", "nemesis", "prefix"} <= set(words)
    assert [word for word in words if words.count(word) > 1] == []


def test_what_proves_a_promise_exists() -> None:
    """The pages name tests and benchmarks; each of them is there."""
    wanted = re.compile(r"`((?:tests|benchmarks)/[\w/]+\.py(?:::\w+)?)")
    named = {name for page in PAGES for name in wanted.findall(page.read_text())}
    assert len(named) > 30
    for name in sorted(named):
        path, _, test = name.partition("::")
        assert f"def {test}(" in (session.ROOT / path).read_text() if test else True, name
        assert (session.ROOT / path).is_file(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Each link to a file of ours has its file, and its heading."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        name, _, heading = target.partition("#")
        other = page.parent / name if name else page
        assert other.exists(), f"{page.name}: {target}"
        if heading:
            titles = re.findall(r"^#+ (.*)$", other.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {slug(title) for title in titles}, f"{page.name}: {target}"


def slug(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
