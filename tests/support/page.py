"""The page of a server in a browser."""


class Page:
    """The page as a user sees it: only its displayed elements."""

    def __init__(self, browser, url):
        self.browser = browser
        browser.get(url)
        self.wait(
            lambda: self.text("#model-name") or self.text("#connection-error")
        )

    def wait(self, found):
        """Wait until `found` returns a true value; return that value."""
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.wait import WebDriverWait

        stale = [StaleElementReferenceException]
        wait = WebDriverWait(self.browser, 20, 0.05, ignored_exceptions=stale)
        return wait.until(lambda _: found())

    def all(self, selector):
        found = self.browser.find_elements("css selector", selector)
        return [node for node in found if node.is_displayed()]

    def one(self, selector):
        (node,) = self.all(selector)
        return node

    def text(self, selector):
        """Return the text of the only match; None if there is not one."""
        found = self.all(selector)
        return found[0].text if len(found) == 1 else None

    def texts(self, selector):
        return [node.text for node in self.all(selector)]

    def type(self, text):
        self.one("#source").send_keys(text)

    def translation(self, *expected):
        """Wait until exactly these translations are shown."""
        self.wait(lambda: self.texts(".translation") == list(expected))

    def keep_all_that_is_shown(self, selector):
        """Record all texts of the elements, however briefly they are shown."""
        self.browser.execute_script(
            """
            window.shown = new Set();
            new MutationObserver(() => {
              for (const node of document.querySelectorAll(arguments[0]))
                window.shown.add(node.textContent);
            }).observe(document.body,
              { subtree: true, childList: true, characterData: true });
            """,
            selector,
        )

    def all_that_was_shown(self):
        return set(self.browser.execute_script("return [...window.shown]"))

    def words(self):
        """Wait for the selectable words of the translation; return them."""
        return self.wait(lambda: self.all(".translation .token"))

    def press(self, label):
        (node,) = (b for b in self.all("button") if b.text == label)
        node.click()
