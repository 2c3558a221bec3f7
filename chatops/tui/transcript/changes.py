"""Difference between two lists of blocks, for a followed session that is read again as a whole."""

from collections.abc import Mapping, Sequence

from chatops.tui.transcript.blocks import Append, Block, Op, Remove, Replace


def changes(before: Mapping[str, Block], after: Sequence[Block]) -> list[Op]:
    """Return the operations that turn a transcript of `before` into `after`. Blocks in both keep their order."""
    wanted = {block.id for block in after}
    ops: list[Op] = [Remove(id=key) for key in before if key not in wanted]
    following = ""
    fresh: list[Op] = []
    for block in reversed(after):
        if block.id not in before:
            fresh.append(Append(block=block, before=following))
        elif before[block.id] != block:
            ops.append(Replace(block=block))
        following = block.id
    return [*ops, *fresh]
