from __future__ import annotations

import pytest

from atgrpo.envs.own import Spoken, dialogue, load_function
from tests.envs import own_code

HERE = own_code.__name__


def test_a_function_is_found_in_a_module_nobody_has_imported() -> None:
    assert load_function("xml.dom.pulldom.parseString", "judge").__name__ == "parseString"
    assert load_function(f"{HERE}.Later.__call__.__name__.upper", "judge")() == "__CALL__"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (f"{HERE}.gone", "judge got '.*gone', expected the dotted path of a function"),
        ("no_such_module.f", "expected the dotted path of a function .*No module named 'no_such_module'"),
        ("", "judge got ''"),
        (f"{HERE}.NOT_CALLABLE", "expected a function, not a int"),
        (HERE, "expected a function, not a module"),
        (f"{HERE}.later", "expected a plain function, not an async one"),
        (f"{HERE}.later_object", "expected a plain function, not an async one"),
    ],
)
def test_what_is_no_plain_function_is_refused(path: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_function(path, "judge")


def test_a_dialogue_shows_each_agent_what_was_said_between_its_turns() -> None:
    spoken = [Spoken("a", "one", "a: one"), Spoken("b", "two", "b: two"), Spoken("a", "three", "a: three")]
    assert [(m["role"], m["content"]) for m in dialogue("b", "", "?", spoken)] == [
        ("user", "?\na: one"),
        ("assistant", "two"),
        ("user", "a: three"),
    ]
    assert [(m["role"], m["content"]) for m in dialogue("a", "be brief", "?", spoken)] == [
        ("system", "be brief"),
        ("user", "?"),
        ("assistant", "one"),
        ("user", "b: two"),
        ("assistant", "three"),
        ("user", "?"),
    ]
