"""Programs with their bindings written into them: every class with a program of its own that says all.

For whoever reads programs op by op (checks, files, the engine's oracle); the engine itself reads bindings,
so that a hundred classes share one program.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .program import Binding, Block, Collective, Compute, Exchange, Program, Programs, RepeatedBlocks, Work


def bound(programs: Programs) -> Programs:
    """The programs with each binding written into its class's ops: communicators, peers, slow kernels."""
    if not programs.bindings:
        return programs
    classes = [
        _Writer(binding).program(program)
        for program, binding in zip(programs.classes, programs.bindings, strict=True)
    ]
    slow = [binding.slow for binding in programs.bindings]
    changes = tuple(
        replace(change, slow=tuple(now / was for now, was in zip(change.slow, slow, strict=True)))
        for change in programs.changes
    )
    return replace(programs, classes=tuple(classes), bindings=(), changes=changes)


@dataclass
class _Writer:
    """Writes one class; each distinct block, and each distinct row of repeated blocks, once."""

    binding: Binding
    blocks: dict[Block, Block] = field(default_factory=dict)

    def program(self, program: Program) -> Program:
        if self.binding == Binding():
            return program
        return Program(ops=tuple(op._replace(work=self._work(op.work)) for op in program.ops))

    def _work(self, work: Work) -> Work:
        binding = self.binding
        match work:
            case Compute() if binding.slow != 1.0:
                return replace(work, seconds=work.seconds * binding.slow)
            case Collective() if work.communicator in binding.communicators:
                return replace(work, communicator=binding.communicators[work.communicator])
            case Exchange() if binding.peers:
                return Exchange(tuple(p._replace(peer=binding.peers.get(p.peer, p.peer)) for p in work.parts))
            case RepeatedBlocks() if binding.slow != 1.0 or binding.communicators:
                return RepeatedBlocks(tuple((self._block(block), count) for block, count in work.blocks))
        return work

    def _block(self, block: Block) -> Block:
        if block not in self.blocks:
            ops = tuple(op._replace(work=self._work(op.work)) for op in block.ops)
            same = all(op.work is old.work for op, old in zip(ops, block.ops, strict=True))
            self.blocks[block] = block if same else Block(block.name, ops)
        return self.blocks[block]
