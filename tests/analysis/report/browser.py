"""A page in headless Chromium, with its requests, errors and screenshots."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMANDS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
FLAGS += ["--disable-component-update", "--disable-sync"]
REQUIRED = "FAIRSEQ_ENTMAX_BROWSER"
SCREENSHOTS = "FAIRSEQ_ENTMAX_SCREENSHOTS"
LAPTOP = {"width": 1366, "height": 768}
PHONE = {"width": 390, "height": 844}


def find_browser():
    """The command of the browser; without one, the test is skipped, or fails if it is required."""
    found = next(filter(None, map(shutil.which, COMMANDS)), None)
    if found is None:
        reason = f"none of {', '.join(COMMANDS)} is installed: install Chromium, on Debian with 'apt-get install chromium'"
        if os.environ.get(REQUIRED) == "required":
            pytest.fail(f"{REQUIRED}=required, and {reason}")
        pytest.skip(reason)
    return found


@contextmanager
def launched():
    """A browser that is closed at the end."""
    executable = find_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, headless=True, args=FLAGS)
        yield browser
        browser.close()


class Watched:
    """A page that records every error and every request beyond its own file."""

    def __init__(self, browser, file, viewport=LAPTOP, scheme="light", touch=False, **options):
        self.context = browser.new_context(
            viewport=viewport, color_scheme=scheme, has_touch=touch, **options
        )
        self.complaints = []
        self.requests = []
        self.page = self.context.new_page()
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.url = Path(file).resolve().as_uri()
        self.context.route("**/*", self._answer)
        self.page.goto(self.url)
        self.page.wait_for_selector("html[data-ready=true]", state="attached")

    def close(self):
        self.context.close()

    def _note_message(self, message):
        if message.type == "error":
            self.complaints.append(message.text)

    def _answer(self, route):
        url = route.request.url
        if url.split("#")[0] == self.url:
            route.continue_()
        else:
            self.requests.append(url)
            route.abort()


def save_screenshot(page, name, folder, full_page=False):
    """Write a screenshot to the folder that the environment names, or else to ``folder``."""
    place = Path(os.environ.get(SCREENSHOTS) or folder)
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{name}.png"
    page.screenshot(path=path, full_page=full_page)
    return path
