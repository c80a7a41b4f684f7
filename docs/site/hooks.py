"""What MkDocs does besides: pages keep their places in the repository, so that links hold on both."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PAGES_AND_FIGURES = (
    "*.md",
    "docs/*.md",
    "docs/figures/*.svg",
    "docs/site/*.css",
    "docs/site/*.js",
    "examples/*.md",
    "examples/*/*.md",
    "examples/*/figures/*.svg",
)
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#:]+)[^)\s]*\)")
CELL_CODE = re.compile(r"`[^`\n]*\\\|[^`\n]*`")
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):(?=<code>)")


def on_config(config: MkDocsConfig) -> None:
    config.mdx_configs["toc"]["slugify"] = anchor


def anchor(heading: str, separator: str) -> str:
    """The end of a link to a heading, as hosts of code write it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    of_theme = [file for file in files if file.src_dir != config.docs_dir]
    paths = [path.relative_to(ROOT) for glob in PAGES_AND_FIGURES for path in ROOT.glob(glob)]
    places = (str(ROOT), config.site_dir, config.use_directory_urls)
    return Files([*of_theme, *(File(path.as_posix(), *places) for path in sorted(paths))])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    folder = posixpath.dirname(page.file.src_uri)

    def without_file(link: re.Match[str]) -> str:
        """A link to a file that the site lacks becomes the file's name."""
        text, path = link[1], posixpath.normpath(posixpath.join(folder, link[2]))
        if files.get_file_from_path(path) or not (ROOT / path).exists():
            return link[0]
        return text if text.strip("`") in path else f"{text} (`{path}`)"

    markdown = CELL_CODE.sub(lambda code: code[0].replace("\\|", "|"), markdown)
    return LINK.sub(without_file, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return ROLE.sub("", html)
