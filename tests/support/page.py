"""The page of a server in a browser, as a person uses it."""


class Page:
    """The page as a person finds it."""

    def __init__(self, browser, url):
        self.browser = browser
        browser.get(url)
        self.wait(
            lambda: self.text("#model-name") or self.text("#connection-error")
        )

    def wait(self, found):
        """What `found` gives, once it is true."""
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
        """The text of the one such element; None if it is not shown."""
        found = self.all(selector)
        return found[0].text if len(found) == 1 else None

    def texts(self, selector):
        return [node.text for node in self.all(selector)]

    def type(self, text):
        self.one("#source").send_keys(text)

    def translation(self, *expected):
        """Waits until these translations are shown."""
        self.wait(lambda: self.texts(".translation") == list(expected))

    def keep_all_that_is_shown(self, selector):
        """From now on, every text of such elements, however short it stands."""
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
        """The words that can be pointed at, once they can."""
        return self.wait(lambda: self.all(".translation .token"))

    def press(self, label):
        (node,) = (b for b in self.all("button") if b.text == label)
        node.click()
