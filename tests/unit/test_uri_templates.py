"""URI templates: the examples of RFC 6570 that servers use, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.workers.mcp.templates import TemplateError, expand, variables

VALUES: dict[str, Any] = {
    "var": "value",
    "hello": "Hello World!",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "x": "1024",
    "y": 768,
    "empty": "",
}


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("{var}", "value"),
        ("{hello}", "Hello%20World%21"),
        ("{+hello}", "Hello%20World!"),
        ("{+path}/here", "/foo/bar/here"),
        ("{#x,hello}", "#1024,Hello%20World!"),
        ("{x,y}", "1024,768"),
        ("X{.list*}", "X.red.green.blue"),
        ("{/list*}", "/red/green/blue"),
        ("{/var,x}/here", "/value/1024/here"),
        ("{;x,y,empty}", ";x=1024;y=768;empty"),
        ("{?x,y,empty}", "?x=1024&y=768&empty="),
        ("?fixed=yes{&x}", "?fixed=yes&x=1024"),
        ("{?list*}", "?list=red&list=green&list=blue"),
        ("{list}", "red,green,blue"),
        ("{var:3}", "val"),
        ("{missing}x{?none}", "x"),
        ("plain", "plain"),
    ],
)
def test_expansion(template: str, uri: str) -> None:
    known = {name: VALUES[name] for name in variables(template) if name in VALUES}
    assert expand(template, known) == uri


@pytest.mark.parametrize(
    "template", ["{", "}", "{}", "{a", "a}b", "{{a}}", "{a b}", "{=a}", "{a,}"]
)
def test_templates_that_are_none(template: str) -> None:
    with pytest.raises(TemplateError):
        variables(template)


@pytest.mark.parametrize("values", [{"b": "x"}, {"a": {}}, {"a": True}, {"a": "x" * 9000}])
def test_values_that_do_not_fit(values: dict[str, Any]) -> None:
    with pytest.raises(TemplateError):
        expand("x{a}", values)


@given(st.text(alphabet="{}+#./;?&,:*ab1 %é", max_size=20), st.text(max_size=10))
def test_nothing_else_is_raised(template: str, value: str) -> None:
    try:
        known = variables(template)
        uri = expand(template, dict.fromkeys(known, value))
    except TemplateError:
        return
    assert "{" not in uri
