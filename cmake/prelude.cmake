# SPDX-License-Identifier: Apache-2.0
# The texts of src/lang/runtime/prelude.def as a part of the library. Run by the build as a script as well
# (cmake -DFROM=... -DTO=... -P prelude.cmake), which writes them as strings into one source.
set(line_of "^TITHE_PRELUDE_[A-Z]+\\(([A-Za-z0-9]+), ([a-z0-9_]+)\\).*")
if(CMAKE_SCRIPT_MODE_FILE)
  set(piece 8000) # characters of one string; compilers need take no more than 65,536
  set(out "// Made by cmake/prelude.cmake.\n#include \"lang/runtime/prelude.h\"\n\nnamespace tithe::lang {\n")
  file(STRINGS ${FROM}/prelude.def lines REGEX "^TITHE_PRELUDE_")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "${line_of}" "\\1" name "${line}")
    string(REGEX REPLACE "${line_of}" "\\2" file "${line}")
    file(READ ${FROM}/${file}.h text)
    string(REGEX REPLACE "^// SPDX[^\n]*\n" "" text "${text}")
    string(APPEND out "\nconst char* const kPrelude${name} =")
    string(LENGTH "${text}" length)
    foreach(at RANGE 0 ${length} ${piece})
      string(SUBSTRING "${text}" ${at} ${piece} part)
      string(APPEND out " R\"front(${part})front\"")
    endforeach()
    string(APPEND out ";\n")
  endforeach()
  file(WRITE ${TO} "${out}\n}  // namespace tithe::lang\n")
  return()
endif()

set(runtime ${PROJECT_SOURCE_DIR}/src/lang/runtime)
set(TITHE_PRELUDE ${PROJECT_BINARY_DIR}/prelude.cc)
file(STRINGS ${runtime}/prelude.def lines REGEX "^TITHE_PRELUDE_")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${runtime}/prelude.def)
set(texts)
foreach(line IN LISTS lines)
  string(REGEX REPLACE "${line_of}" "${runtime}/\\2.h" text "${line}")
  list(APPEND texts ${text})
endforeach()
add_custom_command(OUTPUT ${TITHE_PRELUDE}
  COMMAND ${CMAKE_COMMAND} -DFROM=${runtime} -DTO=${TITHE_PRELUDE} -P ${PROJECT_SOURCE_DIR}/cmake/prelude.cmake
  DEPENDS ${texts} ${runtime}/prelude.def ${PROJECT_SOURCE_DIR}/cmake/prelude.cmake VERBATIM
  COMMENT "Texts of generated programs")
