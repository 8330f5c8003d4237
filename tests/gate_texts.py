"""Small servers for tests of the gate, in the words of this project."""

from __future__ import annotations

from interlock.supervisor.gate import SourceText

GITHUB = SourceText(
    "mcp:github",
    "github",
    "",
    (
        ("create_pull_request", "Propose the commits of one branch for another one"),
        ("merge_pull_request", "Bring an accepted pull request into its target branch"),
        ("list_issues", "Show the issues of a repository by state and label"),
        ("issue_write", "Make a new issue or change one"),
        ("create_branch", "Start a branch at a commit"),
        ("get_file_contents", "Read one file or folder out of a repository"),
        ("search_code", "Look for text in all repositories of an owner"),
        ("list_notifications", "Show what is unread"),
        ("get_me", "Tell who is signed in"),
    ),
    (
        "pull request",
        "pull requests",
        "PR",
        "issue",
        "issues",
        "repo",
        "repository",
        "commit",
        "merge",
    ),
)
NOTEBOOKLM = SourceText(
    "mcp:notebooklm",
    "notebooklm-mcp",
    "",
    (
        ("notebook_create", "Start an empty notebook.\n\nArgs:\n    title: what it is called"),
        ("notebook_add_url", "Give a notebook a website or a video as a source"),
        ("source_describe", "Sum up one source of a notebook with its keywords"),
        ("flashcards_create", "Have flashcards made out of the sources of a notebook"),
        ("mind_map_create", "Have a mind map drawn of what a notebook is about"),
        ("quiz_create", "Have questions made to test oneself"),
        ("report_create", "Make a briefing or a study guide out of the sources of a notebook"),
        ("audio_overview_create", "Have a podcast spoken about the sources"),
        ("video_overview_create", "Have a short film with pictures made in one of several styles"),
        ("infographic_create", "Have one large picture drawn that shows the main points"),
        ("slide_deck_create", "Have slides made for a talk, long or short"),
        ("data_table_create", "Have facts put into rows and columns for a spreadsheet"),
        ("studio_status", "Tell how far audio, video and other artifacts are"),
        ("research_start", "Look for new sources on the web or on Drive, fast or deep"),
        ("research_import", "Take over what such a search has found"),
        ("source_get_content", "Give the plain text of a source, as it was indexed"),
        ("source_sync_drive", "Bring sources from Drive up to date after they were edited"),
        ("notebook_rename", "Change the title of a notebook"),
        ("notebook_delete", "Throw a notebook away for good, once the user has confirmed"),
        ("notebook_query", "Put a question to the sources; answers come with citations"),
        ("chat_configure", "Set how long answers are and in which voice"),
        ("refresh_auth", "Load the sign-in again"),
    ),
)
WEATHER = SourceText(
    "mcp:weather",
    "weather",
    "The weather of any place",
    (("get_forecast", "Temperature, rain and wind of the next days in a city"),),
)
LINEAR = SourceText(
    "mcp:linear",
    "linear",
    "",
    (
        ("list_cycles", "Show a team's cycles"),
        ("create_ticket", "File a ticket for a team"),
    ),
)
NOTION = SourceText(
    "mcp:notion",
    "Notion",
    "",
    (
        ("query_pages", "Find pages of a workspace by their properties"),
        ("append_block", "Put a block of text at the end of a page"),
    ),
)
KALENDER = SourceText(
    "mcp:kalender",
    "kalender",
    "Termine eintragen und nachsehen, auch Geburtstage",
    (("termin_anlegen", "Trägt einen Termin mit Ort und Uhrzeit ein"),),
    {"de": ("Termin", "Verabredung"), "en": ("appointment",)},
)
ALL = (GITHUB, NOTEBOOKLM, WEATHER, LINEAR, NOTION, KALENDER)

SEVEN = {
    "What will the weather be like tomorrow?": (),
    "Find me a flight to Lisbon": (),
    "Put lunch with Anna on my calendar": (),
    "Make flashcards from my notes": ("mcp:notebooklm",),
    "Draw a mind map of this chapter": ("mcp:notebooklm",),
    "Which issues are still open in the website repo?": ("mcp:github",),
    "Open a pull request for my branch": ("mcp:github",),
}
"""Requests that the gate was first described with, and what they are about."""
NOTHING = (
    "price of a flight to Rome in April",
    "What's the price of a flight to Rome in April?",
    "call the emergency number",
    "write a report",
    "tissue box size",
    "expression of interest",
    "I will emerge soon",
    "open source licence of curl?",
)
"""Requests that older gates took for one about a server."""
