# The files of the ops of ops.def, whose stems name them: op_sources(OUT FOLDER SUFFIX) sets OUT to
# FOLDER/<stem>SUFFIX of each op that has such a file beside the file that calls. One that is
# missing is missed by the linker.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/ops.def op_stems REGEX "^(CUDA_)?OP\\(")
list(TRANSFORM op_stems REPLACE "^[A-Z_]+\\(([a-z0-9_]+).*" "\\1")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/ops.def)

function(op_sources out folder suffix)
  set(sources)
  foreach(stem IN LISTS op_stems)
    if(EXISTS ${CMAKE_CURRENT_LIST_DIR}/${folder}/${stem}${suffix})
      list(APPEND sources ${folder}/${stem}${suffix})
    endif()
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()
