"""A plain catalog and what people ask of it: requests that a tool there serves, and some that none does."""

from __future__ import annotations

from collections.abc import Iterable

from toolcrib.core.tools import Tool
from toolcrib.search.index.fields import Document, document


def _tool(tool_id: str, description: str, *parameters: str) -> Document:
    source, _, name = tool_id.partition(".")
    properties = {each: {"type": "string"} for each in parameters}
    return document(Tool(source, name, description, {"type": "object", "properties": properties}))


TOOLS = [
    _tool("git.git_log", "Shows the commit logs.", "repo_path", "max_count"),
    _tool("git.git_commit", "Records changes to the repository.", "repo_path", "message"),
    _tool("git.git_diff", "Shows differences between branches or commits.", "repo_path", "target"),
    _tool("git.git_create_branch", "Creates a new branch from an optional base branch.", "repo_path", "branch_name"),
    _tool("git.git_status", "Shows the working tree status.", "repo_path"),
    _tool("files.read_file", "Read the complete contents of a file.", "path"),
    _tool("files.write_file", "Create a new file or overwrite an existing file with new content.", "path", "content"),
    _tool("files.list_directory", "Get a listing of all files and directories in a path.", "path"),
    _tool("files.move_file", "Move or rename files and directories.", "source", "destination"),
    _tool("files.search_files", "Recursively search for files that match a pattern.", "path", "pattern"),
    _tool("calendar.create_event", "Add an event to the calendar.", "title", "start", "end", "attendees"),
    _tool("calendar.list_events", "List upcoming events of a calendar.", "from", "to"),
    _tool("calendar.delete_event", "Remove an event from the calendar.", "event_id"),
    _tool("mail.send_email", "Send an email to one or more recipients.", "to", "subject", "body"),
    _tool("mail.search_emails", "Search the mailbox by sender, subject or text.", "query"),
    _tool("weather.get_forecast", "Get the weather forecast of a place.", "latitude", "longitude"),
    _tool("weather.get_alerts", "Get active weather alerts of a state.", "state"),
    _tool("db.query", "Run a read-only SQL query.", "sql"),
    _tool("db.list_tables", "List the tables of the database.", "schema"),
    _tool("web.fetch", "Fetches a URL and gives its contents as markdown.", "url"),
    _tool("web.search", "Search the web with a search engine.", "query", "count"),
    _tool("time.convert_time", "Convert time between timezones.", "source_timezone", "target_timezone", "time"),
    _tool("slack.post_message", "Post a message to a channel.", "channel", "text"),
    _tool("maps.directions", "Get directions between two places.", "origin", "destination", "mode"),
    _tool("images.resize", "Resize an image to a width and height.", "path", "width", "height"),
    _tool("money.convert_currency", "Convert an amount between currencies.", "amount", "from", "to"),
    _tool("issues.create_issue", "Open a new issue in a repository.", "title", "body", "labels"),
    _tool("text.translate", "Translate text to another language.", "text", "language"),
]

SERVED = {
    "show me the last commits": "git.git_log",
    "commit my changes with the message fix typo": "git.git_commit",
    "what is the difference between main and this branch?": "git.git_diff",
    "make a branch called feature/login": "git.git_create_branch",
    "git status": "git.git_status",
    "read the file README.md": "files.read_file",
    "open config.json and tell me what is in the file": "files.read_file",
    "write hello into a file": "files.write_file",
    "what files are in this directory?": "files.list_directory",
    "rename report.txt to final.txt": "files.move_file",
    "find all python files below src": "files.search_files",
    "put a meeting on my calendar for Friday at 3pm": "calendar.create_event",
    "which events do I have tomorrow?": "calendar.list_events",
    "cancel the event on Monday": "calendar.delete_event",
    "send an email to my boss that I am ill": "mail.send_email",
    "look for mails from Ada in the mailbox": "mail.search_emails",
    "what will the weather be in Berlin tomorrow": "weather.get_forecast",
    "weather": "weather.get_forecast",
    "are there any weather alerts in Texas?": "weather.get_alerts",
    "run a SQL query that counts customers": "db.query",
    "which tables are in the database": "db.list_tables",
    "fetch https://example.com/page": "web.fetch",
    "search the web for the best pizza in town": "web.search",
    "convert 5pm from New York time to Tokyo time": "time.convert_time",
    "tell the team channel on slack that we are done": "slack.post_message",
    "directions from the station to the museum": "maps.directions",
    "make this image smaller, 200 pixels in width": "images.resize",
    "how much are 100 dollars in another currency": "money.convert_currency",
    "open an issue about the crash at start": "issues.create_issue",
    "translate good morning to French": "text.translate",
}
"""Requests with the tool that is to be found for each."""

UNSERVED = [
    "bake a sourdough loaf",
    "tune my guitar",
    "water the tomatoes in the greenhouse",
    "who won the chess olympiad",
    "quantum entanglement",
    "wie spät ist es",
    "犬",
    "asdf qwer",
]


def only(tool_ids: Iterable[str]) -> list[Document]:
    kept = {*tool_ids}
    return [each for each in TOOLS if each.tool_id in kept]
