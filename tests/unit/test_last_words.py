"""Which of a server's last lines is quoted, and what it asks for."""

from __future__ import annotations

import pytest

from interlock.workers.mcp.lastwords import telling, unseen_variable

NPM = """npm error code E404
npm error 404 Not Found - GET https://registry.npmjs.org/x - Not found
npm error 404
npm error 404  'x@*' is not in this registry.
npm error 404
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git folder.
npm notice
npm error A complete log of this run can be found in: /home/me/.npm/_logs/x.log"""
NODE = """node:internal/modules/cjs/loader:1215
throw err;
^

Error: Cannot find module '/x/y.js'
at Module._resolveFilename (node:internal/modules/cjs/loader:1212:15)
at node:internal/main/run_main_module:28:49 {
code: 'MODULE_NOT_FOUND',
requireStack: []
}

Node.js v20.20.0"""
PYTHON = """Traceback (most recent call last):
File "x.py", line 1, in <module>
os.environ["GITHUB_TOKEN"]
KeyError: 'GITHUB_TOKEN'"""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (NPM, "npm error 404 Not Found - GET https://registry.npmjs.org/x - Not found"),
        (NODE, "Error: Cannot find module '/x/y.js'"),
        (PYTHON, "KeyError: 'GITHUB_TOKEN'"),
        ("starting\nno licence", "no licence"),
        ("starting\n}", "starting"),
        ("}", "}"),
        ("", ""),
    ],
)
def test_the_line_that_tells_is_quoted(said: str, words: str) -> None:
    assert telling([line for line in said.splitlines() if line.strip()]) == words


NAMES = (
    *("GITHUB_TOKEN", "EXA_API_KEY", "ELEVENLABS_API_KEY", "ETHERSCAN_API_KEY", "EMAIL_PASSWORD"),
    *("ELASTICSEARCH_URL", "ERRORS_DSN", "E2B_API_KEY", "ES_URL", "TOKEN", "APIKEY", "PORT"),
)


@pytest.mark.parametrize(
    ("words", "variable"),
    [
        ("KeyError: 'GITHUB_TOKEN'", "GITHUB_TOKEN"),
        ("GITHUB_TOKEN environment variable is required", "GITHUB_TOKEN"),
        ("Please set the env var API_KEY_2", "API_KEY_2"),
        ("HOME_DIR must be set", ""),
        ("INTERLOCK_HOME must be set", ""),
        ("Error [ERR_MISSING_ARGS]: something is required", ""),
        ("started GITHUB_TOKEN", ""),
        *((f"{name} environment variable is required", name) for name in NAMES),
        *((f"Error: missing environment variable: {name}", name) for name in NAMES),
        *((f"KeyError: '{name}'", name) for name in NAMES),
        *((f"Please set ${name}", name) for name in NAMES if name != "PORT"),
        ("ValueError: please set OPENAI_API_KEY", "OPENAI_API_KEY"),
        ("OPENAI_API_KEY is not defined", "OPENAI_API_KEY"),
        ("OPENAI_API_KEY is undefined", "OPENAI_API_KEY"),
        ("Please provide OPENAI_API_KEY", "OPENAI_API_KEY"),
        ("export OPENAI_API_KEY=... first", "OPENAI_API_KEY"),
        ("No OPENAI_API_KEY found; process.env.OPENAI_API_KEY is empty", "OPENAI_API_KEY"),
        ("APIKEY has not been set", "APIKEY"),
        ("Error: the TOKEN must not be empty", "TOKEN"),
        ("this module requires NODE_MODULE_VERSION 108", ""),
        ("getaddrinfo EAI_AGAIN x: a name is required", ""),
        ("EX_CONFIG: a file is required", ""),
        ("Error [ERR_REQUIRE_ESM]: must use import", ""),
        ("the HTTP header is missing; JSON expected", ""),
        ("ENOENT: no such file, PATH must be set", ""),
        ("KeyError: 'name'", ""),
        ("the option --API-TOKEN is required", ""),
        ("no licence", ""),
    ],
)
def test_a_variable_that_is_missed_is_found(words: str, variable: str) -> None:
    assert unseen_variable(words, {"HOME_DIR", "PATH"}) == variable
