from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atgrpo.data.questions import WorldQuestions
from atgrpo.envs.search import Search
from atgrpo.envs.world import world
from atgrpo.types import Sample, StepResult

PERSON = world().people[0]
COUNTRY = world().company_country[PERSON.company]
WRONG = next(c for c in world().company_country.values() if c != COUNTRY)
QUESTION = f"Which country is the employer of {PERSON.name} in?"
SAMPLE = Sample("s", QUESTION, COUNTRY, {"supporting": (PERSON.name, PERSON.company)})
HELDOUT = WorldQuestions([1, 2], train_size=8).split("heldout")
RIGHT_BOX, WRONG_BOX = (rf"\boxed{{{name}}}" for name in (COUNTRY, WRONG))


def team(sample: Sample = SAMPLE, **options: object) -> Search:
    env = Search(**{"passages": 1, "decomposer_prompt": "", "searcher_prompt": "", **options})  # type: ignore[arg-type]
    env.reset(sample)
    return env


def act(env: Search, agent: str, text: str) -> StepResult:
    return env.step(agent, env.parse(agent, text))


def prompt(env: Search, agent: str) -> str:
    (message,) = env.observe(agent).messages
    return message["content"]


def view(env: Search) -> tuple[object, ...]:
    said = [env.demonstrate(agent) for agent in env.roles]
    return (prompt(env, "decomposer"), prompt(env, "searcher"), env.done, env.success, said)


def test_an_episode_goes_from_query_to_passage_to_note_to_the_answer() -> None:
    env = team()
    assert prompt(env, "decomposer") == QUESTION
    first = act(env, "decomposer", PERSON.name)
    assert first == StepResult(0.0, 0.5, done=False, info={"found": 0.5})
    passage = f"{PERSON.name}: works at {PERSON.company} and lives in {PERSON.town}."
    assert prompt(env, "searcher") == f"{QUESTION}\nquery: {PERSON.name}\n{passage}"
    assert act(env, "searcher", PERSON.company) == StepResult(0.0, 0.0, done=False, info={"found": 0.5})
    notes = f"{QUESTION}\nquery: {PERSON.name}\nnote: {PERSON.company}"
    assert prompt(env, "decomposer") == notes
    assert act(env, "decomposer", PERSON.company).local_reward == 0.5
    passage = f"{PERSON.company}: a company in {COUNTRY}."
    assert prompt(env, "searcher") == f"{notes}\nquery: {PERSON.company}\n{passage}"
    assert len(prompt(env, "searcher")) < 150
    assert act(env, "searcher", RIGHT_BOX) == StepResult(1.0, 1.0, done=True, info={"found": 1.0})
    assert (env.success, env.done) == (1.0, True)


@pytest.mark.parametrize(
    ("text", "team_reward", "local_reward", "done"),
    [
        (RIGHT_BOX, 1.0, 1.0, True),
        (rf"In \boxed{{the {COUNTRY.upper()}.}}", 1.0, 1.0, True),
        (rf"{WRONG_BOX}, no: {RIGHT_BOX}", 1.0, 1.0, True),
        (rf"{RIGHT_BOX}, no: {WRONG_BOX}", 0.0, 0.0, True),
        (rf"\boxed{{{COUNTRY} or {WRONG}}}", 0.0, 0.0, True),
        (COUNTRY, 0.0, 0.0, False),
        ("nothing", 0.0, 0.0, False),
        (rf"\boxed{{{COUNTRY}", 0.0, -1.0, False),
        (r"\boxed{}", 0.0, -1.0, False),
        (r"\boxed{?}", 0.0, -1.0, False),
        ("", 0.0, -1.0, False),
        (" ...", 0.0, -1.0, False),
    ],
)
def test_the_searcher_answers_notes_or_says_nothing_that_can_be_read(
    text: str, team_reward: float, local_reward: float, done: bool
) -> None:
    env = team()
    result = act(env, "searcher", text)
    assert (result.team_reward, result.local_reward, result.done) == (team_reward, local_reward, done)
    assert env.parse("searcher", text).valid == (local_reward >= 0)
    assert (env.success, env.done) == (team_reward, done)


@pytest.mark.parametrize("text", ["", " \n", "?!"])
def test_a_query_without_words_is_invalid_and_finds_nothing(text: str) -> None:
    env = team()
    act(env, "decomposer", PERSON.name)
    assert act(env, "decomposer", text).local_reward == -1.0
    assert prompt(env, "searcher").splitlines()[-2:] == ["query: nothing", "nothing"]


def test_equal_numbers_are_the_same_answer() -> None:
    assert act(team(Sample("s", "How many?", "1,234")), "searcher", r"\boxed{1234.0}").local_reward == 1.0
    assert act(team(Sample("s", "How many?", "1,234")), "searcher", r"\boxed{234}").local_reward == 0.0


def test_a_passage_is_paid_once_and_only_if_it_supports_the_answer() -> None:
    env = team(passages=3)
    queries = [
        PERSON.name,
        "Nobody",
        world().people[1].name,
        PERSON.name,
        f"{PERSON.name} {PERSON.company}",
        PERSON.company,
    ]
    assert [act(env, "decomposer", query).local_reward for query in queries] == [0.5, 0.0, 0.0, 0.0, 0.5, 0.0]


NAMES = st.sampled_from([PERSON.name, PERSON.company, PERSON.town, COUNTRY, "Nobody", "?"])
NOTES = st.sampled_from([RIGHT_BOX, WRONG_BOX, PERSON.company, COUNTRY, r"\boxed{", ""])
MOVES = st.lists(
    st.tuples(st.just("decomposer"), NAMES) | st.tuples(st.just("searcher"), NOTES),
    max_size=8,
)


@settings(max_examples=80, deadline=None)
@given(MOVES, st.integers(1, 3))
def test_queries_earn_one_at_most_and_success_is_a_right_final_answer_only(
    moves: list[tuple[str, str]], passages: int
) -> None:
    env = team(passages=passages)
    earned = 0.0
    for agent, text in moves:
        if env.done:
            break
        result = act(env, agent, text)
        assert result.local_reward is not None
        earned += max(0.0, result.local_reward) if agent == "decomposer" else 0.0
        assert env.success == result.team_reward == float((agent, text) == ("searcher", RIGHT_BOX))
        assert env.done == (agent == "searcher" and text in (RIGHT_BOX, WRONG_BOX))
    assert earned <= 1.0


@settings(max_examples=80, deadline=None)
@given(MOVES, MOVES)
def test_stepping_a_fork_leaves_its_parent_and_its_sibling_as_they_were(
    before: list[tuple[str, str]], after: list[tuple[str, str]]
) -> None:
    parent = team(passages=2)
    for agent, text in before:
        if not parent.done:
            act(parent, agent, text)
    seen = view(parent)
    fork, sibling = parent.fork(), parent.fork()
    for agent, text in after:
        if not fork.done:
            assert act(fork, agent, text) == act(sibling, agent, text)
    assert view(parent) == seen
    assert view(fork) == view(sibling)


def test_forks_and_teams_share_one_index(tmp_path: Path) -> None:
    env = team()
    assert env.fork()._corpus is env._corpus is team()._corpus
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"title": "Red", "text": "is a colour"}))
    own = Search(corpus=path)
    assert own._corpus is Search(corpus=str(path))._corpus is own.fork()._corpus


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 255), st.sampled_from([1, 3]))
def test_every_instance_is_solved_by_its_demonstration(index: int, passages: int) -> None:
    sample = HELDOUT[index]
    env = team(sample, passages=passages)
    rewards: dict[str, float] = {"decomposer": 0.0, "searcher": 0.0}
    for turn in range(sample.meta["hops"]):
        for agent in env.roles:
            said = env.demonstrate(agent)
            if env.done and turn:
                continue
            assert said is not None
            assert len(said) < 16
            assert len(prompt(env, agent)) < 150 + 100 * (passages - 1)
            rewards[agent] += act(env, agent, said).local_reward or 0.0
    assert (env.success, env.done, rewards) == (1.0, True, {"decomposer": 1.0, "searcher": 1.0})
    assert env.demonstrate("searcher") is None


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 255))
def test_the_gold_answer_stands_in_no_prompt_before_it_was_found(index: int) -> None:
    sample = HELDOUT[index]
    env = Search(passages=1)
    env.reset(sample)
    for query, note in (("Nobody", "nothing"), ("?", ""), ("works", r"\boxed{")):
        assert sample.answer not in str(env.observe("decomposer"))
        assert sample.answer not in str(env.observe("searcher"))
        if not {sample.answer} & {word.strip(".") for p in env._corpus.search(query, 1) for word in p.text.split()}:
            act(env, "decomposer", query)
        act(env, "searcher", note)
    act(env, "decomposer", sample.meta["supporting"][-1])
    assert sample.answer not in str(env.observe("decomposer"))
    assert sample.answer in str(env.observe("searcher"))


def test_a_demonstration_says_nothing_where_nothing_was_found() -> None:
    env = team()
    act(env, "decomposer", "Nobody")
    assert env.demonstrate("searcher") == "nothing"
    assert env.demonstrate("decomposer") == PERSON.name
    act(env, "decomposer", PERSON.name)
    act(env, "decomposer", PERSON.company)
    assert env.demonstrate("decomposer") == PERSON.company
    assert team(Sample("s", QUESTION, COUNTRY)).demonstrate("decomposer") is None


def test_what_is_shown_again_is_cut_and_spells_no_control_token(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"title": "Red <|im_end|>", "text": "red\n<|im_start|>" + "x" * 999}))
    env = team(Sample("s", "Red?", "x"), corpus=path, passage_length=20)
    act(env, "decomposer", "red <|im_end|>\n[INST]" + "y" * 999)
    act(env, "searcher", "<pad>" + "z" * 999)
    lines = prompt(env, "searcher").splitlines()
    assert [len(line) for line in lines] == [4, 7 + 160, 6 + 160, 17 + 20]
    assert not any(token in "\n".join(lines) for token in ("<|", "<p", "[I"))


def test_own_columns_with_another_meaning_are_no_titles() -> None:
    for supporting in (PERSON.name, 3, None, [1]):
        env = team(Sample("s", QUESTION, COUNTRY, {"supporting": supporting}))
        assert act(env, "decomposer", PERSON.name).local_reward == 0.0


def test_system_texts_stand_in_front() -> None:
    env = Search(decomposer_prompt="Ask.", searcher_prompt="")
    env.reset(SAMPLE)
    assert [m["role"] for m in env.observe("decomposer").messages] == ["system", "user"]
    assert [m["role"] for m in env.observe("searcher").messages] == ["user"]
    assert not env.step_rewards_complete


def test_misuse_is_refused() -> None:
    with pytest.raises(ValueError, match="expected reset first"):
        Search().observe("searcher")
    with pytest.raises(ValueError, match="passages got 0, expected at least 1"):
        Search(passages=0)
    with pytest.raises(ValueError, match="answer 'The', expected a word or a number"):
        team(Sample("s", "?", "The"))
    with pytest.raises(ValueError, match="supporting 'Nobody', expected a title of the corpus"):
        team(Sample("s", "?", "x", {"supporting": ["Nobody"]}))
    with pytest.raises(ValueError, match="agent got 'tool', expected one of"):
        team().observe("tool")
    env = team()
    with pytest.raises(ValueError, match="expected an action that parse made for this agent"):
        env.step("searcher", env.parse("decomposer", "x"))
    act(env, "searcher", WRONG_BOX)
    with pytest.raises(ValueError, match="got a finished episode, expected an open one"):
        act(env, "decomposer", "x")
