#pragma once
// Integers of 128 bits, an extension that GCC and Clang have.

namespace lockstep {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 UInt128;

}  // namespace lockstep
