from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest

from atgrpo.cli.targets import check_targets, locate

if TYPE_CHECKING:
    from nowhere import Absent


class Judge(Protocol):
    def judge(self) -> float: ...


class Fair(Judge):
    def judge(self) -> float:
        return 1.0


class Outer:
    class Inner:
        def __init__(self, size: int) -> None:
            self.size = size

    @classmethod
    def named(cls, name: str) -> Outer:
        return cls()


def stars(first: int, *args: int, **kwargs: int) -> None: ...


def starred(*args: int) -> None: ...


def pair(both: tuple[float, float], either: tuple[int, ...] | None = None, many: list[int] | None = None) -> None: ...


def parts(children: list[Outer], by_name: dict[str, Outer] | None = None) -> None: ...


def unresolved(it: Absent) -> None: ...


def no_type(it: int.missing) -> None: ...  # type: ignore[name-defined]


def no_generic(it: int[str]) -> None: ...  # type: ignore[type-arg]


def node(target: str, /, **settings: Any) -> dict[str, Any]:
    return {"part": {"_target_": target, **settings}}


def own(target: str, /, **settings: Any) -> dict[str, Any]:
    return node(f"{__name__}.{target}", **settings)


@pytest.mark.parametrize(
    "right",
    [
        own("Fair"),
        own("Outer.Inner", size=3),
        own("Outer.named", name="x"),
        own("stars", first=1, more=2),
        own("starred"),
        own("stars", _args_=[1]),
        own("pair", both=[0.9, 0.95], either=[1, 2, 3], many=[1]),
        node("torch.optim.AdamW", _partial_=True, betas=[0.9, 0.95]),
        own("parts", children=[{"_target_": f"{__name__}.Outer"}], by_name={"a": {"_target_": f"{__name__}.Outer"}}),
        node("builtins.dict", anything=1),
        own("unresolved", it=3),
        own("no_type", it=3),
        own("no_generic", it=3),
    ],
)
def test_what_can_be_called_passes(right: dict[str, Any]) -> None:
    assert check_targets(right) is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (own("stars"), "part.first: "),
        (own("starred", args=1), "part.args: "),
        (own("Outer.Inner"), "part.size: "),
        (own("Outer.Inner", size="big"), "part.size: got 'big', "),
        (own("Outer.named", nam="x"), "did you mean name?"),
        (own("Outer.Missing"), "cannot import"),
        (own("pair", both=[0.9]), "part.both: got [0.9], tuple has wrong number of elements (expected 2, got 1"),
        (own("pair", both=[0.9, "x"]), "part.both: got [0.9, 'x'], item 1 of tuple"),
        (own("pair", both=[0.9, 0.95], many=["x"]), "part.many: got ['x'], "),
        (node("torch.optim.AdamX"), "cannot import torch.optim.AdamX"),
        (node("torch..AdamW"), "cannot import torch..AdamW"),
        (node("torch.optim"), "part._target_: got torch.optim, expected a class or a function"),
        ({"part": {"_target_": 3}}, "cannot import 3"),
        ({"part": {"_target_": ""}}, "part._target_: cannot import"),
    ],
)
def test_what_cannot_be_called_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as refusal:
        check_targets(wrong)
    assert said in str(refusal.value)
    assert str(refusal.value).startswith("part.") and "\n" not in str(refusal.value)


def test_a_module_that_nothing_has_imported_yet_is_found() -> None:
    assert locate("xml.dom.pulldom.PullDOM", "part").__name__ == "PullDOM"
