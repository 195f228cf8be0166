# SPDX-License-Identifier: Apache-2.0
# The programs of codecs/ as a part of the library. One source holds as strings the texts of the library's codecs, and
# the texts of programs that are the source of GPU kernels alone (lang/kernel_source.h). This file writes that source
# when it runs as a script: cmake -DFROM=... -DTO=... -Dprogram_names=... -Dkernel_names=... -P programs.cmake. A small tool,
# linked from the library's own objects, writes the C++ of the codecs, which is compiled once for each level
# (lang/cpp/object_cache.h), so they need no compiler where they run. A cross build cannot run the tool and
# interprets them.
if(CMAKE_SCRIPT_MODE_FILE)
  set(out "// Made by cmake/programs.cmake.\n#include <array>\n\n#include \"lang/library.h\"\n\nnamespace tithe::lang {\n\n")
  foreach(kind program kernel)
    set(texts)
    foreach(name IN LISTS ${kind}_names)
      file(READ ${FROM}/${name}.codec text)
      string(APPEND texts "    {\"${name}\", R\"codec(${text})codec\"},\n")
    endforeach()
    list(LENGTH ${kind}_names count)
    string(APPEND out "std::span<const ProgramText> ${kind}_texts() {\n  static constexpr std::array<ProgramText, ${count}> kAll = {{\n"
      "${texts}  }};\n  return kAll;\n}\n\n")
  endforeach()
  file(WRITE ${TO} "${out}}  // namespace tithe::lang\n")
  return()
endif()

# The names that a list gives to `macro`, each once.
function(tithe_names file macro out)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} lines REGEX "^${macro}\\(")
  list(TRANSFORM lines REPLACE "^${macro}\\(([a-z0-9_]+),.*" "\\1")
  list(REMOVE_DUPLICATES lines)
  set(${out} ${lines} PARENT_SCOPE)
endfunction()
tithe_names(${PROJECT_SOURCE_DIR}/include/tithe/codecs.def TITHE_CODEC_PROGRAM own_programs)
tithe_names(${PROJECT_SOURCE_DIR}/codecs/programs.def TITHE_PROGRAM kernel_programs)

set(folder ${PROJECT_BINARY_DIR}/programs)
file(MAKE_DIRECTORY ${folder})
set(TITHE_PROGRAM_TEXTS ${folder}/texts.cc)
set(all_programs ${own_programs} ${kernel_programs})
list(TRANSFORM all_programs PREPEND ${PROJECT_SOURCE_DIR}/codecs/ OUTPUT_VARIABLE own_files)
list(TRANSFORM own_files APPEND .codec)
add_custom_command(OUTPUT ${TITHE_PROGRAM_TEXTS}
  COMMAND ${CMAKE_COMMAND} -DFROM=${PROJECT_SOURCE_DIR}/codecs -DTO=${TITHE_PROGRAM_TEXTS} "-Dprogram_names=${own_programs}" "-Dkernel_names=${kernel_programs}"
    -P ${PROJECT_SOURCE_DIR}/cmake/programs.cmake
  DEPENDS ${own_files} ${PROJECT_SOURCE_DIR}/cmake/programs.cmake VERBATIM COMMENT "Texts of the codecs that are programs")

# Compiles the generated C++ into `tithe_programs`. The arguments after TITHE_OBJECTS are the objects of the library.
function(tithe_compile_programs)
  set(levels 0)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(levels 1 2)
  endif()
  set(march_1 -march=x86-64-v3)
  set(march_2 -march=x86-64-v4)
  set(made)
  if(CMAKE_CROSSCOMPILING)
    file(WRITE ${folder}/built_in.cc
      "#include \"lang/cpp/object_cache.h\"\nstd::span<const tithe::lang::BuiltIn> tithe::lang::built_in() { return {}; }\n")
  else()
    add_executable(emit_programs codecs/emit_programs.cc ${TITHE_OBJECTS})
    target_include_directories(emit_programs PRIVATE include src codecs)
    target_link_libraries(emit_programs PRIVATE tithe_flags Threads::Threads ${TITHE_NEEDS} ${CMAKE_DL_LIBS})
    set(names ${own_programs})
    foreach(name IN LISTS names)
      foreach(level IN LISTS levels)
        list(APPEND made ${folder}/${name}_${level}.cc)
        # The flags of a program that is compiled at run time (lang/cpp/cpp_compiler.cc).
        set_source_files_properties(${folder}/${name}_${level}.cc PROPERTIES COMPILE_OPTIONS
          "-w;-O2;${march_${level}};-fno-math-errno;-fno-trapping-math;-fwrapv;-fno-strict-aliasing")
      endforeach()
    endforeach()
    add_custom_command(OUTPUT ${folder}/built_in.cc ${made}
      COMMAND ${CMAKE_COMMAND} -E env TITHE_CXX=none $<TARGET_FILE:emit_programs> ${folder} ${levels}
      DEPENDS emit_programs VERBATIM COMMENT "C++ of the programs of codecs/")
  endif()
  add_library(tithe_programs OBJECT ${folder}/built_in.cc ${made})
  target_include_directories(tithe_programs PRIVATE include src)
  target_link_libraries(tithe_programs PRIVATE tithe_flags)
endfunction()
