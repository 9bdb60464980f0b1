# lockstep_python_test(NAME SCRIPT [ARGUMENTS ...] [LABELS ...] [TIMEOUT S]): a script that is given
# the binary; exit code 77 means skipped.
function(lockstep_python_test name script)
  cmake_parse_arguments(arg "" "TIMEOUT" "ARGUMENTS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 900)
  endif()
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/${script}
    $<TARGET_FILE:lockstep>
                                ${arg_ARGUMENTS})
  set_tests_properties(
    ${name}
    PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" ENVIRONMENT
               "PYTHONPATH=${CMAKE_SOURCE_DIR}/tests/distributed;PYTHONDONTWRITEBYTECODE=1;LOCKSTEP_DEVICE=cpu")
endfunction()
