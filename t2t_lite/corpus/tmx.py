"""The pairs of a translation memory in TMX, the exchange format of LISA."""

import os
from collections.abc import Iterator
from typing import Any

from t2t_lite.corpus.lines import open_packed
from t2t_lite.errors import T2TLiteError

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
# These hold the formatting of another program, not text.
_FORMATTING = frozenset(("bpt", "ept", "it", "ph", "ut"))


def read_tmx(
    path: str | os.PathLike, source_language: str, target_language: str
) -> Iterator[tuple[str, str]]:
    """The texts of two languages of each `<tu>` of a file, packed or not.

    Example: for "xx" and "yy"

      <tu><tuv xml:lang="xx-AA"><seg>a <ph>1</ph>b</seg></tuv>
          <tuv xml:lang="yy"><seg>A B</seg></tuv></tu>

    gives `("a b", "A B")`. A language without a region stands for the only one
    of its regions that a unit has, and one with a region for the language
    alone. A unit that lacks a language has "" there; one with several variants
    of a language gives a pair of each. Line ends become spaces. The file is
    streamed, one unit in memory.

    Raises:
      T2TLiteError: the file is missing or damaged, no unit has a language, or
        it is unclear which region is meant.
    """
    languages = _Languages(path, (source_language, target_language))
    for unit in _units(path):
        sources, targets = languages.texts(unit)
        for source in sources or [""]:
            for target in targets or [""]:
                yield source, target
    languages.require_found()


def _units(path):
    """Each `<tu>`, gone from memory when the next one is asked for."""
    from lxml import etree

    with open_packed(path) as file:
        # Nothing but the file itself is read: no DTD, no entity.
        units = etree.iterparse(
            file,
            tag="{*}tu",
            resolve_entities=False,
            load_dtd=False,
            no_network=True,
        )
        try:
            for _, unit in units:
                yield unit
                unit.clear()
                while unit.getprevious() is not None:
                    del unit.getparent()[0]
        except etree.XMLSyntaxError as error:
            # The exception itself does not always have the line.
            first = next(iter(units.error_log), None)
            reason = f"line {first.line}: {first.message}" if first else error
            raise T2TLiteError(
                f"{path} is damaged: {reason}. Get the file again."
            ) from error


class _Languages:
    """Finds the texts of the wanted languages, and notes which there are."""

    def __init__(self, path, wanted):
        self._path = path
        self._wanted = wanted
        self._found = [False, False]
        self._seen: set[str] = set()

    def texts(self, unit: Any) -> list[list[str]]:
        """The texts of a unit in each of the two languages."""
        by_name: dict[str, list[str]] = {}
        for variant in unit.iterchildren("{*}tuv"):
            language = variant.get(_XML_LANG) or variant.get("lang") or ""
            for segment in variant.iterchildren("{*}seg"):
                text = "".join(self._pieces(segment))
                text = " ".join(text.split("\n")).strip()
                by_name.setdefault(_comparable(language), []).append(text)
                self._seen.add(language)
        chosen = [
            self._choose(language, by_name, unit) for language in self._wanted
        ]
        for side, texts in enumerate(chosen):
            self._found[side] |= bool(texts)
        return chosen

    def _choose(self, wanted, by_name, unit):
        """The texts in the wanted language; none if the unit lacks it."""
        plain = _comparable(wanted)
        if plain in by_name:
            return by_name[plain]
        if "-" in plain:
            return by_name.get(plain.partition("-")[0], [])
        regions = [name for name in by_name if name.startswith(f"{plain}-")]
        if len(regions) > 1:
            raise T2TLiteError(
                f"{wanted!r} must be one language of a unit; got "
                f"{', '.join(sorted(regions))} in {self._path}, line "
                f"{unit.sourceline}. Name one of them."
            )
        return by_name[regions[0]] if regions else []

    def _pieces(self, element):
        from lxml import etree

        yield element.text or ""
        for child in element:
            if isinstance(child.tag, str):
                if child.tag.rpartition("}")[2] not in _FORMATTING:
                    yield from self._pieces(child)
            elif child.tag is etree.Entity:
                raise T2TLiteError(
                    f"An entity of a DTD is not read; got {child.text} in "
                    f"{self._path}, line {child.sourceline}. Put its text in "
                    "its place."
                )
            yield child.tail or ""

    def require_found(self) -> None:
        """Refuses a file that lacks a language altogether."""
        for wanted, found in zip(self._wanted, self._found, strict=True):
            if self._seen and not found:
                raise T2TLiteError(
                    f"{self._path} has no text in {wanted!r}; it has "
                    f"{', '.join(map(repr, sorted(self._seen)))}."
                )


def _comparable(language):
    return language.replace("_", "-").lower()
