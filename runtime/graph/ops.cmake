# op_sources(OUT FOLDER SUFFIX) sets OUT to the files FOLDER/<stem>SUFFIX of the ops in ops.def, if
# such a file exists next to the calling CMakeLists.txt. The linker reports a file that is missing.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/ops.def op_stems REGEX "^OP\\(")
list(TRANSFORM op_stems REPLACE "^OP\\(([a-z0-9_]+).*" "\\1")
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
