"""The pairs of a translation memory in TMX, the exchange format of LISA."""

import itertools
import os
from collections.abc import Iterator

from t2t_lite.corpus.lines import damaged, open_packed
from t2t_lite.errors import T2TLiteError

_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
# These hold the formatting of another program, not text.
_FORMATTING = ("{*}bpt", "{*}ept", "{*}it", "{*}ph", "{*}ut")


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
    wanted = source_language, target_language
    seen: set[str] = set()
    lacking = dict.fromkeys(wanted)
    for unit in _units(path):
        variants: dict[str, list[str]] = {}
        for variant in unit.iterchildren("{*}tuv"):
            language = variant.get(_XML_LANG) or variant.get("lang") or ""
            for segment in variant.iterchildren("{*}seg"):
                texts = variants.setdefault(_comparable(language), [])
                texts.append(_text(segment, path))
                seen.add(language)
        place = f"{path}, line {unit.sourceline}"
        chosen = {name: _choose(name, variants, place) for name in wanted}
        for name, texts in chosen.items():
            if texts:
                lacking.pop(name, None)
        sources, targets = (chosen[name] or [""] for name in wanted)
        yield from itertools.product(sources, targets)
    if seen and lacking:
        raise T2TLiteError(
            f"{path} has no text in {next(iter(lacking))!r}; it has "
            f"{', '.join(map(repr, sorted(seen)))}."
        )


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
            raise damaged(path, reason) from error


def _choose(wanted, variants, place):
    """The texts in the wanted language; none if the unit lacks it."""
    plain = _comparable(wanted)
    if plain in variants:
        return variants[plain]
    if "-" in plain:
        return variants.get(plain.partition("-")[0], [])
    regions = [name for name in variants if name.startswith(f"{plain}-")]
    if len(regions) > 1:
        raise T2TLiteError(
            f"{wanted!r} must be one language of a unit; got "
            f"{', '.join(sorted(regions))} in {place}. Name one of them."
        )
    return variants[regions[0]] if regions else []


def _text(segment, path):
    """The text of a segment, without formatting."""
    from lxml import etree

    if len(segment):  # elements, comments or entities within the text
        etree.strip_elements(segment, *_FORMATTING, with_tail=False)
        for entity in segment.iter(etree.Entity):
            raise T2TLiteError(
                f"An entity of a DTD is not read; got {entity.text} in {path}, "
                f"line {entity.sourceline}. Put its text in its place."
            )
    return "".join(segment.itertext()).replace("\n", " ").strip()


def _comparable(language):
    return language.replace("_", "-").lower()
