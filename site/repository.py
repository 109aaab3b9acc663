"""A preprocessor of mdBook: links that lead out of docs/ lead to the repository."""

import json
import os
import re
import sys

BRANCH = "/blob/main/"


def main() -> None:
    """Reads a book on stdin, and writes it on stdout."""
    if sys.argv[1:2] == ["supports"]:
        return
    context, book = json.load(sys.stdin)
    repository = context["config"]["output"]["html"]["git-repository-url"] + BRANCH

    def mend(section: dict[str, object]) -> None:
        chapter = section.get("Chapter")
        if not isinstance(chapter, dict):
            return
        folder = os.path.join("docs", os.path.dirname(chapter["path"] or ""))

        def link(found: re.Match[str]) -> str:
            path, anchor = found[2], found[3] or ""
            target = os.path.normpath(os.path.join(folder, path))
            if target.startswith("docs" + os.sep) and os.path.isfile(os.path.join("..", target)):
                return found[0]
            return f"{found[1]}{repository}{target}{anchor}"

        links = r"(\]\()(?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?"
        code = r"^ *```.*?^ *```|`[^`\n]+`"
        content = re.sub(
            rf"{code}|{links}",
            lambda found: link(found) if found[1] else found[0],
            chapter["content"],
            flags=re.MULTILINE | re.DOTALL,
        )
        # A language that the highlighter does not know is an error in its console.
        chapter["content"] = content.replace("```openflow", "```text")
        for inner in chapter["sub_items"]:
            mend(inner)

    for section in book.get("items", book.get("sections", [])):
        mend(section)
    json.dump(book, sys.stdout)


main()
