// CMake precompiles headers only for targets that have a source; tests/CMakeLists.txt lists them.
