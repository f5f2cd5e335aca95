"""What a FROM clause shows: its columns in Spark's order, and those that USING and NATURAL leave to qualified names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from layoutopt.sql.scopes.from_items import UNKNOWN, FromItem, JoinNode, Source

Holder = tuple[FromItem, str]
"""A from-item and the name of one of its columns there."""


@dataclass(frozen=True, eq=False)
class Attribute:
    """A column that can be named, or any number of columns of unknown names.

    Attributes:
        name: as it is written where it comes from; None for columns of unknown names.
        qualifier: the parts that may stand before the name.
        open: whether more parts may stand before those: the catalog and schema of a table without an alias.
        columns: what has to be read for it; of an item with unknown names nothing is known.
        whole: whether its value is that of its one column.
        sure: whether it surely is there under that name.
    """

    name: str | None
    qualifier: tuple[str, ...] = ()
    open: bool = False
    columns: tuple[Holder, ...] = ()
    whole: bool = True
    sure: bool = True

    def called(self, qualifier: Sequence[str], name: str) -> bool | None:
        """Whether a qualified name means it: True, False, or None where it may."""
        prefixed = self.prefixed(qualifier)
        if prefixed is False or not self.may_be(name):
            return False
        return True if prefixed and self.sure and self._is_surely(name) else None

    def may_be(self, name: str) -> bool:
        """Whether it may have that name."""
        return self.name is None or self.name.lower() == name.lower()

    def prefixed(self, qualifier: Sequence[str]) -> bool | None:
        """Whether ``qualifier.*`` stands for it; None where it may."""
        given = [part.lower() for part in qualifier]
        own = [part.lower() for part in self.qualifier]
        if len(given) <= len(own):
            return own[len(own) - len(given) :] == given
        return None if self.open and given[len(given) - len(own) :] == own else not given

    def _is_surely(self, name: str) -> bool:
        # Spark tells apart what only case folding makes equal: ss and ß.
        return self.name is not None and len(self.name) == len(name) and self.name.lower() == name.lower()


@dataclass(frozen=True, eq=False)
class Shown:
    """The columns that names can mean.

    Attributes:
        visible: what ``*`` stands for.
        hidden: the keys of USING and NATURAL joins that only a qualified name reaches, once nothing visible is meant.
        ordered: whether ``visible`` is in Spark's order.
    """

    visible: tuple[Attribute, ...] = ()
    hidden: tuple[Attribute, ...] = ()
    ordered: bool = True

    @cached_property
    def _by_name(self) -> tuple[Mapping[str | None, tuple[Attribute, ...]], ...]:
        return tuple(_by_folded_name(each) for each in (self.visible, self.hidden))

    def perhaps_called(self, name: str, hidden: bool) -> tuple[Attribute, ...]:
        """The visible, or the hidden, columns that may have that name."""
        by_name = self._by_name[hidden]
        return by_name.get(name.lower(), ()) + by_name.get(None, ())

    def starred(self, qualifier: Sequence[str]) -> tuple[Attribute, ...]:
        """The columns that ``*``, or ``qualifier.*``, stands for, in order."""
        if not qualifier:
            return self.visible
        return tuple(each for each in (*self.hidden, *self.visible) if each.prefixed(qualifier) is not False)

    def beside(self, other: Shown) -> Shown:
        """The columns of two sources next to each other."""
        return Shown(self.visible + other.visible, self.hidden + other.hidden, self.ordered and other.ordered)


def _by_folded_name(attributes: Iterable[Attribute]) -> Mapping[str | None, tuple[Attribute, ...]]:
    found: dict[str | None, list[Attribute]] = {}
    for each in attributes:
        found.setdefault(None if each.name is None else each.name.lower(), []).append(each)
    return {name: tuple(those) for name, those in found.items()}


def shown_by(source: Source | None, laterals: Iterable[FromItem] = ()) -> Shown:
    """What can be named above a join tree, and above the LATERAL VIEWs over it."""
    shown = Shown() if source is None else _of(source)
    for view in laterals:
        shown = shown.beside(Shown(_of_item(view)))
    return shown


def shown_within(join: JoinNode) -> Shown:
    """What a join's own ON condition can name: both sides, whatever the join returns."""
    return _of(join.left).beside(_of(join.right))


def _of(source: Source) -> Shown:
    if isinstance(source, FromItem):
        return Shown(_of_item(source))
    left, right = _of(source.left), _of(source.right)
    if source.using:
        return _using(source.kind, left, right, source.using)
    if source.natural:
        return _natural(source.kind, left, right)
    return left if source.kind in ("semi", "anti") else left.beside(right)


def _of_item(item: FromItem) -> tuple[Attribute, ...]:
    qualifier, open_ended = item.qualifier
    if item.names is UNKNOWN:
        return (Attribute(None, qualifier, open_ended, sure=False),)
    return tuple(Attribute(name, qualifier, open_ended, ((item, name),)) for name in item.names)


def _using(kind: str, left: Shown, right: Shown, keys: Sequence[str]) -> Shown:
    """What a join shows that merges the columns of these names."""
    lefts, rights = [_key(left, name) for name in keys], [_key(right, name) for name in keys]
    if not all(each.sure for each in (*lefts, *rights)):
        return _doubtful(kind, left, right, keys)
    ordered = left.ordered and right.ordered
    left_rest, right_rest = _without(left.visible, lefts), _without(right.visible, rights)
    if kind in ("semi", "anti"):
        return Shown((*lefts, *left_rest), left.hidden, ordered)
    hidden = left.hidden + right.hidden
    if kind == "full":
        pairs = zip(keys, lefts, rights, strict=True)
        merged = [Attribute(key, columns=one.columns + other.columns, whole=False) for key, one, other in pairs]
        return Shown((*merged, *left_rest, *right_rest), (*lefts, *rights, *hidden), ordered)
    kept, covered = (rights, lefts) if kind == "right" else (lefts, rights)
    return Shown((*kept, *left_rest, *right_rest), (*covered, *hidden), ordered)


def _natural(kind: str, left: Shown, right: Shown) -> Shown:
    lefts = Counter(each.name.lower() for each in left.visible if each.name)
    rights = Counter(each.name.lower() for each in right.visible if each.name)
    common = lefts.keys() & rights.keys()
    keys = [each.name for each in left.visible if each.name and each.name.lower() in common]
    unknown = any(not each.name for each in left.visible + right.visible)
    if unknown or any(lefts[name] > 1 or rights[name] > 1 for name in common):
        # What Spark calls a computed column may be common, too.
        return _doubtful(kind, left, right, [each.name for each in left.visible + right.visible if each.name])
    return _using(kind, left, right, keys)


def _key(side: Shown, name: str) -> Attribute:
    """The column of a side that USING means: Spark takes the first of that name."""
    found = [each for each in side.visible if each.may_be(name)]
    if not found:
        return Attribute(name, sure=False)
    if len(found) == 1 and found[0].name is None:
        return replace(found[0], name=name, sure=True)
    is_first = side.ordered or len(found) == 1
    return found[0] if is_first and found[0].called((), name) else replace(found[0], sure=False)


def _without(visible: Iterable[Attribute], keys: Iterable[Attribute]) -> tuple[Attribute, ...]:
    taken = {id(key) for key in keys}
    return tuple(each for each in visible if id(each) not in taken)


def _doubtful(kind: str, left: Shown, right: Shown, keys: Iterable[str]) -> Shown:
    """What a join shows of which it is not known which columns of these names it merges.

    The columns of the side that a merged column has its value from can be named as before.
    """
    names = {key.lower() for key in keys}
    if kind in ("semi", "anti"):
        return replace(left, ordered=False)
    kept = {"inner": left, "left": left, "right": right}.get(kind)

    def touched(side: Shown) -> tuple[Attribute, ...]:
        if side is kept:
            return ()
        return tuple(each for each in side.visible if each.name is None or each.name.lower() in names)

    doubted = [replace(each, whole=False, sure=False) for each in (*touched(left), *touched(right))]
    merged = [replace(each, qualifier=(), open=False) for each in doubted]
    rest = [*_without(left.visible, touched(left)), *_without(right.visible, touched(right))]
    return Shown((*merged, *doubted, *rest), (*doubted, *left.hidden, *right.hidden), ordered=False)
