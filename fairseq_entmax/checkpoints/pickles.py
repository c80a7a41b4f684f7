"""A look through the pickle of a checkpoint before torch reads it.

torch's safe loader runs no code, but it makes whatever it is asked to: ``bytearray(2**40)``,
tensors of lists, objects with hidden attributes. So the pickle is read here first, with
stand-ins for the tensors. What passes holds tensors, plain values, and namespaces and
dictionaries of them, and took no more steps than a model's checkpoint does.
"""

from __future__ import annotations

import io
import pickle
import tarfile
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, BinaryIO

from fairseq_entmax.checkpoints.errors import NoCheckpointError
from fairseq_entmax.checkpoints.stand_ins import NAMED, Named, StandIn, expect
from fairseq_entmax.checkpoints.zips import read_pickle

MOST_BYTES = 2**25  # of the pickle alone, without the weights
MOST_STEPS = 2_000_000  # one with 100 weights takes 5,000
LARGEST_KEY = 2**59

_ZIP = b"PK\x03\x04"
# How torch's files begin that are no zip archives
_OLD_FILE = (0x1950A86A20F9469CFC6C, 1001)
_ATTRIBUTES = {"_metadata"}  # of a state dictionary


def check_pickles(file: BinaryIO, path: str) -> None:
    """Refuse a checkpoint whose pickle holds more than a model's, or claims more than is there.

    Args:
        file: left where it was.
        path: its name, for the message.

    Raises:
        pickle.UnpicklingError: it does.
        NoCheckpointError: it begins as no checkpoint does.
        UnsafeCheckpointError: it is compressed, or too large beside its weights.
        Exception: of many types; the file is damaged.
    """
    begin = file.tell()
    try:
        magic = file.read(len(_ZIP))
        if magic == _ZIP:
            content, sizes = read_pickle(file, path, MOST_BYTES)
            _Reader(io.BytesIO(content), lambda key: sizes.get(key, -1)).load()
            return
        file.seek(begin)
        _refuse_tar(file)
        file.seek(begin)
        # An empty file is one that was cut short
        if magic and not magic.startswith(pickle.PROTO):
            raise NoCheckpointError(
                f"{path} is not a checkpoint, or its beginning is damaged: it begins neither as "
                f"the zip archives that torch.save writes nor as the pickles of before them"
            )
        _check_old_file(file)
    finally:
        file.seek(begin)


def _refuse_tar(file: BinaryIO) -> None:
    """Refuse torch's format of before 2017, which it extracts to a folder."""
    try:
        tarfile.open(fileobj=file, mode="r:").close()
    except tarfile.TarError:
        return
    raise pickle.UnpicklingError("it is of an old format of torch")


def _check_old_file(file: BinaryIO) -> None:
    """The five pickles that torch wrote before 1.6, in front of the storages."""
    begin = file.tell()
    left = file.seek(0, io.SEEK_END) - begin
    file.seek(begin)

    pickles = _Bounded(file)
    for expected in _OLD_FILE:
        if _Reader(pickles).load() != expected:
            raise pickle.UnpicklingError("it is none of a model")
    _Reader(pickles).load()
    reader = _Reader(pickles, lambda key: left)
    reader.load()
    if sum(reader.storages.values()) > left:
        raise pickle.UnpicklingError("its weights are larger than the file")
    _Reader(pickles).load()


class _Bounded:
    """A file to read pickles from."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.left = file, MOST_BYTES

    def read(self, size: int) -> bytes:
        return self._counted(size, self.file.read)

    def readline(self) -> bytes:
        return self._counted(1000, self.file.readline)

    def _counted(self, size: int, read: Callable[[int], bytes]) -> bytes:
        if size > self.left:
            raise pickle.UnpicklingError("it has too much beside its weights")
        content = read(size)
        self.left -= len(content)
        return content


class _Steps(dict[int, Callable[[Any], None]]):
    """The operations of pickles that there may be, and how many yet."""

    left = MOST_STEPS

    def take(self, number: int) -> None:
        self.left -= number
        if self.left < 0:
            raise pickle.UnpicklingError(f"it takes more than {MOST_STEPS:,} steps to read")

    def __getitem__(self, operation: int) -> Callable[[Any], None]:
        self.take(1)
        if operation not in self:
            raise pickle.UnpicklingError(f"Unsupported operand {operation}")
        return super().__getitem__(operation)


_python_unpickler: Any = pickle._Unpickler  # whose operations can be changed


class _Reader(_python_unpickler):
    """Python's unpickler, which makes stand-ins and plain values here."""

    def __init__(self, file: Any, bytes_there: Callable[[str], int] = lambda key: -1) -> None:
        super().__init__(file, encoding="utf-8")
        self.bytes_there = bytes_there
        self.storages: dict[str, int] = {}
        self.dispatch = _Steps(_OPERATIONS)

    def find_class(self, module: str, name: str) -> Named:
        if f"{module}.{name}" not in NAMED:
            raise pickle.UnpicklingError(f"GLOBAL {module}.{name} is not allowed")
        return NAMED[f"{module}.{name}"]

    def persistent_load(self, named: Any) -> StandIn:
        kind, storage, key, place, number, *_ = named
        expect(kind == "storage" and type(storage) is Named and storage.bytes_of_one > 0)
        expect(type(key) is str and type(place) is str and type(number) is int and number >= 0)
        size = number * storage.bytes_of_one
        if size > max(self.bytes_there(key), 0) or self.storages.setdefault(key, size) != size:
            raise pickle.UnpicklingError("its weights are larger than the file")
        return StandIn()

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        called = self.stack[-1]
        expect(type(called) is Named and called.make is not None and type(arguments) is tuple)
        self.dispatch.take(sum(len(a) for a in arguments if isinstance(a, str | tuple)))
        try:
            self.stack[-1] = called.make(*arguments)
        except (TypeError, ValueError):  # it has other arguments
            expect(False)

    def load_newobj(self) -> None:
        arguments = self.stack.pop()
        expect(self.stack[-1] is NAMED["argparse.Namespace"] and arguments == ())
        self.stack[-1] = Namespace()

    def load_build(self) -> None:
        state = self.stack.pop()
        built = self.stack[-1]
        expect(type(built) in (Namespace, OrderedDict) and type(state) is dict)
        self.dispatch.take(len(state))
        for name in state:
            expect(type(name) is str and not name.startswith("__"))
            # They would come before methods of that name, and no look at the items sees them
            if type(built) is OrderedDict and name not in _ATTRIBUTES:
                raise pickle.UnpicklingError(f"a dictionary in it has the attribute {name!r:.100}")
        vars(built).update(state)

    def load_setitem(self) -> None:
        expect(type(self.stack[-3]) in (dict, OrderedDict) and _is_key(self.stack[-2]))
        super().load_setitem()

    def load_setitems(self) -> None:
        # What stands above the mark, which is put away
        expect(type(self.metastack[-1][-1]) in (dict, OrderedDict))
        expect(all(map(_is_key, self.stack[::2])))
        super().load_setitems()

    def load_append(self) -> None:
        expect(type(self.stack[-2]) is list)
        super().load_append()

    def load_appends(self) -> None:
        expect(type(self.metastack[-1][-1]) is list)
        super().load_appends()


def _is_key(key: Any) -> bool:
    return type(key) is str or (type(key) is int and abs(key) < LARGEST_KEY)


# Those of torch's safe loader
_OPERATIONS: dict[int, Callable[[Any], None]] = {
    operation[0]: _python_unpickler.dispatch[operation[0]]
    for operation in (
        *(pickle.GLOBAL, pickle.BINPERSID, pickle.PROTO, pickle.STOP, pickle.MARK),
        *(pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.EMPTY_TUPLE),
        *(pickle.EMPTY_LIST, pickle.EMPTY_DICT, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
        *(pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG1, pickle.BINFLOAT),
        *(pickle.BINUNICODE, pickle.SHORT_BINSTRING),
        *(pickle.BINGET, pickle.LONG_BINGET, pickle.BINPUT, pickle.LONG_BINPUT),
    )
}
_OPERATIONS |= {
    pickle.REDUCE[0]: _Reader.load_reduce,
    pickle.NEWOBJ[0]: _Reader.load_newobj,
    pickle.BUILD[0]: _Reader.load_build,
    pickle.SETITEM[0]: _Reader.load_setitem,
    pickle.SETITEMS[0]: _Reader.load_setitems,
    pickle.APPEND[0]: _Reader.load_append,
    pickle.APPENDS[0]: _Reader.load_appends,
}
