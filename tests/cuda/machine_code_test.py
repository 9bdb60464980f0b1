#!/usr/bin/env python3
"""Catches: a reader of machine code that sees no narrow store, local array, spill or tensor-core
instruction, so that resources_test.py could not fail.

machine_code_test.py PTXAS [NVDISASM]: assembles a kernel that has one of each, and reads it back.
"""
import os
import sys

import machine_code
import resources_test
from hot_kernels import SASS_TARGETS, Expected

ENTRY = """
.visible .entry {name}(.param .u64 from, .param .u64 to)
{{
  .reg .b64 %rd<8>;
  .reg .b32 %r<40>;
  {local}
  ld.param.u64 %rd1, [from];
  ld.param.u64 %rd2, [to];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  mov.u32 %r10, %tid.x;
  mul.wide.u32 %rd3, %r10, 16;
  add.u64 %rd1, %rd1, %rd3;
  add.u64 %rd2, %rd2, %rd3;
  {body}
  ret;
}}
"""
LOAD = "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];"
PLANTED = {
    "wide": ("", LOAD + "st.global.v4.b32 [%rd2], {%r1, %r2, %r3, %r4};"),
    "split": ("", LOAD + "".join(f"st.global.b32 [%rd2+{4 * k}], %r{k + 1};" for k in range(4))),
    "halves": ("", "ld.global.v2.b32 {%r1, %r2}, [%rd1]; st.global.v2.b32 [%rd2], {%r1, %r2};"
                   "ld.global.u16 %r3, [%rd1+8]; st.global.u16 [%rd2+8], %r3;"),
    "shared": (".shared .align 16 .b8 tile[4096]; .reg .b32 %s;",
               LOAD + "mov.u32 %s, tile; mad.lo.u32 %s, %r10, 16, %s;"
               "st.shared.v4.b32 [%s], {%r1, %r2, %r3, %r4}; bar.sync 0;"
               "xor.b32 %s, %s, 16; ld.shared.b32 %r5, [%s+4]; st.global.b32 [%rd2], %r5;"),
    "local": (".local .align 16 .b8 array[1024]; .reg .b32 %l, %m;",
              LOAD + "mov.u32 %l, array; mov.u32 %m, array; and.b32 %r6, %r1, 1008;"
              "add.u32 %m, %m, %r6; st.local.v4.b32 [%m], {%r1, %r2, %r3, %r4};"
              "and.b32 %r7, %r2, 1020; add.u32 %l, %l, %r7; ld.local.b32 %r5, [%l];"
              "st.global.b32 [%rd2], %r5;"),
    "tensor": ("", LOAD + "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
               " {%r11, %r12, %r13, %r14}, {%r1, %r2, %r3, %r4}, {%r1, %r2},"
               " {%r1, %r2, %r3, %r4}; st.global.v4.b32 [%rd2], {%r11, %r12, %r13, %r14};"),
}
SPILLS = """
ptxas info    : Compiling entry function 'hungry' for 'sm_120'
ptxas info    : Function properties for hungry
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 256 bytes smem
"""


def check(what, found, wanted):
    if found != wanted:
        print(f"FAILED: {what}: {found}, not {wanted}")
    return found == wanted


def main():
    ptxas, nvdisasm = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    hungry = machine_code.parse_report(SPILLS)
    good = check("spills", hungry, [machine_code.Kernel("hungry", "120", 40, 256, 20)])
    good &= check("problems", list(resources_test.resource_problems(hungry[0], "hungry", 1024)),
                  ["hungry (sm_120) spills 20 bytes"])
    large = machine_code.Kernel("large", "80", 65, 0, 0)
    good &= check("registers", len(list(resources_test.resource_problems(large, "large", 1024))), 1)
    good &= check("bounded", list(resources_test.resource_problems(large, "large", 512)), [])
    good &= check("could spill",
                  [resources_test.could_spill(large._replace(name=name, registers=n), 64)
                   for name, n in (("large", 33), ("large", 32), ("7Float16", 33))],
                  [True, False, False])
    if not os.path.exists(nvdisasm):
        print("skipped: no nvdisasm, which launcher/setup_nvdisasm.sh downloads")
        return 77 if good else 1
    bounded = (".entry one(.param .u64 a)\n.maxntid 16, 8, 1\n.minnctapersm 6\n{\n{\n}\n}\n"
               ".visible .entry two()\n{\n}\n")
    good &= check("registers allowed", machine_code.register_limits(bounded.encode()),
                  {"one": 85, "two": 64})
    good &= check("launch bounds", machine_code.largest_blocks(bounded.encode()),
                  {"one": 128, "two": 1024})
    ptx = ".version 7.0\n.target sm_80\n.address_size 64\n" + "".join(
        ENTRY.format(name=name, local=local, body=body) for name, (local, body) in PLANTED.items())
    wanted = {"split", "local"}
    good &= check("some kernels", {k.name for k in machine_code.assemble(
        ptxas, machine_code.only(ptx.encode(), wanted), "80")}, wanted)
    for target in SASS_TARGETS:
        _, code = machine_code.assemble_and_count(ptxas, nvdisasm, ptx.encode(), target,
                                                  sorted(PLANTED))

        def counts(kernel):
            return {kind: n for kind, n in code[kernel].items() if kind != "tensor" or n}

        good &= check("wide", counts("wide"), {"LDG.128": 1, "STG.128": 1})
        good &= check("split", counts("split"), {"LDG.128": 1, "STG.32": 4})
        good &= check("halves", counts("halves"),
                      {"LDG.64": 1, "STG.64": 1, "LDG.16": 1, "STG.16": 1})
        good &= check("shared", counts("shared"),
                      {"LDG.128": 1, "STS.128": 1, "LDS.32": 1, "STG.32": 1})
        good &= check("local", counts("local"),
                      {"LDG.128": 1, "STL.128": 1, "LDL.32": 1, "STG.32": 1})
        good &= check("tensor", code["tensor"]["tensor"], 1)

        def problems(kernel, *numbers):
            return list(resources_test.code_problems(Expected("file", "", *numbers), code[kernel],
                                                     kernel))

        good &= check("no problem", problems("wide", 1, 1, 0), [])
        good &= check("no tensor core", problems("wide", 1, 1, 0, 1),
                      ["wide: 0 tensor-core instructions, not 1"])
        good &= check("a split store", problems("split", 1, 1, 0),
                      ["split: 0 stores of 16 bytes, not 1", "split: 4 narrow stores, not 0"])
        good &= check("narrow loads", problems("halves", 1, 0),
                      ["halves: 0 loads of 16 bytes, not 1"])
        good &= check("a local array", problems("local", 1, 0),
                      ["local: 2 accesses to local memory"])
    print(f"{len(PLANTED)} kernels for {len(SASS_TARGETS)} GPUs:",
          "as planted" if good else "wrong")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
